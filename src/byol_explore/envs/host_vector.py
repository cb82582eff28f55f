"""Vector environments outside jit: several environments with fixed or random tasks in one batch; NEXT_STEP time steps.

Imports no JAX: processes that only step environments use this.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from byol_explore.envs.interface import HostEnvironment, HostVectorEnv
from byol_explore.types import UNKNOWN_SUCCESS, Action, AnyArray, PyTree, TimeStep, numpy_tree_map

_SEED_STRIDE = 1_000_003  # between the seeds of two tasks


class FixedTaskBatch(HostVectorEnv):
    """Several tasks as one batch; element i plays task i mod tasks."""

    def __init__(self, envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> None:
        self.num_envs, self._count = num_envs, len(envs)
        share = num_envs // len(envs)
        self._batches: list[HostVectorEnv] = _make_all(
            partial(env.make_vector_env, share, seed + _SEED_STRIDE * i) for i, env in enumerate(envs)
        )

    def reset(self) -> TimeStep:
        return self._gather([batch.reset() for batch in self._batches])

    def step(self, action: Action) -> TimeStep:
        parts = [numpy_tree_map(lambda x, i=i: x[i :: self._count], action) for i in range(self._count)]
        return self._gather([batch.step(part) for batch, part in zip(self._batches, parts, strict=True)])

    def task_ids(self) -> np.ndarray:
        return np.arange(self.num_envs, dtype=np.int32) % self._count

    def positions(self) -> np.ndarray:
        positions = stack_positions([batch.positions() for batch in self._batches], np)
        return positions.reshape(self.num_envs, positions.shape[-1])

    def stages_reached(self) -> np.ndarray | None:
        reached = stack_stages([batch.stages_reached() for batch in self._batches], np)
        return None if reached is None else reached.reshape(self.num_envs, reached.shape[-1])

    def render(self) -> np.ndarray:
        return self._batches[0].render()

    def close(self) -> None:
        _close_all(self._batches)

    def _gather(self, steps: list[TimeStep]) -> TimeStep:
        def interleave(*xs: np.ndarray) -> np.ndarray:
            return np.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])

        return numpy_tree_map(interleave, *steps)


class TaskSwitch(HostVectorEnv):
    """A batch in which each element draws its task uniformly at the start of each episode.

    Every element has an environment of every task and steps the one that it plays. Elements are stepped one after the
    other: a quarter of a millisecond more per element and step, and no parallel processes.
    """

    def __init__(self, envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self._random = np.random.default_rng(seed % 2**32)
        seeds = self._random.integers(0, 2**31, (num_envs, len(envs))).tolist()
        made = _make_all(
            partial(env.make_vector_env, 1, each) for row in seeds for env, each in zip(envs, row, strict=True)
        )
        self._batches = [made[i * len(envs) : (i + 1) * len(envs)] for i in range(num_envs)]
        self._has_started = np.zeros((num_envs, len(envs)), bool)
        self._task, self._is_last = np.zeros(num_envs, np.int32), np.ones(num_envs, bool)
        num_positions = {len(env.spec.room_fields) + len(env.spec.position_fields) for env in envs}
        self._num_positions = num_positions.pop() if len(num_positions) == 1 else 0
        self._num_stages = max(len(env.stages) for env in envs)

    def reset(self) -> TimeStep:
        self._has_started[:], self._is_last = False, np.ones(self.num_envs, bool)
        return self.step(None)

    def step(self, action: Action | None) -> TimeStep:
        drawn = self._random.integers(0, self._has_started.shape[1], self.num_envs, dtype=np.int32)
        self._task = np.where(self._is_last, drawn, self._task)
        steps = []
        for index, batch in enumerate(self._current()):
            if action is not None and self._has_started[index, self._task[index]]:
                steps.append(batch.step(numpy_tree_map(lambda x, i=index: x[i : i + 1], action)))
            else:
                steps.append(batch.reset())
        self._has_started[np.arange(self.num_envs), self._task] = True
        timestep = numpy_tree_map(lambda *xs: np.concatenate(xs), *steps)
        self._is_last = timestep.is_last
        return timestep

    def task_ids(self) -> np.ndarray:
        return self._task

    def positions(self) -> np.ndarray:
        return np.concatenate([batch.positions()[:, : self._num_positions] for batch in self._current()])

    def stages_reached(self) -> np.ndarray | None:
        if self._num_stages == 0:
            return None
        reached = np.zeros((self.num_envs, self._num_stages), bool)  # a task never reaches the stages of others
        for row, batch in zip(reached, self._current(), strict=True):
            own = batch.stages_reached()
            if own is not None:
                row[: own.shape[1]] = own[0]
        return reached

    def render(self) -> np.ndarray:
        return self._current()[0].render()

    def close(self) -> None:
        _close_all(batch for batches in self._batches for batch in batches)

    def _current(self) -> list[HostVectorEnv]:
        return [batches[task] for batches, task in zip(self._batches, self._task, strict=True)]


def make_host_vector_env(
    envs: Sequence[HostEnvironment], num_envs: int, seed: int, tasks: str = "fixed"
) -> HostVectorEnv:
    """Start a batch over one or several environments.

    Args:
      envs: with equal observation and action spaces.
      num_envs: elements of the batch; with "fixed" tasks a multiple of the number of environments.
      seed: of the whole batch.
      tasks: "fixed" or "random", see `Config.task_sampling`.
    """
    if len(envs) == 1:
        return envs[0].make_vector_env(num_envs, seed)
    if tasks == "random":
        return envs[0].make_random_task_env(envs[1:], num_envs, seed) or TaskSwitch(envs, num_envs, seed)
    return FixedTaskBatch(envs, num_envs, seed)


def stack_positions(positions: Sequence[AnyArray], xp: Any) -> AnyArray:
    """Stack positions [E, P] of several tasks to [E, tasks, P]; [E, tasks, 0] if they differ in P.

    `xp` is the array namespace, NumPy or jax.numpy.
    """
    if len({each.shape[-1] for each in positions}) > 1:
        positions = [each[:, :0] for each in positions]
    return xp.stack(positions, axis=1)


def stack_stages(reached: Sequence[AnyArray | None], xp: Any) -> AnyArray | None:
    """Stack stage masks [E, J] of several tasks to [E, tasks, J]; J is the most stages that a task has.

    Pads with False: a task never reaches the stages of others. None if no task has stages.
    """
    known = [each for each in reached if each is not None]
    size = max((each.shape[-1] for each in known), default=0)
    if size == 0:
        return None
    parts = [known[0][:, :0] if each is None else each for each in reached]
    return xp.stack([xp.pad(part, ((0, 0), (0, size - part.shape[-1]))) for part in parts], axis=1)


def _make_all(makers: Iterable[Callable[[], Any]]) -> list[Any]:
    """Call all makers; if one fails, close what the others made."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(contextlib.closing(maker())) for maker in makers]
        stack.pop_all()  # closes nothing if all were made
    return made


