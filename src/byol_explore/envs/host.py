"""The protocol of environments outside jit: a batch is stepped at once, arrays are NumPy's.

Episodes follow the same convention as inside jit (see `envs/base.py`): the last observation of an episode stays in
the stream, the action after it is ignored, and the answer is the first observation of the next episode.
"""

import contextlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np

from byol_explore.envs.base import Environment, EnvSpec
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
        success: np.ndarray | None = None,
    ) -> TimeStep:  # fmt: skip
        """After a step; the one that follows an episode's last observation has no reward and no end.

        `success` [E] is what the environments say of it; it counts at the end of an episode.
        """
        is_first, terminated, truncated = self._is_last, np.asarray(terminated, bool), np.asarray(truncated, bool)
        self._is_last = (terminated | truncated) & ~is_first
        return TimeStep(
            observation,
            np.where(is_first, 0.0, reward).astype(np.float32),
            np.where(terminated & ~is_first, 0.0, 1.0).astype(np.float32),
            is_first,
            self._is_last,
            np.where(self._is_last, UNSAID if success is None else success, UNSAID).astype(np.int8),
        )


class TaskBatch:
    """Several tasks as one batch; environment i plays task i mod tasks."""

    def __init__(self, envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> None:
        self.num_envs, self._count = num_envs, len(envs)
        self._batches: list[HostBatch] = []
        try:
            for index, env in enumerate(envs):
                self._batches.append(env.batch(num_envs // len(envs), seed + 1_000_003 * index))
        except BaseException:
            self.close()
            raise

    def reset(self) -> TimeStep:
        return self._gather([batch.reset() for batch in self._batches])

    def step(self, action: Action) -> TimeStep:
        parts = [jax.tree.map(lambda x, i=i: x[i :: self._count], action) for i in range(self._count)]
        return self._gather([batch.step(part) for batch, part in zip(self._batches, parts, strict=True)])

    def places(self) -> np.ndarray:
        return self._interleave(*[batch.places() for batch in self._batches])

    def render(self) -> np.ndarray:
        return self._batches[0].render()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # closes the others too if one cannot be closed
            for batch in self._batches:
                stack.callback(batch.close)

    def _gather(self, steps: list[TimeStep]) -> TimeStep:
        return jax.tree.map(self._interleave, *[step.with_success() for step in steps])

    def _interleave(self, *xs: np.ndarray) -> np.ndarray:
        return np.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])


def make_batch(envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> HostBatch:
    """A batch over one or several tasks, evenly split."""
    return envs[0].batch(num_envs, seed) if len(envs) == 1 else TaskBatch(envs, num_envs, seed)
