"""Observation encoders f: a batch of observations [n, ...] to embeddings [n, N]."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped, UInt8

from byol_explore.errors import lacking
from byol_explore.networks import cpu
from byol_explore.networks.layers import MLP, Center, Conv, GroupNorm, LayerNorm, Linear, max_pool, truncated_normal
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Grid, Image, Kind, Vector
from byol_explore.types import PyTree

MOST_COMBINATIONS = 4096  # of a cell's symbols that are looked up as one


class ObservationEncoder(eqx.Module):
    """What all encoders are, ours and anybody's: that is how they are found among other modules.

    `network.encoder` names one, of the registry `ENCODERS` or by import path, for the observations of the kinds that it
    `reads`.
    """

    reads: ClassVar[tuple[type[Kind], ...]] = ()

    @classmethod
    def make(cls, spec: Any, network: NetworkConfig, size: int, key: Array) -> Self:
        """One for observations of this spec, with embeddings of this size; other sizes are the network's."""
        raise lacking("encoder", cls, "make")

    def __call__(self, observation: PyTree) -> Float[Array, "n N"]:
        raise lacking("encoder", type(self), "__call__")


class GridEncoder(ObservationEncoder):
    """For grids of symbols: a look-up per cell, then a multi-layer perceptron.

    Each channel has a table, whose rows add up to a cell's vector. The tables are added into one of all combinations if
    these are not too many, so that a cell costs one look-up.
    """

    reads = (Grid,)

    tables: tuple[Float[Array, "_ width"], ...]
    mlp: MLP

    def __init__(self, spec: Grid, hidden: Sequence[int], size: int, key: Array, *, width: int = 8) -> None:
        *keys, mlp_key = jax.random.split(key, len(spec.symbols) + 1)
        self.tables = tuple(
            truncated_normal(k, (count, width), len(keys)) for k, count in zip(keys, spec.symbols, strict=True)
        )
        self.mlp = MLP(spec.height * spec.width * width, hidden, size, mlp_key)

    @classmethod
    def make(cls, spec: Grid, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec, network.encoder_hidden, size, key, width=network.cell_size)

    def __call__(self, observation: UInt8[Array, "n H W channels"]) -> Float[Array, "n N"]:
        channels = [observation[..., channel].astype(jnp.int32) for channel in range(observation.shape[-1])]
        if math.prod(len(table) for table in self.tables) <= MOST_COMBINATIONS:
            cells = self._combined(channels)
        else:
            pairs = zip(self.tables, channels, strict=True)
            cells = reduce(jnp.add, [jnp.take(table, channel, axis=0, mode="clip") for table, channel in pairs])
        return self.mlp(cells.reshape(cells.shape[0], -1))

    def _combined(self, channels: list[Array]) -> Array:
        rows, index = self.tables[0], channels[0]
        for table, channel in zip(self.tables[1:], channels[1:], strict=True):
            rows = (rows[:, None] + table[None]).reshape(-1, table.shape[1])
            index = index * len(table) + channel
        return jnp.take(rows, index, axis=0, mode="clip")


class VectorEncoder(ObservationEncoder):
    """For numbers, whatever shape they come in: a multi-layer perceptron."""

    reads = (Vector, Image, Grid)

    mlp: MLP

    def __init__(self, inputs: int, hidden: Sequence[int], size: int, key: Array) -> None:
        self.mlp = MLP(inputs, hidden, size, key)

    @classmethod
    def make(cls, spec: Vector | Image | Grid, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.size, network.encoder_hidden, size, key)

    def __call__(self, observation: Shaped[Array, "n *shape"]) -> Float[Array, "n N"]:
        return self.mlp(observation.reshape(observation.shape[0], -1).astype(jnp.float32))


