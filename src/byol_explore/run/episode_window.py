"""The episodes that success and return are averaged over while a run goes on.

Episodes that have ended by some moment are not a fair sample: quick ones are among them, and slow ones that began at
the same time are not. Where success is quick and failure runs into the time limit, the first episodes to end are all
successes. So episodes are counted in the order in which they began, and one is counted only when all of its task that
began no later have ended too, and when it began as long ago as the longest of the last ones took: all that are counted
had the time to end, whatever became of them. Without the second condition the successes between two failures that
still run would be counted, and no failure among them.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from byol_explore.evaluation.success import SuccessRule, rate
from byol_explore.run.trackers import Tracker
from byol_explore.runtime.base import Steps

FIGURES = ("success_rate", "return_mean", "episode_length")


class Episode(NamedTuple):
    """An episode that has ended. Steps are those of its environment."""

    began: int  # before which step
    env: int
    success: int  # 1, 0 or UNSAID
    episode_return: float
    length: int
    reached: int = 0  # stages: the sum of 2^i over those that it has reached


class TaskWindow:
    """The last episodes of one task, by the time they began."""

    def __init__(self, size: int, max_steps: int, stages: tuple[str, ...] = ()) -> None:
        self.counted: deque[Episode] = deque(maxlen=size)
        self.waiting: list[Episode] = []  # until it is fair to count them
        self.running: dict[int, int] = {}  # when the episode began that each environment is in
        self.max_steps, self.stages = max_steps, stages

    def end(self, episode: Episode) -> None:
        """An episode has ended."""
        self.waiting.append(episode)
        self.running.pop(episode.env, None)

    def count(self, clocks: np.ndarray) -> None:
        """Count the episodes that began before any that still runs, and that all like them had the time to end.

        An episode that has run for longer than the environment says is possible is not waited for any more.
        """
        now = int(np.min(clocks))
        oldest = min(
            (began for env, began in self.running.items() if clocks[env] - began <= self.max_steps), default=now
        )
        longest = max((episode.length for episode in (*self.counted, *self.waiting)), default=0)
        end = min(oldest, now - longest + 1)
        self.counted.extend(sorted(episode for episode in self.waiting if episode.began < end))
        self.waiting = [episode for episode in self.waiting if episode.began >= end]

    def figures(self) -> dict[str, Any] | None:
        """Means over the window, and the share of its episodes that reached each stage; None while it is empty."""
        if not self.counted:
            return None
        _, _, success, value, length, reached = np.asarray(self.counted).T
        means = rate(success), float(np.mean(value)), float(np.mean(length))
        figures: dict[str, Any] = dict(zip(FIGURES, means, strict=True))
        if self.stages:
            shares = np.mean(reached.astype(np.int64)[:, None] >> np.arange(len(self.stages)) & 1, axis=0)
            figures["stages"] = dict(zip(self.stages, shares.tolist(), strict=True))
        return figures


class EpisodeWindow(Tracker):
    """The last episodes of each task: success, return, length and stages, and the best return of any that ended."""

    name = "episodes"

    def __init__(
        self, tasks: list[str], size: int, rules: Sequence[SuccessRule], max_steps: Sequence[int], num_envs: int,
        stages: Sequence[tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.tasks, self.rules = tasks, rules
        self.episodes = 0  # that have ended
        self.best_return: float | None = None
        self._clocks = np.zeros(num_envs, np.int64)  # steps of each environment
        self._starting = dict.fromkeys(range(num_envs), 0)  # when: episodes whose task is not known before their step
        stages = [()] * len(tasks) if stages is None else stages
        self._windows = [TaskWindow(size, *facts) for facts in zip(max_steps, stages, strict=True)]

    def add(self, steps: Steps, at: int) -> None:
        """The steps of some environments, which may be further than others."""
        ended, returns, lengths, told = steps.episodes
        reached, successes = _as_numbers(steps), np.empty_like(told)
        for task, rule in enumerate(self.rules):
            successes = np.where(steps.task == task, rule.judge(returns, told), successes)
        for place, env in enumerate(steps.envs.tolist()):
            self._begin(env, int(steps.task[0, place]))
        for step, place in np.argwhere(ended).tolist():
            env, task = int(steps.envs[place]), int(steps.task[step, place])
            value, length = float(returns[step, place]), int(lengths[step, place])
            began = int(self._clocks[env]) + step + 1 - length
            outcome = int(successes[step, place]), value, length, int(reached[step, place])
            self._windows[task].end(Episode(began, env, *outcome))
            self._starting[env] = began + length + 1  # one step later the next begins
            if step + 1 < len(ended):
                self._begin(env, int(steps.task[step + 1, place]))
            self.episodes += 1
            self.best_return = value if self.best_return is None else max(self.best_return, value)
        self._clocks[steps.envs] += len(ended)
        for window in self._windows:
            window.count(self._clocks)

    def _begin(self, env: int, task: int) -> None:
        """The episode that was to start is one of this task."""
        if (began := self._starting.pop(env, None)) is not None:
            self._windows[task].running[env] = began

    def begin_anew(self) -> None:
        """All environments have left their episodes and begin new ones.

        What waited for those that ran will never be a fair sample and is lost too.
        """
        for window in self._windows:
            window.waiting, window.running = [], {}
        self._starting = {env: int(clock) for env, clock in enumerate(self._clocks)}

    def is_full(self) -> bool:
        """Whether every task has as many episodes as are averaged over."""
        return all(len(window.counted) == window.counted.maxlen for window in self._windows)

    def lowest_success(self) -> float | None:
        """Success of the task that succeeds least, None if it is not known of every task."""
        rates = [figures["success_rate"] for figures in self._figures() if figures is not None]
        known = [value for value in rates if value is not None]
        return min(known) if len(known) == len(self.tasks) else None

    def score(self) -> float | None:
        """One number for what is best: success, and among equals the return. None before anything is known."""
        summary = self.summary()
        if summary["return_mean"] is None:
            return None
        return (summary["success_rate"] or 0.0) + 1e-3 * summary["return_mean"]

    def without_threshold(self) -> list[str]:
        """Tasks in which no return is a success."""
        return [task for task, rule in zip(self.tasks, self.rules, strict=True) if math.isinf(rule.above)]

    def summary(self) -> dict[str, Any]:
        """Means over the window; over tasks, the mean of the tasks', None until each has an episode.

        Tasks whose success is not defined are left out of its mean.
        """
        per_task = self._figures()
        result: dict[str, Any] = {name: _over_tasks(per_task, name) for name in FIGURES}
        result |= {"best_return": self.best_return, "episodes": self.episodes}
        if any(window.stages for window in self._windows):
            result["stages"] = _stages_over_tasks(per_task)
        if len(self.tasks) > 1:
            result["tasks"] = dict(zip(self.tasks, per_task, strict=True))
        return result

    def _figures(self) -> list[dict[str, Any] | None]:
        return [window.figures() for window in self._windows]

    def to_meta(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        windows = [
            {
                "counted": [list(episode) for episode in window.counted],
                "waiting": [list(episode) for episode in window.waiting],
                "running": [list(pair) for pair in sorted(window.running.items())],
            }
            for window in self._windows
        ]
        return {
            "episodes": self.episodes,
            "best_return": self.best_return,
            "clocks": self._clocks.tolist(),
            "starting": [list(pair) for pair in sorted(self._starting.items())],
            "windows": windows,
        }

    def load_meta(self, meta: dict[str, Any]) -> None:
        self.episodes, self.best_return = meta["episodes"], meta["best_return"]
        self._clocks, self._starting = np.asarray(meta["clocks"], np.int64), dict(meta["starting"])
        for window, saved in zip(self._windows, meta["windows"], strict=True):
            window.counted.extend(Episode(*entry) for entry in saved["counted"])
            window.waiting = [Episode(*entry) for entry in saved["waiting"]]
            window.running = dict(saved["running"])


def _as_numbers(steps: Steps) -> np.ndarray:
    """[T, E] the stages of each step's episode so far, as an `Episode` has them; 0 where there are none."""
    if steps.reached is None:
        return np.zeros(steps.task.shape, np.int64)
    return steps.reached.astype(np.int64) @ (1 << np.arange(steps.reached.shape[-1]))


def _stages_over_tasks(per_task: list[dict[str, Any] | None]) -> dict[str, float] | None:
    """The mean share of each stage over the tasks that have it; None until every task has an episode."""
    shares: dict[str, list[float]] = {}
    for figures in per_task:
        if figures is None:
            return None
        for stage, share in figures.get("stages", {}).items():
            shares.setdefault(stage, []).append(share)
    return {stage: float(np.mean(values)) for stage, values in shares.items()}


def _over_tasks(per_task: list[dict[str, Any] | None], name: str) -> float | None:
    known = [figures[name] for figures in per_task if figures is not None]
    values = [value for value in known if value is not None]
    return float(np.mean(values)) if values and len(known) == len(per_task) else None
