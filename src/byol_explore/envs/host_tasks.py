"""Several tasks outside jit as one batch: each environment plays one task, or draws one for each episode."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from byol_explore.envs.host import HostBatch, HostEnvironment, Partial, reached_in
from byol_explore.trees import map_arrays
from byol_explore.types import Action, TimeStep

_APART = 1_000_003  # between the seeds of two tasks


class TaskBatch:
    """Several tasks as one batch; environment i plays task i mod tasks."""

    def __init__(self, envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> None:
        self.num_envs, self._count = num_envs, len(envs)
        self.task = np.arange(num_envs, dtype=np.int32) % len(envs)
        share = num_envs // len(envs)
        self._batches = _all_or_none(partial(env.batch, share, seed + _APART * i) for i, env in enumerate(envs))

    def reset(self) -> TimeStep:
        return self._gather([batch.reset() for batch in self._batches])

    def step(self, action: Action) -> TimeStep:
        parts = [map_arrays(lambda x, i=i: x[i :: self._count], action) for i in range(self._count)]
        return self._gather([batch.step(part) for batch, part in zip(self._batches, parts, strict=True)])

    def places(self) -> np.ndarray:
        return self._interleave(*_of_one_kind([batch.places() for batch in self._batches]))

    def reached(self) -> np.ndarray | None:
        reached = _filled_up([reached_in(batch) for batch in self._batches], self.num_envs // self._count)
        return None if reached is None else self._interleave(*reached)

    def render(self) -> np.ndarray:
        return self._batches[0].render()

    def close(self) -> None:
        _close(self._batches)

    def _gather(self, steps: list[TimeStep]) -> TimeStep:
        return map_arrays(self._interleave, *[step.with_success() for step in steps])

    def _interleave(self, *xs: np.ndarray) -> np.ndarray:
        return np.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])


class DrawnBatch:
    """A batch of environments, each of which draws its task uniformly at the beginning of each episode.

    Every environment has a world of every task, and only the one that it plays is stepped. A family whose batches can
    leave some of their environments out (`Partial`; Atari) steps the others together, at the price of a fixed
    assignment: 7% more for two games. All others are a batch each and stepped one after the other. That costs about a
    quarter of a millisecond more per environment and step (CartPole takes four to five times as long), and those with
    a process each do not work in parallel any more.
    """

    def __init__(self, envs: Sequence[HostEnvironment], num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self.task = np.zeros(num_envs, np.int32)
        self._random = np.random.default_rng(seed % 2**32)
        makers = (partial(_make_partial, env, num_envs, seed + _APART * i) for i, env in enumerate(envs))
        self._batches: list[Partial] = _all_or_none(makers)
        self._firsts: list[TimeStep] = []  # of each task: observations of episodes that begin there
        self._unplayed = np.zeros((len(envs), num_envs), bool)  # and whether such an episode is still to be played
        self._now: TimeStep | None = None

    def reset(self) -> TimeStep:
        self._firsts = [map_arrays(np.array, batch.reset().with_success()) for batch in self._batches]
        self._unplayed[:] = True
        self._now = map_arrays(np.copy, self._firsts[0])
        return self._answer(np.zeros(self.num_envs, bool), self._draw(np.ones(self.num_envs, bool)), None)

    def step(self, action: Action) -> TimeStep:
        assert self._now is not None
        waits = self._draw(self._now.is_last)
        return self._answer(~waits, waits, action)

    def _draw(self, ended: np.ndarray) -> np.ndarray:
        """New tasks where episodes have ended; a mask [E] of those whose new world stands at its beginning already."""
        drawn = self._random.integers(0, len(self._batches), self.num_envs, dtype=np.int32)
        self.task = np.where(ended, drawn, self.task)
        played = self.task, np.arange(self.num_envs)
        waits = ended & self._unplayed[played]
        self._unplayed[played] = False
        return waits

    def _answer(self, moving: np.ndarray, waits: np.ndarray, action: Action | None) -> TimeStep:
        """Of the worlds that move, what they answer; of those that have waited, their first observations."""
        now = self._now
        assert now is not None
        for index, (batch, firsts) in enumerate(zip(self._batches, self._firsts, strict=True)):
            mine = self.task == index
            if action is not None and np.any(moving & mine):
                _write(now, moving & mine, batch.step_some(action, moving & mine).with_success())
            _write(now, waits & mine, firsts)
        return now

    def places(self) -> np.ndarray:
        everywhere = np.stack(_of_one_kind([batch.places() for batch in self._batches]))
        return everywhere[self.task, np.arange(self.num_envs)]

    def reached(self) -> np.ndarray | None:
        reached = _filled_up([reached_in(batch) for batch in self._batches], self.num_envs)
        return None if reached is None else np.stack(reached)[self.task, np.arange(self.num_envs)]

    def render(self) -> np.ndarray:
        return self._batches[self.task[0]].render()

    def close(self) -> None:
        _close(self._batches)


class Singles:
    """Environments of a kind whose batches must be stepped whole: a batch each, stepped one after the other."""

    def __init__(self, first: HostBatch, env: HostEnvironment, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        seeds = np.random.SeedSequence(seed % 2**32).generate_state(num_envs)
        others = (partial(env.batch, 1, int(number)) for number in seeds[1:])
        self._batches: list[HostBatch] = _all_or_none([lambda: first, *others])
        self._now: TimeStep | None = None

    def reset(self) -> TimeStep:
        steps = [batch.reset().with_success() for batch in self._batches]
        now: TimeStep = map_arrays(lambda *xs: np.concatenate(xs), *steps)
        self._now = now
        return now

    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        assert self._now is not None
        for index in np.flatnonzero(moving):
            own = map_arrays(lambda x, i=index: x[i : i + 1], action)
            _write(self._now, slice(index, index + 1), self._batches[index].step(own).with_success(), slice(None))
        return self._now

    def places(self) -> np.ndarray:
        return np.concatenate([batch.places() for batch in self._batches])

    def reached(self) -> np.ndarray | None:
        reached = [each for batch in self._batches if (each := reached_in(batch)) is not None]
        return np.concatenate(reached) if reached else None

    def render(self) -> np.ndarray:
        return self._batches[0].render()

    def close(self) -> None:
        _close(self._batches)


def make_batch(envs: Sequence[HostEnvironment], num_envs: int, seed: int, tasks: str = "fixed") -> HostBatch:
    """A batch over one or several tasks, fixed or drawn."""
    if len(envs) == 1:
        return envs[0].batch(num_envs, seed)
    return (DrawnBatch if tasks == "drawn" else TaskBatch)(envs, num_envs, seed)


def tasks_of(batch: HostBatch) -> np.ndarray:
    """[E] int32: the task of the episode that each environment is in; a batch of one kind plays task 0."""
    return batch.task if isinstance(batch, TaskBatch | DrawnBatch) else np.zeros(batch.num_envs, np.int32)


def _make_partial(env: HostEnvironment, num_envs: int, seed: int) -> Partial:
    first = env.batch(1, seed)
    if not isinstance(first, Partial):
        return Singles(first, env, num_envs, seed)
    first.close()
    batch = env.batch(num_envs, seed)
    assert isinstance(batch, Partial)
    return batch


def _all_or_none(makers: Iterable[Callable[[], Any]]) -> list[Any]:
    """What they make; if one of them fails, what was made is closed."""
    made: list[Any] = []
    try:
        for maker in makers:
            made.append(maker())
    except BaseException:
        _close(made)
        raise
    return made


def _close(batches: Iterable[Any]) -> None:
    with contextlib.ExitStack() as stack:  # closes the others too if one cannot be closed
        for batch in batches:
            stack.callback(batch.close)


def _write(kept: TimeStep, where: np.ndarray | slice, new: TimeStep, of: np.ndarray | slice | None = None) -> None:
    """Overwrite environments of a time step with those of another."""

    def write(one: np.ndarray, other: np.ndarray) -> None:
        one[where] = np.asarray(other)[where if of is None else of]

    map_arrays(write, kept, new)


def _filled_up(reached: list[np.ndarray | None], num_envs: int) -> list[np.ndarray] | None:
    """With as many stages as the task has that has most; None if none has any."""
    most = max((each.shape[-1] for each in reached if each is not None), default=0)
    if most == 0:
        return None
    parts = [np.zeros((num_envs, 0), bool) if each is None else each for each in reached]
    return [np.pad(part, ((0, 0), (0, most - part.shape[-1]))) for part in parts]


def _of_one_kind(places: list[np.ndarray]) -> list[np.ndarray]:
    """Nowhere, unless all tasks name as many numbers."""
    if len({each.shape[-1] for each in places}) == 1:
        return places
    return [np.zeros((len(each), 0), each.dtype) for each in places]
