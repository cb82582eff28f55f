"""Layers with fan-in initialisation, and the running normaliser of vector observations.

Weights follow DeepMind's initialisation: truncated normal with standard deviation 1 / sqrt(fan-in), zero bias. Unlike
Equinox's own layers these take any leading axes. Layers with a method `centered` can subtract the mean of their outputs
(`networks/centering.py`).

`ObservationNormalizer` scales vectors by their running mean and standard deviation, because their numbers differ in
size (metres beside radians beside counts) and an encoder with random weights sees the largest alone. Its statistics
cover all observations that were learned from. They are part of the actor, so acting, learning and evaluation normalise
alike and checkpoints include them.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from byol_explore.networks import cpu_kernels
from byol_explore.spaces import Vector
from byol_explore.types import PyTree


def truncated_normal(key: Array, shape: Sequence[int], fan_in: int) -> Array:
    """Draw weights of `shape` from a normal with standard deviation 1 / sqrt(fan_in), truncated at two deviations."""
    return jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape)) / jnp.sqrt(fan_in)


class AffineLayer(eqx.Module):
    """Base class of layers f(x) + bias. The bias can subtract the mean of the outputs."""

    bias: eqx.AbstractVar[Any]  # [outputs], or None

    @abstractmethod
    def transform(self, x: Array) -> Array:
        """Return f(x), the outputs [..., outputs] without the bias."""

    def __call__(self, x: Array) -> Array:
        """Return f(x) + bias, [..., outputs]."""
        y = self.transform(x)
        return y if self.bias is None else y + self.bias

    def centered(self, x: Array) -> Self:
        """Set the bias so that each output is zero on average over the inputs `x`. No-op without a bias."""
        if self.bias is None:
            return self
        y = self.transform(x)
        return eqx.tree_at(lambda layer: layer.bias, self, -jnp.mean(y, axis=tuple(range(y.ndim - 1))))


class Linear(AffineLayer):
    """Linear layer on the last axis. `scale` multiplies the initial weights."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"] | None

    def __init__(self, inputs: int, outputs: int, key: Array, *, use_bias: bool = True, scale: float = 1.0) -> None:
        self.weight = scale * truncated_normal(key, (inputs, outputs), inputs)
        self.bias = jnp.zeros((outputs,)) if use_bias else None

    def transform(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return x @ self.weight

    def scale_outputs(self, factor: Float[Array, "*outputs"]) -> Self:
        """Multiply the outputs by one factor [], or by one for each output [outputs]."""
        return jax.tree.map(lambda parameter: factor * parameter, self)


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last.

    Args:
      inputs: size of the input.
      hidden: sizes of the hidden layers.
      outputs: size of the output.
      scale: factor of the last layer's initial weights.
    """

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, key: Array, *, scale: float = 1.0) -> None:
        sizes = [inputs, *hidden, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        scales = [1.0] * len(hidden) + [scale]
        self.layers = tuple(
            Linear(i, o, k, scale=s) for i, o, k, s in zip(sizes[:-1], sizes[1:], keys, scales, strict=True)
        )

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return self.layers[-1](self.hidden(x))

    def hidden(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch hidden"]:
        """Apply all layers except the last."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return x


class LayerNorm(AffineLayer):
    """Layer normalisation over the last axis."""

    scale: Float[Array, " features"]
    bias: Float[Array, " features"]

    AXES = (-1,)  # that share a mean and a variance
    EPSILON = 1e-5

    def __init__(self, features: int) -> None:
        self.scale, self.bias = jnp.ones((features,)), jnp.zeros((features,))

    def transform(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
        mean = jnp.mean(x, self.AXES, keepdims=True)
        variance = jnp.var(x, self.AXES, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + self.EPSILON) * self.scale


class GroupNorm(LayerNorm):
    """Group normalisation with one group: over height, width and channels, with a scale and a bias per channel."""

    AXES = (-3, -2, -1)

    def __init__(self, channels: int) -> None:
        super().__init__(channels)


class Conv(AffineLayer):
    """3 x 3 convolution, stride 1, same padding, NHWC."""

    weight: Float[Array, "3 3 inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, key: Array) -> None:
        self.weight = truncated_normal(key, (3, 3, inputs, outputs), 9 * inputs)
        self.bias = jnp.zeros((outputs,))

    def transform(self, x: Float[Array, "batch H W inputs"]) -> Float[Array, "batch H W outputs"]:
        if cpu_kernels.use_cpu_kernels():
            return cpu_kernels.conv(x, self.weight)
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.weight, (1, 1), "SAME", dimension_numbers=dims)


class NonTrainable(eqx.Module):
    """Base class of modules that no gradient trains, though they sit among trained ones."""


class SubtractMean(NonTrainable):
    """Subtract a fixed mean [*shape] from inputs [n, *shape]."""

    mean: Float[Array, "*shape"]

    def __init__(self, shape: Sequence[int]) -> None:
        self.mean = jnp.zeros(tuple(shape))

    def __call__(self, x: Shaped[Array, "batch *shape"]) -> Float[Array, "batch *shape"]:
        return x.astype(jnp.float32) - jax.lax.stop_gradient(self.mean)

    def centered(self, x: Shaped[Array, "batch *shape"]) -> Self:
        """Set the mean to that of `x`."""
        return eqx.tree_at(lambda layer: layer.mean, self, jnp.mean(x.astype(jnp.float32), axis=0))


def trainable(tree: PyTree) -> PyTree:
    """Replace NonTrainable modules in a tree by None."""

    def is_fixed(node: object) -> bool:
        return isinstance(node, NonTrainable)

    return jax.tree.map(lambda node: None if is_fixed(node) else node, tree, is_leaf=is_fixed)


def max_pool(x: Float[Array, "batch H W channels"]) -> Float[Array, "batch h w channels"]:
    """3 x 3 max-pooling with stride 2, same padding."""
    if cpu_kernels.use_cpu_kernels():
        return cpu_kernels.max_pool(x)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


MAX_DEVIATIONS = 5.0  # normalised numbers are clipped to this size
EPSILON = 1e-6  # added to variances: a constant number becomes 0 instead of amplified rounding errors


class VectorNormalizer(NonTrainable):
    """Running mean and variance of a vector. The identity before the first update."""

    mean: Float[Array, " size"]
    variance: Float[Array, " size"]
    count: Float[Array, ""]  # observations so far; a float like all arrays in networks

    def __init__(self, size: int) -> None:
        self.mean, self.variance, self.count = jnp.zeros((size,)), jnp.ones((size,)), jnp.zeros(())

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        """Return (x - mean) / standard deviation, clipped to MAX_DEVIATIONS."""
        mean, variance, count = jax.lax.stop_gradient((self.mean, self.variance, self.count))
        normalized = (x - mean) * jax.lax.rsqrt(jnp.maximum(variance, 0.0) + EPSILON)
        return jnp.where(count > 0, jnp.clip(normalized, -MAX_DEVIATIONS, MAX_DEVIATIONS), x)

    def update(self, x: Float[Array, "*batch size"], mask: Bool[Array, "*batch"] | None = None) -> Self:
        """Add a batch to the statistics (parallel variance, Chan et al., 1979).

        Args:
          x: [..., size] vectors.
          mask: [...] True for vectors that count, at least one; None counts all.
        """
        axes, where = tuple(range(x.ndim - 1)), None if mask is None else mask[..., None]
        count = x.size // x.shape[-1] if mask is None else jnp.sum(mask)
        share = count / (self.count + count)  # of the batch among all observations
        delta = jnp.mean(x, axis=axes, where=where) - self.mean
        variance = (1.0 - share) * self.variance + share * jnp.var(x, axis=axes, where=where)
        return eqx.tree_at(
            lambda node: (node.mean, node.variance, node.count),
            self,
            (
                self.mean + share * delta,
                variance + share * (1.0 - share) * jnp.square(delta),
                self.count + count,
            ),
        )


class ObservationNormalizer(eqx.Module):
    """Normalise the Vector entries of an observation; other entries pass unchanged.

    Args:
      spec: observation space: an ArraySpace, or a flat dict of them.
      normalizes: False disables it.
    """

    entries: dict[str, VectorNormalizer]  # named "" if observations are no dict

    def __init__(self, spec: PyTree, *, normalizes: bool = True) -> None:
        spaces = spec if isinstance(spec, dict) else {"": spec}
        vectors = {name: space for name, space in spaces.items() if isinstance(space, Vector) and normalizes}
        self.entries = {name: VectorNormalizer(vector.size) for name, vector in vectors.items()}

    def __call__(self, observation: PyTree) -> PyTree:
        """Normalise observations [..., *shape]."""
        if not isinstance(observation, dict):
            return self.entries[""](observation) if self.entries else observation
        return {name: self.entries[name](x) if name in self.entries else x for name, x in observation.items()}

    def update(self, observation: PyTree, mask: Array | None = None) -> Self:
        """Add observations [..., *shape] to the statistics; with a mask [...] those where it is True."""
        named: dict[str, Any] = observation if isinstance(observation, dict) else {"": observation}
        entries = {name: entry.update(named[name], mask) for name, entry in self.entries.items()}
        return eqx.tree_at(lambda node: node.entries, self, entries)
