"""What watches a run: trackers hear of everything that happens, and may say something about it in every log line.

A run has a list of them: success and returns, what curiosity pays, rooms, maps, evaluations. Those that a user gives to
`train(config, callbacks=[...])` are no different.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.learner_state import check_dials
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.base import Steps
from byol_explore.settings.config import Config


class Progress:
    """Where a run stands after a dispatch, and what a callback can do about it."""

    def __init__(self, config: Config, say: Callable[[str], None], is_interrupted: Callable[[], bool]) -> None:
        self.config, self.say, self.is_interrupted = config, say, is_interrupted
        self.before = self.steps = 0  # environment steps before and after the dispatch
        self.metrics: dict[str, np.ndarray] = {}  # of each learner step of the dispatch, [updates, ...]
        self.counts: Mapping[str, int] = {}  # of what happened to actors in the dispatch
        self.actor: Actor | None = None  # the policy that acts
        self.dials: dict[str, float] = {}  # settings that can be turned, as they stand
        self.turned: dict[str, float] = {}  # those that somebody has turned since the dispatch
        self.wants_stop = False

    def crossed(self, interval: int) -> bool:
        """Whether a multiple of so many environment steps was passed by the dispatch; never of 0."""
        return interval > 0 and self.before // interval != self.steps // interval

    def turn(self, **dials: float) -> None:
        """Change settings from the next dispatch on, such as `turn(mixing=0.05)`; they are logged and saved."""
        self.turned.update(check_dials(self.config, dials))

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
