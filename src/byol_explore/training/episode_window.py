"""Window of episodes over which success and return are averaged during a run.

The episodes that have ended by some moment are a biased sample: short episodes are in it, and long ones that began at
the same time are not. If success is quick and failure runs into the time limit, the first episodes to end are all
successes. So an episode is counted only when both conditions hold:

1. every episode of its task that began no later has ended;
2. it began at least as many steps ago as the longest of the latest episodes took.

Then every counted episode had the time to end in success or failure. Without condition 2 the successes between two
running failures would be counted, and neither of the failures.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from byol_explore.evaluation.rollouts import SuccessRule, success_rate
from byol_explore.runtime.base import RolloutStats
from byol_explore.training.callbacks import Callback

STATS = ("success_rate", "return_mean", "episode_length")


class Episode(NamedTuple):
    """An episode that has ended. Episodes sort by their start, then by environment."""

    start_step: int  # steps of its environment before its first step
    env: int
    success: int  # 1, 0 or UNKNOWN_SUCCESS
    episode_return: float
    length: int
    stages_bitmask: int = 0  # sum of 2^i over the stages i that it reached


class TaskWindow:
    """The latest episodes of one task, ordered by their start."""

    def __init__(self, size: int, max_steps: int, stages: tuple[str, ...] = ()) -> None:
        self.counted: deque[Episode] = deque(maxlen=size)
        self.waiting: list[Episode] = []  # ended, but not counted yet
        self.running: dict[int, int] = {}  # env -> start step of its running episode
        self.max_steps, self.stages = max_steps, stages

    def on_episode_end(self, episode: Episode) -> None:
        self.waiting.append(episode)
        self.running.pop(episode.env, None)

    def update(self, env_steps: np.ndarray) -> None:
        """Count the waiting episodes that meet both conditions, given the steps `env_steps` [E] of all environments."""
        min_steps = int(np.min(env_steps))
        # An episode that runs for longer than `max_steps` would block the window for ever: do not wait for it.
        running = [start for env, start in self.running.items() if env_steps[env] - start <= self.max_steps]
        longest = max((episode.length for episode in (*self.counted, *self.waiting)), default=0)
        end = min(*running, min_steps, min_steps - longest + 1)
        self.counted.extend(sorted(episode for episode in self.waiting if episode.start_step < end))
        self.waiting = [episode for episode in self.waiting if episode.start_step >= end]

    def stats(self) -> dict[str, Any] | None:
        """Return means over the window and the share of episodes that reached each stage; None while it is empty."""
        if not self.counted:
            return None
        _, _, success, value, length, reached = np.asarray(self.counted).T
        means = success_rate(success), float(np.mean(value)), float(np.mean(length))
        stats: dict[str, Any] = dict(zip(STATS, means, strict=True))
        if self.stages:
            shares = np.mean(reached.astype(np.int64)[:, None] >> np.arange(len(self.stages)) & 1, axis=0)
            stats["stages"] = dict(zip(self.stages, shares.tolist(), strict=True))
        return stats


class EpisodeWindow(Callback):
    """Success, return, length and stages over the latest episodes of each task, and the best return of any episode.

    Args:
      tasks: names of the tasks.
      size: episodes per task that are averaged over.
      rules: success rule of each task.
      max_steps: step limit of each task's episodes.
      num_envs: number of environments, E.
      stages: stage names of each task; None if no task has stages.
    """

    name = "episodes"

    def __init__(
        self, tasks: list[str], size: int, rules: Sequence[SuccessRule], max_steps: Sequence[int], num_envs: int,
        stages: Sequence[tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.tasks, self.rules = tasks, rules
        self.episodes = 0  # ended episodes, counted or not
        self.episode_return_max: float | None = None
        self._env_steps = np.zeros(num_envs, np.int64)  # [E] steps of each environment
        # env -> start step of an episode whose task is unknown until its first step is seen
        self._starting = dict.fromkeys(range(num_envs), 0)
        limits = zip(max_steps, stages or [()] * len(tasks), strict=True)
        self._windows = [TaskWindow(size, limit, names) for limit, names in limits]

    def on_rollout(self, steps: RolloutStats, at: int) -> None:
        """Take in the steps of some environments; others may be ahead of them or behind."""
        ended, returns, lengths, reported = steps.episodes
        stages, successes = _stage_bitmasks(steps), np.empty_like(reported)
        for task, rule in enumerate(self.rules):
            successes = np.where(steps.task_ids == task, rule.classify(returns, reported), successes)
        for column, env in enumerate(steps.env_ids.tolist()):
            self._start_episode(env, int(steps.task_ids[0, column]))
        for step, column in np.argwhere(ended).tolist():
            env, task = int(steps.env_ids[column]), int(steps.task_ids[step, column])
            value, length = float(returns[step, column]), int(lengths[step, column])
            start = int(self._env_steps[env]) + step + 1 - length
            outcome = int(successes[step, column]), value, length, int(stages[step, column])
            self._windows[task].on_episode_end(Episode(start, env, *outcome))
            self._starting[env] = start + length + 1  # the step in between is the reset
            if step + 1 < len(ended):
                self._start_episode(env, int(steps.task_ids[step + 1, column]))
            self.episodes += 1
            self.episode_return_max = value if self.episode_return_max is None else max(self.episode_return_max, value)
        self._env_steps[steps.env_ids] += len(ended)
        for window in self._windows:
            window.update(self._env_steps)

    def _start_episode(self, env: int, task: int) -> None:
        if (start := self._starting.pop(env, None)) is not None:
            self._windows[task].running[env] = start

    def reset_running(self) -> None:
        """Start new episodes in all environments, as a resumed run does whose environments could not be saved."""
        # Running episodes never end now. Counting those that waited for them would be biased: drop both.
        for window in self._windows:
            window.waiting, window.running = [], {}
        self._starting = {env: int(steps) for env, steps in enumerate(self._env_steps)}

    def is_full(self) -> bool:
        """Return True if the window of every task is full."""
        return all(len(window.counted) == window.counted.maxlen for window in self._windows)

    def min_success(self) -> float | None:
        """Return the success rate of the worst task; None unless it is known of every task."""
        rates = [stats["success_rate"] for stats in self._task_stats() if stats is not None]
        known = [rate for rate in rates if rate is not None]
        return min(known) if len(known) == len(self.tasks) else None

    def score(self) -> tuple[float, float] | None:
        """Return the score of a checkpoint: success, then return. None before the first episode."""
        summary = self.metrics()
        if summary["return_mean"] is None:
            return None
        return summary["success_rate"] or 0.0, summary["return_mean"]

    def tasks_without_threshold(self) -> list[str]:
        """Return the tasks in which no return counts as a success."""
        return [task for task, rule in zip(self.tasks, self.rules, strict=True) if math.isinf(rule.threshold)]

    def metrics(self) -> dict[str, Any]:
        """Return means over the window, averaged over tasks; None until every task has an episode.

        Tasks without a defined success are left out of the mean success.
        """
        per_task = self._task_stats()
        known = [stats for stats in per_task if stats is not None]
        if len(known) < len(per_task):
            known = []
        result: dict[str, Any] = {name: _mean(stats[name] for stats in known) for name in STATS}
        result |= {"episode_return_max": self.episode_return_max, "num_episodes": self.episodes}
        if stages := dict.fromkeys(stage for window in self._windows for stage in window.stages):
            shares = {stage: _mean(stats.get("stages", {}).get(stage) for stats in known) for stage in stages}
            result["stages"] = shares if known else None
        if len(self.tasks) > 1:
            result["tasks"] = dict(zip(self.tasks, per_task, strict=True))
        return result

    def _task_stats(self) -> list[dict[str, Any] | None]:
        return [window.stats() for window in self._windows]

    def state_dict(self) -> dict[str, Any]:
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
            "episode_return_max": self.episode_return_max,
            "env_steps": self._env_steps.tolist(),
            "starting": [list(pair) for pair in sorted(self._starting.items())],
            "windows": windows,
        }

    def load_state_dict(self, meta: dict[str, Any]) -> None:
        self.episodes, self.episode_return_max = meta["episodes"], meta["episode_return_max"]
        self._env_steps, self._starting = np.asarray(meta["env_steps"], np.int64), dict(meta["starting"])
        for window, saved in zip(self._windows, meta["windows"], strict=True):
            window.counted.extend(Episode(*entry) for entry in saved["counted"])
            window.waiting = [Episode(*entry) for entry in saved["waiting"]]
            window.running = dict(saved["running"])


def _stage_bitmasks(steps: RolloutStats) -> np.ndarray:
    """Return [T-1, E] the stages that each step's episode has reached so far, as `Episode.stages_bitmask`."""
    if steps.stages_reached is None:
        return np.zeros(steps.task_ids.shape, np.int64)
    return steps.stages_reached.astype(np.int64) @ (1 << np.arange(steps.stages_reached.shape[-1]))


def _mean(values: Iterable[float | None]) -> float | None:
    """Average the known values; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
