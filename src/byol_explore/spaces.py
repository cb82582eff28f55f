"""Spaces of observations and actions.

An observation has one space, or a flat dict of spaces. A space says what its numbers mean, so no encoder is guessed
from a shape. It has the shape and dtype of one observation and is a leaf for `jax.tree.map`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from byol_explore.types import Action


class ArraySpace:
    """Base class of spaces; each has a `size`, the count of its numbers."""

    dtype: ClassVar[np.dtype[Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class Image(ArraySpace):
    """Pixels, channels last."""

    height: int
    width: int
    channels: int

    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Vector(ArraySpace):
    """Numbers with a meaningful magnitude."""

    size: int

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)


@dataclass(frozen=True)
class Grid(ArraySpace):
    """Cells of symbols: each channel of a cell, such as its tile or colour, is one of a number of symbols."""

    height: int
    width: int
    symbols_per_channel: tuple[int, ...]

    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, len(self.symbols_per_channel)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Tokens(ArraySpace):
    """A text as numbers of its words, below `vocab_size`; padded with 0 to `length`."""

    length: int
    vocab_size: int

    dtype = np.dtype(np.int32)

    @property
    def shape(self) -> tuple[int]:
        return (self.length,)

    @property
    def size(self) -> int:
        return self.length


ObservationSpec = Image | Vector | Grid | Tokens | dict[str, Image | Vector | Grid | Tokens]


class ActionSpec(NamedTuple):
    """A hybrid action space: categories of each discrete component, number of continuous dimensions."""

    discrete: tuple[int, ...] = ()
    continuous: int = 0

    def zero(self) -> Action:
        """Return an action that is never read, for shapes and padding."""
        import jax.numpy as jnp

        return Action(jnp.zeros((len(self.discrete),), jnp.int32), jnp.zeros((self.continuous,)))


class HasSpaces(Protocol):
    """The spaces that networks are made for: an environment's spec, or `Spaces`."""

    @property
    def name(self) -> str: ...
    @property
    def observation(self) -> Any: ...
    @property
    def action(self) -> ActionSpec: ...


class Spaces(NamedTuple):
    """Spaces without an environment."""

    observation: ObservationSpec
    action: ActionSpec
    name: str = "these spaces"  # in messages
