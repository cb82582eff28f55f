"""Layers with DeepMind's initialisation: truncated normal scaled by fan-in, zero bias.

Equinox's own layers draw uniformly and take one sample at a time; these take any leading axes. Layers that add
something to each of their outputs can be `centered`: see `networks/centering.py`.
"""

from collections.abc import Callable, Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from byol_explore.networks import cpu
from byol_explore.types import PyTree

Activation = Callable[[Array], Array]


def truncated_normal(key: Array, shape: Sequence[int], fan_in: int) -> Array:
    """Normal of standard deviation 1 / sqrt(fan_in), cut at two deviations."""
    return jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape)) / jnp.sqrt(fan_in)


class Linear(eqx.Module):
    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"] | None

    def __init__(self, inputs: int, outputs: int, key: Array, *, use_bias: bool = True, scale: float = 1.0) -> None:
        self.weight = scale * truncated_normal(key, (inputs, outputs), inputs)
        self.bias = jnp.zeros((outputs,)) if use_bias else None

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias

    def centered(self, x: Float[Array, "*batch inputs"]) -> Self:
        """With the bias that makes the outputs for these inputs zero on average."""
        if self.bias is None:
            return self
        return eqx.tree_at(lambda layer: layer.bias, self, -_mean_of_last(x @ self.weight))

    def scaled(self, factor: Float[Array, "*outputs"]) -> Self:
        """With outputs that are so many times as large, by one factor or one for each."""
        return jax.tree.map(lambda parameter: factor * parameter, self)


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last."""

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
        """Everything but the last layer."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return x


class LayerNorm(eqx.Module):
    """Normalises over the last axis."""

    scale: Float[Array, " features"]
    offset: Float[Array, " features"]

    def __init__(self, features: int) -> None:
        self.scale, self.offset = jnp.ones((features,)), jnp.zeros((features,))

    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
        return _standardize(x, (-1,)) * self.scale + self.offset

    def centered(self, x: Float[Array, "*batch features"]) -> Self:
        """With the offset that makes the outputs for these inputs zero on average."""
        return eqx.tree_at(lambda layer: layer.offset, self, -_mean_of_last(_standardize(x, (-1,)) * self.scale))


class GroupNorm(eqx.Module):
    """Group normalisation with one group: over height, width and channels, scaled per channel."""

    scale: Float[Array, " channels"]
    offset: Float[Array, " channels"]

    def __init__(self, channels: int) -> None:
        self.scale, self.offset = jnp.ones((channels,)), jnp.zeros((channels,))

    def __call__(self, x: Float[Array, "batch H W channels"]) -> Float[Array, "batch H W channels"]:
        return _standardize(x, (-3, -2, -1)) * self.scale + self.offset

    def centered(self, x: Float[Array, "batch H W channels"]) -> Self:
        """With the offset that makes each channel zero on average over these inputs."""
        outputs = _standardize(x, (-3, -2, -1)) * self.scale
        return eqx.tree_at(lambda layer: layer.offset, self, -_mean_of_last(outputs))


class Conv(eqx.Module):
    """A 3 x 3 convolution, stride 1, same padding, NHWC."""

    weight: Float[Array, "3 3 inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, key: Array) -> None:
        self.weight = truncated_normal(key, (3, 3, inputs, outputs), 9 * inputs)
        self.bias = jnp.zeros((outputs,))

    def __call__(self, x: Float[Array, "batch H W inputs"]) -> Float[Array, "batch H W outputs"]:
        return self._convolve(x) + self.bias

    def centered(self, x: Float[Array, "batch H W inputs"]) -> Self:
        """With the bias that makes each channel zero on average over these inputs."""
        return eqx.tree_at(lambda layer: layer.bias, self, -_mean_of_last(self._convolve(x)))

    def _convolve(self, x: Float[Array, "batch H W inputs"]) -> Float[Array, "batch H W outputs"]:
        if cpu.chosen():
            return cpu.conv(x, self.weight)
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.weight, (1, 1), "SAME", dimension_numbers=dims)


class Untrained(eqx.Module):
    """What no gradient trains, though it stands among what is trained."""


class Center(Untrained):
    """Takes off what all inputs share."""

    mean: Float[Array, "*shape"]

    def __init__(self, shape: Sequence[int]) -> None:
        self.mean = jnp.zeros(tuple(shape))

    def __call__(self, x: Shaped[Array, "batch *shape"]) -> Float[Array, "batch *shape"]:
        return x.astype(jnp.float32) - jax.lax.stop_gradient(self.mean)

    def centered(self, x: Shaped[Array, "batch *shape"]) -> Self:
        """With the mean of these inputs."""
        return eqx.tree_at(lambda layer: layer.mean, self, jnp.mean(x.astype(jnp.float32), axis=0))


def trained(tree: PyTree) -> PyTree:
    """A tree of modules without what no gradient trains: None stands in for it."""

    def is_untrained(node: object) -> bool:
        return isinstance(node, Untrained)

    return jax.tree.map(lambda node: None if is_untrained(node) else node, tree, is_leaf=is_untrained)


def max_pool(x: Float[Array, "batch H W channels"]) -> Float[Array, "batch h w channels"]:
    """3 x 3 maximum with stride 2, same padding."""
    if cpu.chosen():
        return cpu.max_pool(x)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _mean_of_last(x: Float[Array, "*batch outputs"]) -> Float[Array, " outputs"]:
    """The mean over all axes but the last."""
    return jnp.mean(x, axis=tuple(range(x.ndim - 1)))


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.var(x, axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon)