def _close_all(batches: Iterable[Any]) -> None:
    with contextlib.ExitStack() as stack:  # closes the others too if one raises
        for batch in batches:
            stack.callback(batch.close)


class TimeStepBuilder:
    """Makes time steps from the results of Gymnasium's vector environments in NEXT_STEP mode."""

    def __init__(self, num_envs: int) -> None:
        self._is_last = np.zeros(num_envs, bool)

    def on_reset(self, observation: PyTree) -> TimeStep:
        """Build the time step after a reset of all environments."""
        zeros = np.zeros_like(self._is_last)
        self._is_last = ~zeros  # as after the end of an episode
        return self.on_step(observation, zeros, zeros, zeros)

    def on_step(
        self, observation: PyTree, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        success: np.ndarray | None = None, restarted: np.ndarray | None = None,
    ) -> TimeStep:  # fmt: skip
        """Build the time step after a step; the step after the end of an episode has no reward and no end.

        Args:
          observation: tree of [E, ...].
          reward: [E].
          terminated: [E].
          truncated: [E].
          success: [E] 1, 0 or UNKNOWN_SUCCESS; used where episodes end.
          restarted: [E] environments that were restarted after a fault: this step is the first of an episode, so that
            the transition to it is masked, and their last episode has no end and is not counted.
        """
        if restarted is not None:
            self._is_last = self._is_last | restarted
        is_first, terminated, truncated = self._is_last, np.asarray(terminated, bool), np.asarray(truncated, bool)
        self._is_last = is_last = (terminated | truncated) & ~is_first
        return TimeStep(
            observation,
            np.where(is_first, 0.0, reward).astype(np.float32),
            np.where(terminated & ~is_first, 0.0, 1.0).astype(np.float32),
            is_first,
            is_last,
            np.where(is_last, UNKNOWN_SUCCESS if success is None else success, UNKNOWN_SUCCESS).astype(np.int8),
        )
