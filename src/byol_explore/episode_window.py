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

from byol_explore.runtime.base import Episodes
from byol_explore.success import SuccessRule, rate

FIGURES = ("success_rate", "return_mean", "episode_length")


class Episode(NamedTuple):
    """An episode that has ended. Steps are those of each environment: all of them step together."""

    began: int  # before which step
    env: int
    success: int  # 1, 0 or UNSAID
    episode_return: float
    length: int


class TaskWindow:
    """The last episodes of one task, by the time they began."""

    def __init__(self, size: int, envs: Sequence[int], max_steps: int) -> None:
        self.counted: deque[Episode] = deque(maxlen=size)
        self.waiting: list[Episode] = []  # until it is fair to count them
        self.running = dict.fromkeys(envs, 0)  # when the episode began that each environment is in
        self.max_steps = max_steps

    def end(self, episode: Episode) -> None:
        """An episode has ended; one step later the next begins."""
        self.waiting.append(episode)
        self.running[episode.env] = episode.began + episode.length + 1

    def count(self, now: int) -> None:
        """Count the episodes that began before any that still runs, and that all like them had the time to end.

        An episode that has run for longer than the environment says is possible is not waited for any more.
        """
        oldest = min((began for began in self.running.values() if now - began <= self.max_steps), default=now)
        longest = max((episode.length for episode in (*self.counted, *self.waiting)), default=0)
        end = min(oldest, now - longest + 1)
        self.counted.extend(sorted(episode for episode in self.waiting if episode.began < end))
        self.waiting = [episode for episode in self.waiting if episode.began >= end]

    def begin_anew(self, now: int) -> None:
        """All episodes that ran are lost; what waited for them will never be a fair sample and is lost too."""
        self.waiting = []
        self.running = dict.fromkeys(self.running, now)

    def figures(self) -> dict[str, float | None] | None:
        """Means over the window, None before the first episode is counted."""
        if not self.counted:
            return None
        _, _, success, value, length = np.asarray(self.counted).T
        return dict(zip(FIGURES, (rate(success), float(np.mean(value)), float(np.mean(length))), strict=True))


class EpisodeWindow:
    """The last episodes of each task: success, return and length, and the best return of any that ended."""

    def __init__(
        self, tasks: list[str], size: int, rules: Sequence[SuccessRule], max_steps: Sequence[int], num_envs: int
    ) -> None:
        self.tasks, self.rules = tasks, rules
        self.episodes = 0  # that have ended
        self.best_return: float | None = None
        self._now = 0  # steps of each environment
        self._windows = [
            TaskWindow(size, range(task, num_envs, len(tasks)), longest) for task, longest in enumerate(max_steps)
        ]

    def add(self, episodes: Episodes) -> None:
        """Episodes of a dispatch [..., E], in the order of time; environment i plays task i mod tasks."""
        ended, returns, lengths, told = (x.reshape(-1, x.shape[-1]) for x in episodes)
        tasks, successes = len(self.tasks), np.empty_like(told)
        for task, rule in enumerate(self.rules):
            successes[:, task::tasks] = rule.judge(returns[:, task::tasks], told[:, task::tasks])
        for step, env in np.argwhere(ended).tolist():
            value, length = float(returns[step, env]), int(lengths[step, env])
            began = self._now + step + 1 - length
            self._windows[env % tasks].end(Episode(began, env, int(successes[step, env]), value, length))
            self.episodes += 1
            self.best_return = value if self.best_return is None else max(self.best_return, value)
        self._now += len(ended)
        for window in self._windows:
            window.count(self._now)

    def begin_anew(self) -> None:
        """All environments have left their episodes and begin new ones."""
        for window in self._windows:
            window.begin_anew(self._now)

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
        if len(self.tasks) > 1:
            result["tasks"] = dict(zip(self.tasks, per_task, strict=True))
        return result

    def _figures(self) -> list[dict[str, float | None] | None]:
        return [window.figures() for window in self._windows]

    def to_meta(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        windows = [
            {
                "counted": [list(episode) for episode in window.counted],
                "waiting": [list(episode) for episode in window.waiting],
                "running": list(window.running.values()),
            }
            for window in self._windows
        ]
        return {"episodes": self.episodes, "best_return": self.best_return, "now": self._now, "windows": windows}

    def load_meta(self, meta: dict[str, Any]) -> None:
        self.episodes, self.best_return, self._now = meta["episodes"], meta["best_return"], meta["now"]
        for window, saved in zip(self._windows, meta["windows"], strict=True):
            window.counted.extend(Episode(*entry) for entry in saved["counted"])
            window.waiting = [Episode(*entry) for entry in saved["waiting"]]
            window.running = dict(zip(window.running, saved["running"], strict=True))


def _over_tasks(per_task: list[dict[str, float | None] | None], name: str) -> float | None:
    known = [figures[name] for figures in per_task if figures is not None]
    values = [value for value in known if value is not None]
    return float(np.mean(values)) if values and len(known) == len(per_task) else None
