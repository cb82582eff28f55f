"""What happened to actors that may die and live again, counted over a whole run and all its sessions."""

from collections import Counter
from typing import Any

from byol_explore.run.trackers import Progress, Tracker


class Mishaps(Tracker):
    """Faults of actors, restarts, sequences that were dropped; nothing where actors are threads."""

    name = "mishaps"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def after(self, progress: Progress) -> None:
        self.counts.update(progress.counts)

    def summary(self) -> dict[str, Any]:
        return dict(self.counts)

    def to_meta(self) -> dict[str, int]:
        """As plain data, for a checkpoint."""
        return dict(self.counts)

    def load_meta(self, meta: dict[str, int]) -> None:
        self.counts = Counter(meta)
