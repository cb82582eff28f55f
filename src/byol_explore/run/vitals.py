"""Signs of life of a curiosity, logged from the first line of a run.

Spread of the embeddings and distance of the target are the learner's own. Here are those that need
more than one batch: how errors grow with the horizon, and in how much of the run curiosity paid anything.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from byol_explore.run.trackers import Progress, Tracker
from byol_explore.settings.config import Config
from byol_explore.settings.methods import is_paid

# A reward in units of its own deviation, clipped at its mean, is 0.4 on average if it is normal (and was 0.3 to 0.4 in
# all clipped runs once their statistics fitted). A tenth of it is what a deviation leaves that is ten times too large.
LEAST_PAID = 0.04


def error_growth(errors: Sequence[float]) -> float | None:
    """Error of the longest prediction over that of the shortest; None where there are not two.

    A world model that knows something is less certain about what is further away. Embeddings that have collapsed are
    as easy to predict at every horizon. An error of exactly 0 is that of a horizon for which episodes are too short.
    """
    known = [error for error in errors if error > 0.0]
    return known[-1] / known[0] if len(known) > 1 else None


class Payments(Tracker):
    """The share of a run's learner steps in which curiosity pays.

    A learner step pays if the intrinsic rewards of its batch, on the scale on which they are given but before they are
    mixed with the task's, are at least `LEAST_PAID` on average over the tasks. The number of transitions that are paid
    at all would not do: while the running deviation is far too large, several percent can be paid next to nothing.
    """

    name = "payments"

    def __init__(self, config: Config) -> None:
        self.is_used = is_paid(config)
        self.steps = self.paid = 0

    def after(self, progress: Progress) -> None:
        paid_reward = progress.metrics["paid_reward"]  # [updates, tasks]
        self.steps += len(paid_reward)
        self.paid += int(np.sum(np.mean(paid_reward, axis=1) >= LEAST_PAID))

    def summary(self) -> dict[str, float]:
        """Nothing where nobody is to be paid."""
        return {"paying_share": self.paid / self.steps} if self.is_used and self.steps else {}

    def to_meta(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        return {"steps": self.steps, "paid": self.paid}

    def load_meta(self, meta: dict[str, Any]) -> None:
        self.steps, self.paid = meta["steps"], meta["paid"]
