"""What can be seen and what can be done: the kinds of observations, and actions.

An observation is of one kind, or a flat dict of several by name. A kind says what its numbers are, so that nobody has
to guess an encoder from a shape. Each has the shape and the dtype of one observation and is a leaf for `jax.tree.map`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from byol_explore.types import Action


class Kind:
    """What all kinds have beside their size, which is how many numbers they are."""

    dtype: ClassVar[np.dtype[Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class Image(Kind):
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
class Vector(Kind):
    """Numbers whose sizes mean something."""

    size: int

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)


@dataclass(frozen=True)
class Grid(Kind):
    """Cells of symbols: each channel of a cell, such as its tile or its colour, is one of so many."""

    height: int
    width: int
    symbols: tuple[int, ...]

    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.height, self.width, len(self.symbols)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Tokens(Kind):
    """A text as the numbers of its words, below `vocabulary`; 0 fills up what is shorter than `length`."""

    length: int
    vocabulary: int

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
        """An action to fill a place that nothing reads."""
        import jax.numpy as jnp

        return Action(jnp.zeros((len(self.discrete),), jnp.int32), jnp.zeros((self.continuous,)))


class Interface(Protocol):
    """What networks must know of what they are for: an environment's spec, or `Spaces`."""

    @property
    def name(self) -> str: ...
    @property
    def observation(self) -> Any: ...
    @property
    def action(self) -> ActionSpec: ...


class Spaces(NamedTuple):
    """What is seen and done where there is no environment to ask."""

    observation: ObservationSpec
    action: ActionSpec
    name: str = "these spaces"  # in messages
