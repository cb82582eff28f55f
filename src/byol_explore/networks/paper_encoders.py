"""The paper's encoders: residual networks for images and an LSTM for instructions (appendix A.1 and A.2).

An instruction stays the same for a whole episode, and often in all environments, so a batch of hundreds of observations
has few different texts. Each is encoded once, and the result is gathered for every observation that has it. Before, the
LSTM with its gradient took two fifths of a learner step of the preset hard-eight-small.
"""

from collections.abc import Callable, Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from byol_explore.config.sections import NetworkConfig
from byol_explore.networks import cpu_kernels, native_resnet
from byol_explore.networks.cores import LSTM, LSTMState
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import (
    Conv,
    GroupNorm,
    LayerNorm,
    Linear,
    SubtractMean,
    max_pool,
    truncated_normal,
)
from byol_explore.spaces import Image, Tokens


class ResidualBlock(eqx.Module):
    """Residual block: x + conv(relu(conv(relu(x))))."""

    first: Conv
    second: Conv

    def __init__(self, channels: int, key: Array) -> None:
        first, second = jax.random.split(key)
        self.first, self.second = Conv(channels, channels, first), Conv(channels, channels, second)

    def __call__(self, x: Float[Array, "n H W c"]) -> Float[Array, "n H W c"]:
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


class ResidualUnit(eqx.Module):
    """Convolution, max-pooling, two residual blocks and, with `normalize` (Atari), group normalisation."""

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
    """The paper's stack of three residual units (appendix A.1, A.2).

    Args:
      shape: height, width and channels of the images.
      normalize: end each unit with group normalisation.
      widths: channels of each unit.
    """

    center: SubtractMean
    units: tuple[ResidualUnit, ...]

    def __init__(
        self, shape: tuple[int, int, int], key: Array, *, normalize: bool, widths: Sequence[int] = (16, 32, 32)
    ) -> None:
        self.center = SubtractMean(shape)
        sizes = [shape[2], *widths]
        keys = jax.random.split(key, len(widths))
        self.units = tuple(
            ResidualUnit(i, o, k, normalize=normalize) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, image: UInt8[Array, "n H W c"]) -> Float[Array, "n features"]:
        """Encode images and flatten the result."""
        if native_resnet.can_encode(self, image):
            return native_resnet.encode(self, image)
        if cpu_kernels.use_cpu_kernels():
            return cpu_kernels.map_in_chunks(ResNet._encode, self, image)
        return self._encode(image)

    def _encode(self, image: UInt8[Array, "n H W c"]) -> Float[Array, "n features"]:
        x = self.center(image) / 255.0
        for unit in self.units:
            x = unit(x)
        return jax.nn.relu(x).reshape(x.shape[0], -1)

    @staticmethod
    def features(shape: tuple[int, int, int], widths: Sequence[int] = (16, 32, 32)) -> int:
        """Length of the flattened output; every unit halves height and width, rounding up."""
        height, width = shape[0], shape[1]
        for _ in widths:
            height, width = -(-height // 2), -(-width // 2)
        return height * width * widths[-1]


class AtariEncoder(ObservationEncoder):
    """ResNet with group normalisation, linear to N (appendix A.1)."""

    supported_spaces = (Image,)

    resnet: ResNet
    linear: Linear

    def __init__(self, shape: tuple[int, int, int], size: int, key: Array) -> None:
        resnet, linear = jax.random.split(key)
        self.resnet = ResNet(shape, resnet, normalize=True)
        self.linear = Linear(ResNet.features(shape), size, linear)

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.shape, size, key)

    @property
    def initial_std(self) -> float | None:
        """16: see `networks/centering.py`, and docs/atari.md for the measurements."""
        return 16.0

    def __call__(self, observation: UInt8[Array, "n H W c"]) -> Float[Array, "n N"]:
        return self.linear(self.resnet(observation))


class HardEightEncoder(ObservationEncoder):
    """ResNet, linear 1024, layer normalisation, ReLU, linear to N (appendix A.2)."""

    supported_spaces = (Image,)

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


MAX_UNIQUE = 32  # different texts per batch that are encoded once each; a batch with more is encoded in full


def apply_to_unique_rows(
    function: Callable[[Array], Array], rows: Int[Array, "n length"], limit: int = MAX_UNIQUE
) -> Float[Array, "n size"]:
    """Compute `function(rows)` from the different rows alone if there are at most `limit`.

    Args:
      function: maps rows [m, length] to [m, size], row by row.
      rows: [n, length].
      limit: number of rows that the cheap branch computes.
    Returns:
      [n, size].
    """
    if rows.shape[0] <= limit:
        return function(rows)
    # One row more than the limit: it repeats in the batch only if there are more than `limit` different ones.
    unique, inverse, counts = jnp.unique(
        rows, axis=0, size=limit + 1, fill_value=0, return_inverse=True, return_counts=True
    )
    # The gradient recomputes: otherwise the branch not taken fills the residuals of its own gradient with zeros.
    recomputed = jax.checkpoint(lambda x: function(x), prevent_cse=False)
    return jax.lax.cond(counts[limit] == 0, lambda: recomputed(unique[:limit])[inverse], lambda: recomputed(rows))


class InstructionEncoder(eqx.Module):
    """Encode texts by word embeddings of 20 and an LSTM of 64 (appendix A.2). Word 0 is padding: it keeps the state.

    Args:
      vocabulary: number of words.
      width: length of a word's embedding.
      size: length of the output.
    """

    words: Float[Array, "vocabulary width"]
    project: Linear
    core: LSTM

    def __init__(self, vocabulary: int, key: Array, *, width: int = 20, size: int = 64) -> None:
        words, project, core = jax.random.split(key, 3)
        self.words = truncated_normal(words, (vocabulary, width), 1)
        self.project = Linear(width, 4 * size, project)
        self.core = LSTM(size, core)

    @property
    def size(self) -> int:
        return self.core.size

    def __call__(self, text: Int[Array, "*batch length"]) -> Float[Array, "*batch size"]:
        """Return the hidden state after the last word."""
        hidden = apply_to_unique_rows(self._encode, text.reshape(-1, text.shape[-1]))
        return hidden.reshape(*text.shape[:-1], -1)

    def _encode(self, texts: Int[Array, "n length"]) -> Float[Array, "n size"]:
        def step(state: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, None]:
            projected, word = inputs
            after = self.core.step(state, projected)
            return jax.tree.map(lambda a, s: jnp.where(word[:, None] == 0, s, a), after, state), None

        projected = jnp.moveaxis(self.project(self.words[texts]), 1, 0)
        state, _ = jax.lax.scan(step, self.core.initial_state(texts.shape[:1]), (projected, texts.T))
        return state.hidden

    def centered(self, text: Int[Array, "*batch length"]) -> Self:
        """No-op: the layer after it subtracts the mean, not the recurrence."""
        return self


class TokensEncoder(ObservationEncoder):
    """Encode texts: instruction encoder, then linear to N."""

    supported_spaces = (Tokens,)

    reader: InstructionEncoder
    linear: Linear

    def __init__(self, vocabulary: int, size: int, key: Array) -> None:
        reader, linear = jax.random.split(key)
        self.reader = InstructionEncoder(vocabulary, reader)
        self.linear = Linear(self.reader.size, size, linear)

    @classmethod
    def make(cls, spec: Tokens, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.vocab_size, size, key)

    def __call__(self, observation: Int[Array, "n length"]) -> Float[Array, "n N"]:
        return self.linear(self.reader(observation))
