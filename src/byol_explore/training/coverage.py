"""Room coverage and visit maps: where the agents of a run have been."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.envs.interface import EnvSpec
from byol_explore.runtime.base import RolloutStats
from byol_explore.training.callbacks import Callback
from byol_explore.utils.files import atomic_write

CELL_PIXELS = 8  # side of a cell: positions in one cell count as one place
_BASE = 256  # rooms and positions are bytes


class RoomCoverage(Callback):
    """Rooms and cells that any environment of a run has visited."""

    name = "coverage"

    def __init__(self, spec: EnvSpec) -> None:
        self.room_names, self.position_names, self.layout = spec.room_fields, spec.position_fields, spec.room_layout
        self.rooms: dict[tuple[int, ...], int] = {}  # room -> environment step of the first visit
        self.visits: dict[tuple[int, ...], int] = {}  # (room, position in cells) -> steps spent there

    def on_rollout(self, steps: RolloutStats, at: int) -> None:
        depth = len(self.room_names) + len(self.position_names)
        if depth == 0 or steps.positions.shape[-1] != depth:
            return
        cells = steps.positions.reshape(-1, depth).astype(np.int64)
        cells[:, len(self.room_names) :] //= CELL_PIXELS
        codes = cells @ (_BASE ** np.arange(depth))  # one integer per cell: np.unique of rows is much slower
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        for index, count in sorted(zip(first.tolist(), counts.tolist(), strict=True)):
            cell = tuple(cells[index].tolist())
            self.visits[cell] = self.visits.get(cell, 0) + count
            self.rooms.setdefault(cell[: len(self.room_names)], at + index)

    def metrics(self) -> dict[str, int]:
        """Return the numbers of rooms and cells, as far as the environment reports rooms and positions."""
        found = {"rooms_visited": len(self.rooms)} if self.room_names else {}
        return found | ({"cells_visited": len(self.visits)} if self.position_names else {})

    def state_dict(self) -> dict[str, Any]:
        """Return the contents of room_coverage.json, which are the whole state."""
        return {
            "rooms": [[*room, step] for room, step in self.rooms.items()],
            "room_names": list(self.room_names),
            "visits": [[*cell, count] for cell, count in self.visits.items()],
            "position_names": list(self.position_names),
            "cell": CELL_PIXELS,
            "layout": self.layout,
        }

    def on_checkpoint(self, directory: Path) -> None:
        """Write room_coverage.json once a room was visited, and rooms.png if the layout of the rooms is known."""
        if self.rooms:
            atomic_write(directory / "room_coverage.json", json.dumps(self.state_dict()) + "\n")
            if self.layout:
                from byol_explore.report.figures import draw_rooms  # with matplotlib, which takes a second

                atomic_write(directory / "rooms.png", draw_rooms(self.state_dict()))

    def load_state_dict(self, meta: dict[str, Any]) -> None:
        self.rooms = {tuple(room): step for *room, step in meta["rooms"]}
        self.visits = {tuple(cell): count for *cell, count in meta["visits"]}


MAX_SLICES = 8  # of training time; when they are full, neighbours are merged
DIGITS = 4  # decimal places of reward sums in visit_maps.json


class VisitMaps(Callback):
    """Visits and intrinsic rewards per cell of each task's floor plan, in equally long slices of training."""

    name = "maps"

    def __init__(self, tasks: Sequence[str], envs: Sequence[Any]) -> None:
        self.envs = dict(zip(tasks, envs, strict=True)) if all(env.floor_shape for env in envs) else {}
        self._shapes = np.asarray([env.floor_shape for env in self.envs.values()], np.int64).reshape(-1, 2)
        self._bounds = np.cumsum([0, *np.prod(self._shapes, axis=1)])  # of each task's cells
        self._slice_size = 1  # rollouts per slice
        self._rollouts = 0  # in the last slice
        self._slices: list[tuple[int, int]] = []  # first and last step
        self._sums = np.zeros((0, 2, self._bounds[-1]))  # [slices, 2, cells] visits and intrinsic rewards

    def on_rollout(self, steps: RolloutStats, at: int) -> None:
        if not self.envs:
            return
        if not self._slices or self._rollouts == self._slice_size:
            self._start_slice(at)
        self._rollouts += 1
        self._slices[-1] = self._slices[-1][0], at + steps.task_ids.size
        rows, columns = np.moveaxis(steps.positions.astype(np.int64), -1, 0)
        cells = (self._bounds[steps.task_ids] + rows * self._shapes[steps.task_ids, 1] + columns).ravel()
        visits, rewards = self._sums[-1]
        visits += np.bincount(cells, minlength=visits.size)
        rewards += np.bincount(cells, weights=steps.intrinsic_reward.ravel(), minlength=rewards.size)

    def _start_slice(self, start: int) -> None:
        if len(self._slices) == MAX_SLICES:
            pairs = zip(self._slices[::2], self._slices[1::2], strict=True)
            self._slices = [(first[0], second[1]) for first, second in pairs]
            self._sums = self._sums[::2] + self._sums[1::2]
            self._slice_size *= 2
        self._slices.append((start, start))
        self._sums = np.concatenate([self._sums, np.zeros((1, *self._sums.shape[1:]))])
        self._rollouts = 0

    def state_dict(self) -> dict[str, Any]:
        return {"slice_size": self._slice_size, "rollouts": self._rollouts, "slices": self._slices,
                "sums": self._sums.tolist()}  # fmt: skip

    def load_state_dict(self, meta: dict[str, Any]) -> None:
        self._slice_size, self._rollouts = meta["slice_size"], meta["rollouts"]
        self._slices = [(start, end) for start, end in meta["slices"]]
        self._sums = np.asarray(meta["sums"], float).reshape(len(self._slices), *self._sums.shape[1:])

    def on_checkpoint(self, directory: Path) -> None:
        """Write visit_maps.json, if the environments have a floor plan."""
        if self.envs:
            atomic_write(directory / "visit_maps.json", json.dumps(self.to_file()) + "\n")

    def to_file(self) -> dict[str, Any]:
        """Return visit_maps.json: floor plan and slices of each task; rewards are sums over the visits."""
        return {"tasks": {name: self._task_map(task) for task, name in enumerate(self.envs)}}

    def _task_map(self, task: int) -> dict[str, Any]:
        cells = self._sums[..., self._bounds[task] : self._bounds[task + 1]]
        maps = cells.reshape(len(cells), 2, *self._shapes[task])
        slices = [
            {"from": start, "to": end, "visits": visits.astype(int).tolist(),
             "intrinsic_reward": np.round(rewards, DIGITS).tolist()}
            for (start, end), (visits, rewards) in zip(self._slices, maps, strict=True)
        ]  # fmt: skip
        return {"floor": self._floors[task], "slices": slices}

    @functools.cached_property
    def _floors(self) -> list[list[str]]:
        return [env.floor_plan() for env in self.envs.values()]
