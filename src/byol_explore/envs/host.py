"""The protocol of environments outside jit: a batch is stepped at once, arrays are NumPy's.

Episodes follow the same convention as inside jit (see `envs/base.py`): the last observation of an episode stays in
the stream, the action after it is ignored, and the answer is the first observation of the next episode.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from byol_explore.envs.protocols import Environment, EnvSpec
from byol_explore.types import UNSAID, Action, PyTree, TimeStep


class HostBatch(Protocol):
    """Environments that are stepped together."""

    num_envs: int

    def reset(self) -> TimeStep:
        """First observations of new episodes; arrays may be overwritten by the next call."""
        ...

    def step(self, action: Action) -> TimeStep: ...

    def places(self) -> np.ndarray:
        """[E, P] where each agent is: the numbers that `spec.rooms` and then `spec.position` name."""
        ...

    def render(self) -> np.ndarray:
        """An RGB picture [H, W, 3] uint8 of environment 0."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HostEnvironment(Protocol):
    """A kind of world outside jit."""

    @property
    def spec(self) -> EnvSpec: ...
    def batch(self, num_envs: int, seed: int) -> HostBatch:
        """Start environments; the caller closes them."""
        ...


AnyEnvironment = Environment | HostEnvironment


@runtime_checkable
class StagedBatch(Protocol):
    """A batch of an environment whose episodes have stages; the names of these are its `stages`, as inside jit."""

    def reached(self) -> np.ndarray | None:
        """[E, stages] bool, which of them each episode has reached; None where there are none after all."""
        ...


def reached_in(batch: "HostBatch | Partial") -> np.ndarray | None:
    """[E, stages] bool, of a batch that knows: a `StagedBatch`, which is asked at every step and must be found fast."""
    reached = getattr(batch, "reached", None)
    return None if reached is None else reached()


class Boundaries:
    """Makes time steps of what Gymnasium's vector environments answer in their NEXT_STEP mode."""

    def __init__(self, num_envs: int) -> None:
        self._is_last = np.zeros(num_envs, bool)

    def first(self, observation: PyTree) -> TimeStep:
        """After a reset of all environments."""
        zeros = np.zeros(self._is_last.shape, np.float32)
        self._is_last = np.zeros_like(self._is_last)
        return TimeStep(observation, zeros, zeros + 1.0, ~self._is_last, self._is_last).with_success()

    def next(
        self, observation: PyTree, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        success: np.ndarray | None = None, moving: np.ndarray | None = None,
    ) -> TimeStep:  # fmt: skip
        """After a step; the one that follows an episode's last observation has no reward and no end.

        `success` [E] is what the environments say of it; it counts at the end of an episode. Environments outside the
        mask `moving` [E] have not been stepped: where they are is remembered, what is said of them means nothing.
        """
        before, terminated, truncated = self._is_last, np.asarray(terminated, bool), np.asarray(truncated, bool)
        is_first, is_last = before, (terminated | truncated) & ~before
        self._is_last = is_last if moving is None else np.where(moving, is_last, before)
        return TimeStep(
            observation,
            np.where(is_first, 0.0, reward).astype(np.float32),
            np.where(terminated & ~is_first, 0.0, 1.0).astype(np.float32),
            is_first,
            is_last,
            np.where(is_last, UNSAID if success is None else success, UNSAID).astype(np.int8),
        )


@runtime_checkable
class Partial(Protocol):
    """Environments of which some can be stepped while the others stand still."""

    num_envs: int

    def reset(self) -> TimeStep: ...
    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        """A step of those in the mask [E]; what the answer says of the others means nothing."""
        ...

    def places(self) -> np.ndarray: ...
    def render(self) -> np.ndarray: ...
    def close(self) -> None: ...
