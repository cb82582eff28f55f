"""Observation encoders f(o): base class, encoders for grids, vectors, images and dicts, and how one is selected.

`paper_encoders.py` has the paper's. Each entry of an observation gets the encoder that `network.encoder` names if that
one supports the entry's space, else the default of the space.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped, UInt8

from byol_explore.config.sections import AUTO, NetworkConfig
from byol_explore.errors import UserError, missing_method, unknown_name
from byol_explore.networks import cpu_kernels
from byol_explore.networks.layers import (
    MLP,
    LayerNorm,
    Linear,
    SubtractMean,
    truncated_normal,
)
from byol_explore.registry import ENCODERS, is_import_path
from byol_explore.spaces import ArraySpace, Grid, HasSpaces, Image, Tokens, Vector
from byol_explore.types import Array, PyTree

MAX_COMBINED_TABLE = 4096  # rows of the table of all combinations of a cell's symbols


class ObservationEncoder(eqx.Module):
    """Base class of encoders. `network.encoder` names a subclass, by its name in `ENCODERS` or by import path.

    Encoders are found in a tree of modules by this class, so it is required.
    """

    supported_spaces: ClassVar[tuple[type[ArraySpace], ...]] = ()

    @classmethod
    def make(cls, spec: Any, network: NetworkConfig, size: int, key: Array) -> Self:
        """Build an encoder.

        Args:
          spec: space of the observations, one of `supported_spaces`.
          network: configuration with all other sizes.
          size: N, length of the embeddings.
          key: random key.
        """
        raise missing_method("encoder", cls, "make")

    @property
    def initial_std(self) -> float | None:
        """Standard deviation of each number of the embeddings after centring; None keeps it as initialised."""
        return None

    def __call__(self, observation: PyTree) -> Float[Array, "n N"]:
        """Encode observations [n, *shape]. Returns embeddings [n, N]."""
        raise missing_method("encoder", type(self), "__call__")


class GridEncoder(ObservationEncoder):
    """Encode grids of symbols: a table look-up per cell, then an MLP.

    Each channel has a table; a cell's vector is the sum of one row of each. If there are at most MAX_COMBINED_TABLE
    combinations of symbols, the tables are first added into one, so that a cell costs one look-up.

    Args:
      spec: height, width and the number of symbols in each channel.
      hidden: sizes of the MLP's hidden layers.
      size: N, length of the embeddings.
      width: length of a cell's vector.
    """

    supported_spaces = (Grid,)

    tables: tuple[Float[Array, "_ width"], ...]
    mlp: MLP

    def __init__(self, spec: Grid, hidden: Sequence[int], size: int, key: Array, *, width: int = 8) -> None:
        *keys, mlp_key = jax.random.split(key, len(spec.symbols_per_channel) + 1)
        self.tables = tuple(
            truncated_normal(k, (count, width), len(keys))
            for k, count in zip(keys, spec.symbols_per_channel, strict=True)
        )
        self.mlp = MLP(spec.height * spec.width * width, hidden, size, mlp_key)

    @classmethod
    def make(cls, spec: Grid, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec, network.encoder_hidden, size, key, width=network.cell_embedding_size)

    def __call__(self, observation: UInt8[Array, "n H W channels"]) -> Float[Array, "n N"]:
        channels = [observation[..., channel].astype(jnp.int32) for channel in range(observation.shape[-1])]
        if math.prod(len(table) for table in self.tables) <= MAX_COMBINED_TABLE:
            cells = self._look_up_combined(channels)
        else:
            pairs = zip(self.tables, channels, strict=True)
            cells = reduce(jnp.add, [jnp.take(table, channel, axis=0, mode="clip") for table, channel in pairs])
        return self.mlp(cells.reshape(cells.shape[0], -1))

    def _look_up_combined(self, channels: list[Array]) -> Array:
        """Look up symbols [n, H, W] of each channel in the table of all combinations. Returns [n, H, W, width]."""
        rows, index = self.tables[0], channels[0]
        for table, channel in zip(self.tables[1:], channels[1:], strict=True):
            rows = (rows[:, None] + table[None]).reshape(-1, table.shape[1])
            index = index * len(table) + channel
        return jnp.take(rows, index, axis=0, mode="clip")


class VectorEncoder(ObservationEncoder):
    """Encode numbers of any shape: flatten, then an MLP."""

    supported_spaces = (Vector, Image, Grid)

    mlp: MLP

    def __init__(self, inputs: int, hidden: Sequence[int], size: int, key: Array) -> None:
        self.mlp = MLP(inputs, hidden, size, key)

    @classmethod
    def make(cls, spec: Vector | Image | Grid, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.size, network.encoder_hidden, size, key)

    def __call__(self, observation: Shaped[Array, "n *shape"]) -> Float[Array, "n N"]:
        return self.mlp(observation.reshape(observation.shape[0], -1).astype(jnp.float32))


class ImageEncoder(ObservationEncoder):
    """Encode images cheaply enough for CPU cores: patches of 6 x 6 pixels, then groups of 2 x 2 patches.

    Each layer is one matrix product. The mean image is subtracted first: otherwise the static background dominates
    every embedding, and a short run learns little about what moves.

    Args:
      shape: height, width and channels of the images.
      size: N, length of the embeddings.
      widths: outputs per patch and per group.
    """

    supported_spaces = (Image,)

    center: SubtractMean
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
        self.center = SubtractMean((height * self.GROUP, width * self.GROUP, pixels))
        self.padding = ((0, 0), (0, height * step - shape[0]), (0, width * step - shape[1]), (0, 0))
        self.patches = Linear(pixels, widths[0], first)
        self.groups = Linear(self.GROUP**2 * widths[0], widths[1], second)
        self.norm = LayerNorm(height * width * widths[1])
        self.linear = Linear(height * width * widths[1], size, third)

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        return cls(spec.shape, size, key)

    def __call__(self, observation: UInt8[Array, "n H W c"]) -> Float[Array, "n N"]:
        x = jax.nn.relu(self.patches(self.center(self._to_patches(observation)) / 255.0))
        x = jax.nn.relu(self.groups(_to_blocks(x, self.GROUP)))
        return self.linear(self.norm(x.reshape(x.shape[0], -1)))

    def _to_patches(self, image: UInt8[Array, "n H W c"]) -> UInt8[Array, "n h w pixels"]:
        # Rearranged as bytes: a quarter of the memory traffic of floats, and shared by encoders of the same images.
        return cpu_kernels.fusion_barrier(lambda x: _to_blocks(jnp.pad(x, self.padding), self.PATCH), image)


def _to_blocks(x: Shaped[Array, "n H W c"], size: int) -> Shaped[Array, "n h w features"]:
    """Cut images into squares of `size` x `size` that do not overlap, each flattened."""
    n, height, width, channels = x.shape
    x = x.reshape(n, height // size, size, width // size, size, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // size, width // size, -1)


class DictEncoder(ObservationEncoder):
    """Encode a dict: an encoder per entry, their embeddings [n, N] concatenated, ReLU, linear to N.

    With a single entry the embedding is that entry's. Entries without an encoder are ignored.

    Args:
      entries: an encoder for each entry to encode.
      size: N, length of all embeddings.
    """

    entries: dict[str, ObservationEncoder]
    linear: Linear | None

    def __init__(self, entries: Mapping[str, ObservationEncoder], size: int, key: Array) -> None:
        self.entries = dict(entries)
        self.linear = Linear(len(entries) * size, size, key) if len(entries) > 1 else None

    @property
    def initial_std(self) -> float | None:
        """Return the largest one of the entries."""
        stds = [entry.initial_std for entry in self.entries.values()]
        return max((std for std in stds if std is not None), default=None)

    def __call__(self, observation: dict[str, Array]) -> Float[Array, "n N"]:
        parts = [self.entries[name](observation[name]) for name in sorted(self.entries)]
        if self.linear is None:
            return parts[0]
        return self.linear(jax.nn.relu(jnp.concatenate(parts, axis=-1)))


DEFAULT_ENCODERS: dict[type[ArraySpace], str] = {Grid: "grid", Vector: "vector", Image: "image", Tokens: "tokens"}
CORE_INPUT_SPACES = (Vector, Tokens)  # the core can read these without an encoder


def make_encoder(config: NetworkConfig, spec: HasSpaces, key: Array, size: int | None = None) -> ObservationEncoder:
    """Build the encoder of an environment's observations.

    Args:
      config: names the encoder, and has its sizes.
      spec: observation space: an ArraySpace, or a flat dict of them.
      key: random key.
      size: N, length of the embeddings; None for `config.embedding_size`.
    Returns:
      The entry's encoder, or a DictEncoder.
    """
    size = config.embedding_size if size is None else size
    entries, selected = encoded_entries(config, spec), select_encoders(config, spec)

    def make(name: str, key: Array) -> ObservationEncoder:
        encoder = ENCODERS.get(selected[name]).make(entries[name], config, size, key)
        if is_import_path(selected[name]):
            _check_embeddings(selected[name], encoder, entries[name], size)
        return encoder

    if not isinstance(spec.observation, dict):
        return make("", key)
    *keys, linear_key = jax.random.split(key, len(entries) + 1) if len(entries) > 1 else (key, key)
    return DictEncoder({name: make(name, k) for name, k in zip(sorted(entries), keys, strict=True)}, size, linear_key)


def _check_embeddings(name: str, encoder: ObservationEncoder, space: ArraySpace, size: int) -> None:
    """Raise UserError unless an external encoder maps observations [n, *shape] to embeddings [n, size]."""
    embedding = jax.eval_shape(encoder, jax.ShapeDtypeStruct((2, *space.shape), space.dtype))
    if getattr(embedding, "shape", None) != (2, size):
        found = getattr(embedding, "shape", type(embedding).__name__)
        raise UserError(f"network.encoder {name!r} returns {found} for two observations: it must be {(2, size)}")


def select_encoders(config: NetworkConfig, spec: HasSpaces) -> dict[str, str]:
    """Name the encoder of each encoded entry. Raise UserError if the configured one supports none of them."""
    spaces = {name: type(space) for name, space in encoded_entries(config, spec).items()}
    present = set(spaces.values())
    supported = () if config.encoder == AUTO else ENCODERS.get(config.encoder).supported_spaces
    if config.encoder != AUTO and not present & set(supported):
        fitting = [name for name in ENCODERS.names() if present & set(ENCODERS.get(name).supported_spaces)]
        raise UserError(
            f"network.encoder {config.encoder!r} does not fit the observations of {spec.name!r} "
            f"({', '.join(sorted(space.__name__ for space in present))}): choose from: {', '.join(fitting)}"
        )
    return {name: config.encoder if space in supported else _default(space, spec) for name, space in spaces.items()}


def encoded_entries(config: NetworkConfig, spec: HasSpaces) -> dict[str, ArraySpace]:
    """Return the entries that f(o) encodes. The name of the only entry is "" if observations are no dict."""
    core_only = core_input_entries(config, spec)
    encoded = {name: space for name, space in _all_entries(spec).items() if name not in core_only}
    if not encoded:
        raise UserError(
            f"network.core_inputs {', '.join(config.core_inputs)} leaves no entry of the observations of {spec.name!r} "
            "to be encoded and predicted: take one out"
        )
    return encoded


def core_input_entries(config: NetworkConfig, spec: HasSpaces) -> dict[str, ArraySpace]:
    """Return the entries that only the core reads. Raise UserError for an entry that is missing or unsupported."""
    entries, selected = _all_entries(spec), {}
    for name in config.core_inputs:
        if not name or name not in entries:
            readable = [each for each, space in entries.items() if each and isinstance(space, CORE_INPUT_SPACES)]
            raise unknown_name("entry of network.core_inputs", name, readable or ["(no entries)"])
        if not isinstance(entries[name], CORE_INPUT_SPACES):
            accepted = " or ".join(space.__name__ for space in CORE_INPUT_SPACES)
            raise UserError(f"network.core_inputs {name!r} is {entries[name]}: it must be a {accepted}")
        selected[name] = entries[name]
    return selected


def _all_entries(spec: HasSpaces) -> dict[str, ArraySpace]:
    entries = spec.observation if isinstance(spec.observation, dict) else {"": spec.observation}
    for space in entries.values():
        if not isinstance(space, ArraySpace):
            raise UserError(
                f"the observation space of {spec.name!r} is {space}: it must be an Image, Vector, Grid or Tokens of "
                "byol_explore.spaces, or a flat dict of them"
            )
    return entries


def _default(space: type[ArraySpace], spec: HasSpaces) -> str:
    if space not in DEFAULT_ENCODERS:
        raise UserError(
            f"there is no default encoder for {space.__name__} in the observations of {spec.name!r}: "
            "set network.encoder"
        )
    return DEFAULT_ENCODERS[space]
