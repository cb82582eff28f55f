"""What watches a run: trackers hear of everything that happens, and may say something about it in every log line.

A run has a list of them: success and returns, what curiosity pays, rooms, maps, evaluations. Those that a user gives to
`train(config, callbacks=[...])` are no different.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.config import Config
from byol_explore.networks.assembly import Actor
from byol_explore.types import AnyArray


class Episodes(NamedTuple):
    """What happened at each step; entries count where `ended` is true."""

    ended: AnyArray  # [..., E]
    episode_return: AnyArray  # [..., E]
    length: AnyArray  # [..., E]
    success: AnyArray  # [..., E] 1 or 0 as the environment says, UNSAID where the return must tell


class Steps(NamedTuple):
    """The steps of a rollout, beside what was learned from them. Rollouts may come in any order."""

    envs: np.ndarray  # [E] which environments, by their numbers
    task: np.ndarray  # [T-1, E] of the episode that each step belongs to
    episodes: Episodes  # [T-1, E]
    places: np.ndarray  # [T-1, E, P] where the steps led, P = 0 where nobody knows
    intrinsic_reward: np.ndarray  # [T-1, E] what curiosity paid for it, normalised


class Progress:
    """Where a run stands after a dispatch, and what a callback can do about it."""

    def __init__(self, config: Config, say: Callable[[str], None], is_interrupted: Callable[[], bool]) -> None:
        self.config, self.say, self.is_interrupted = config, say, is_interrupted
        self.before = self.steps = 0  # environment steps before and after the dispatch
        self.metrics: dict[str, np.ndarray] = {}  # of each learner step of the dispatch, [updates, ...]
        self.actor: Actor | None = None  # the policy that acts
        self.wants_stop = False

    def crossed(self, interval: int) -> bool:
        """Whether a multiple of so many environment steps was passed by the dispatch; never of 0."""
        return interval > 0 and self.before // interval != self.steps // interval

    def stop(self) -> None:
        """End the run here, as if all its steps were done."""
        self.wants_stop = True


class Tracker:
    """Does nothing; a tracker overrides what it is interested in."""

    name: str = ""  # under which it is saved in checkpoints; without one nothing is saved

    def add(self, steps: Steps, at: int) -> None:
        """A rollout has been learned from; `at` is the number of environment steps before it."""

    def after(self, progress: Progress) -> None:
        """A dispatch is done."""

    def summary(self) -> dict[str, Any]:
        """For a line of metrics and for summary.json."""
        return {}

    def log(self, row: dict[str, Any]) -> None:
        """A line of metrics has been written."""

    def write(self, directory: Path) -> None:
        """Files of its own in the run directory, written with every checkpoint."""

    def to_meta(self) -> Any:
        """All that it knows as plain data, for a checkpoint."""
        return None

    def load_meta(self, meta: Any) -> None:
        """What `to_meta` gave."""
