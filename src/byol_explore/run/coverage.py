"""Where a run has been: rooms found over its lifetime, and how often each place in them was visited."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.files import write_atomically
from byol_explore.run.trackers import Tracker
from byol_explore.runtime.base import Steps

CELL = 8  # pixels; positions closer than this count as one place
_BASE = 256  # every number of a place is a byte


class Coverage(Tracker):
    """The union over all environments and episodes of a training run."""

    name = "coverage"

    def __init__(self, spec: EnvSpec) -> None:
        self.room_names, self.position_names = spec.rooms, spec.position
        self.rooms: dict[tuple[int, ...], int] = {}  # environment step at which each was first entered
        self.visits: dict[tuple[int, ...], int] = {}  # steps spent in each cell: room and position

    def add(self, steps: Steps, at: int) -> None:
        depth = len(self.room_names) + len(self.position_names)
        if depth == 0 or steps.places.shape[-1] != depth:
            return
        cells = steps.places.reshape(-1, depth).astype(np.int64)
        cells[:, len(self.room_names) :] //= CELL
        codes = cells @ (_BASE ** np.arange(depth))
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        for index, count in sorted(zip(first.tolist(), counts.tolist(), strict=True)):
            cell = tuple(cells[index].tolist())
            self.visits[cell] = self.visits.get(cell, 0) + count
            self.rooms.setdefault(cell[: len(self.room_names)], at + index)

    def summary(self) -> dict[str, int]:
        """For a line of metrics; nothing for environments that do not know their rooms."""
        found = {"rooms_found": len(self.rooms)} if self.room_names else {}
        return found | ({"cells_found": len(self.visits)} if self.position_names else {})

    def to_meta(self) -> dict[str, Any]:
        """As plain data, for a checkpoint and for coverage.json."""
        return {
            "rooms": [[*room, step] for room, step in self.rooms.items()],
            "room_names": list(self.room_names),
            "visits": [[*cell, count] for cell, count in self.visits.items()],
            "position_names": list(self.position_names),
            "cell": CELL,
        }

    def write(self, directory: Path) -> None:
        """coverage.json, of environments that know their rooms."""
        if self.rooms:
            write_atomically(directory / "coverage.json", json.dumps(self.to_meta()) + "\n")

    def load_meta(self, meta: dict[str, Any]) -> None:
        self.rooms = {tuple(room): step for *room, step in meta["rooms"]}
        self.visits = {tuple(cell): count for *cell, count in meta["visits"]}