class ImageEncoder(ObservationEncoder):
    """Light enough for CPU cores: patches of 6 x 6 pixels, then 2 x 2 of those, each layer one matrix product.

    What all images share is taken off first: otherwise the still background makes up nearly all of every embedding,
    and a short run learns little about what moves.
    """

    reads = (Image,)

    center: Center
    patches: Linear
    groups: Linear
    norm: LayerNorm
    linear: Linear
    padding: tuple[tuple[int, int], ...] = eqx.field(static=True)

    PATCH = 6
    GROUP = 2

    def __init__(
        self, shape: tuple[int, int, int], size: int, key: Array, *, widths: tuple[int, int] = (32, 64)
    ) -> None:
        first, second, third = jax.random.split(key, 3)
        step = self.PATCH * self.GROUP
        height, width = (-(-side // step) for side in shape[:2])
        pixels = self.PATCH**2 * shape[2]
        self.center = Center((height * self.GROUP, width * self.GROUP, pixels))
        self.padding = ((0, 0), (0, height * step - shape[0]), (0, width * step - shape[1]), (0, 0))
        self.patches = Linear(pixels, widths[0], first)
        self.groups = Linear(self.GROUP**2 * widths[0], widths[1], second)
        self.norm = LayerNorm(height * width * widths[1])
        self.linear = Linear(height * width * widths[1], size, third)

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.shape, size, key)

    def __call__(self, observation: UInt8[Array, "n H W c"]) -> Float[Array, "n N"]:
        x = jax.nn.relu(self.patches(self.center(self._cut(observation)) / 255.0))
        x = jax.nn.relu(self.groups(_blocks(x, self.GROUP)))
        return self.linear(self.norm(x.reshape(x.shape[0], -1)))

    def _cut(self, image: UInt8[Array, "n H W c"]) -> UInt8[Array, "n h w pixels"]:
        """Patches, while they are bytes: once for all who encode the same images, and a quarter of what numbers are."""
        return cpu.apart(lambda x: _blocks(jnp.pad(x, self.padding), self.PATCH), image)


def _blocks(x: Shaped[Array, "n H W c"], size: int) -> Shaped[Array, "n h w features"]:
    """Squares of pixels that do not overlap, each as one vector."""
    n, height, width, channels = x.shape
    x = x.reshape(n, height // size, size, width // size, size, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // size, width // size, -1)


class ResidualBlock(eqx.Module):
    """x + conv(relu(conv(relu(x))))."""

    first: Conv
    second: Conv

    def __init__(self, channels: int, key: Array) -> None:
        first, second = jax.random.split(key)
        self.first, self.second = Conv(channels, channels, first), Conv(channels, channels, second)

    def __call__(self, x: Float[Array, "n H W c"]) -> Float[Array, "n H W c"]:
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


class ResidualUnit(eqx.Module):
    """Convolution, max-pooling, two residual blocks and, for Atari, a normalisation at the end."""

    conv: Conv
    blocks: tuple[ResidualBlock, ResidualBlock]
    norm: GroupNorm | None

    def __init__(self, inputs: int, channels: int, key: Array, *, normalize: bool) -> None:
        conv, first, second = jax.random.split(key, 3)
        self.conv = Conv(inputs, channels, conv)
        self.blocks = ResidualBlock(channels, first), ResidualBlock(channels, second)
        self.norm = GroupNorm(channels) if normalize else None

    def __call__(self, x: Float[Array, "n H W inputs"]) -> Float[Array, "n h w channels"]:
        x = max_pool(self.conv(x))
        for block in self.blocks:
            x = block(x)
        return x if self.norm is None else self.norm(x)


class ResNet(eqx.Module):
    """The paper's stack of three residual units on images [n, H, W, c] of bytes, flattened (appendix A.1, A.2)."""

    center: Center
    units: tuple[ResidualUnit, ...]

    def __init__(
        self, shape: tuple[int, int, int], key: Array, *, normalize: bool, widths: Sequence[int] = (16, 32, 32)
    ) -> None:
        self.center = Center(shape)
        sizes = [shape[2], *widths]
        keys = jax.random.split(key, len(widths))
        self.units = tuple(
            ResidualUnit(i, o, k, normalize=normalize) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, image: UInt8[Array, "n H W c"]) -> Float[Array, "n features"]:
        return cpu.in_chunks(ResNet._of_chunk, self, image) if cpu.chosen() else self._of_chunk(image)

    def _of_chunk(self, image: UInt8[Array, "n H W c"]) -> Float[Array, "n features"]:
        x = self.center(image) / 255.0
        for unit in self.units:
            x = unit(x)
        return jax.nn.relu(x).reshape(x.shape[0], -1)

    @staticmethod
    def features(shape: tuple[int, int, int], widths: Sequence[int] = (16, 32, 32)) -> int:
        """Length of the flattened output for an image of this shape: every unit halves it, rounding up."""
        height, width = shape[0], shape[1]
        for _ in widths:
            height, width = -(-height // 2), -(-width // 2)
        return height * width * widths[-1]


class AtariEncoder(ObservationEncoder):
    """ResNet with group normalisation, linear to N (appendix A.1)."""

    reads = (Image,)

    resnet: ResNet
    linear: Linear

    def __init__(self, shape: tuple[int, int, int], size: int, key: Array) -> None:
        resnet, linear = jax.random.split(key)
        self.resnet = ResNet(shape, resnet, normalize=True)
        self.linear = Linear(ResNet.features(shape), size, linear)

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.shape, size, key)

    def __call__(self, observation: UInt8[Array, "n H W c"]) -> Float[Array, "n N"]:
        return self.linear(self.resnet(observation))


class HardEightEncoder(ObservationEncoder):
    """ResNet, linear 1024, layer normalisation, ReLU, linear to N (appendix A.2)."""

    reads = (Image,)

    resnet: ResNet
    hidden: Linear
    norm: LayerNorm
    linear: Linear

    def __init__(self, shape: tuple[int, int, int], size: int, key: Array, *, hidden: int = 1024) -> None:
        resnet, first, second = jax.random.split(key, 3)
        self.resnet = ResNet(shape, resnet, normalize=False)
        self.hidden = Linear(ResNet.features(shape), hidden, first)
        self.norm = LayerNorm(hidden)
        self.linear = Linear(hidden, size, second)

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.shape, size, key)

    def __call__(self, observation: UInt8[Array, "n H W c"]) -> Float[Array, "n N"]:
        return self.linear(jax.nn.relu(self.norm(self.hidden(self.resnet(observation)))))
