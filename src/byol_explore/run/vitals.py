"""Signs of life of a curiosity, logged from the first line of a run.

Spread of the embeddings and distance of the target are the learner's own. Here is what needs more than one batch: in
how much of the run curiosity paid anything.
"""

from typing import Any

import numpy as np

from byol_explore.curiosity.vitals import LEAST_PAID
from byol_explore.run.trackers import Progress, Tracker
from byol_explore.settings.config import Config
from byol_explore.settings.methods import is_paid


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
