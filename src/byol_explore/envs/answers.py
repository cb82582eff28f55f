"""What the answers of environments outside jit are held against: their spec.

An answer of another shape is a mistake that nothing can be learned from. Numbers that are not finite or lie outside
their space are doubtful: whoever plays goes on, and somebody should hear of it.
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from byol_explore.envs.protocols import EnvSpec
from byol_explore.spaces import Grid, Kind, Tokens
from byol_explore.types import PyTree, TimeStep

_PER_ENV = ("reward", "discount", "is_first", "is_last")


@runtime_checkable
class Doubting(Protocol):
    """A batch that knows more about its observations than their spec says."""

    def doubts(self) -> list[str]:
        """What was doubtful about the last answer."""
        ...


class Answers:
    """Looks at every answer of a batch of environments."""

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._num_envs = num_envs
        self._kinds: PyTree = spec.observation

    def mistake(self, timestep: TimeStep) -> str | None:
        """What about an answer nothing can be made of."""
        for title, seen, kind in self._entries(timestep.observation):
            expected = (self._num_envs, *kind.shape)
            if seen is None:
                return f"{title} is missing"
            if np.shape(seen) != expected:
                return f"{title} has the shape {np.shape(seen)}, not {expected}"
        for name in _PER_ENV:
            if np.shape(getattr(timestep, name)) != (self._num_envs,):
                return f"its {name} has the shape {np.shape(getattr(timestep, name))}, not {(self._num_envs,)}"
        return None

    def doubts(self, timestep: TimeStep) -> Iterator[str]:
        """What is doubtful about an answer without mistakes."""
        if not np.all(np.isfinite(timestep.reward)):
            yield "its reward is not finite"
        for title, seen, kind in self._entries(timestep.observation):
            if doubt := _doubt(np.asarray(seen), kind):
                yield f"{title} {doubt}"

    def _entries(self, observation: PyTree) -> Iterator[tuple[str, PyTree, Kind]]:
        if not isinstance(self._kinds, dict):
            yield "its observation", observation, self._kinds
            return
        for name, kind in self._kinds.items():
            given = observation.get(name) if isinstance(observation, dict) else None
            yield f"entry {name!r} of its observation", given, kind


def _doubt(seen: np.ndarray, kind: Kind) -> str | None:
    if np.issubdtype(seen.dtype, np.inexact) and not np.all(np.isfinite(seen)):
        return "is not finite"
    if isinstance(kind, Grid) and np.any(seen >= np.asarray(kind.symbols)):
        return f"has symbols beyond the {kind.symbols} of its channels"
    if isinstance(kind, Tokens) and np.any((seen < 0) | (seen >= kind.vocabulary)):
        return f"has words outside its vocabulary of {kind.vocabulary}"
    if seen.dtype != kind.dtype and np.issubdtype(kind.dtype, np.integer) and np.any(seen.astype(kind.dtype) != seen):
        return f"has numbers that are no {kind.dtype}"
    return None
