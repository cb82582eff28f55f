"""Where on the floor the agents went, and what they found curious there, over the time of training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.envs.base import Mapped
from byol_explore.files import write_atomically
from byol_explore.run.trackers import Tracker
from byol_explore.runtime.base import Steps

MOST_SLICES = 8  # of the time of training; when there are more, neighbours are joined
DIGITS = 4  # of a sum of rewards that are written
_FIELDS = ("visits", "intrinsic_reward")


class CuriosityMaps(Tracker):
    """Visits and intrinsic rewards per cell of each task's floor plan, in slices of training of equal length."""

    name = "maps"

    def __init__(self, tasks: Sequence[str], envs: Sequence[Any]) -> None:
        self.envs = dict(zip(tasks, envs, strict=True)) if all(isinstance(env, Mapped) for env in envs) else {}
        self._floors: dict[str, list[str]] = {}  # drawn once, when they are first written
        self._width = 1  # rollouts of a slice
        self._rollouts = 0  # in the last slice
        self._slices: list[dict[str, Any]] = []

    def add(self, steps: Steps, at: int) -> None:
        if not self.envs:
            return
        if not self._slices or self._rollouts == self._width:
            self._begin(at)
        self._rollouts += 1
        last = self._slices[-1]
        last["to"] = at + steps.task.size
        for index, (name, env) in enumerate(self.envs.items()):
            height, width = env.floor
            here = steps.task == index
            mine, worth = steps.places[here].astype(np.int64), steps.intrinsic_reward[here]
            cell, size = mine[:, 0] * width + mine[:, 1], height * width
            last["visits"][name] += np.bincount(cell, minlength=size)
            last["intrinsic_reward"][name] += np.bincount(cell, weights=worth, minlength=size)

    def _begin(self, start: int) -> None:
        if len(self._slices) == MOST_SLICES:
            pairs = zip(self._slices[::2], self._slices[1::2], strict=True)
            self._slices = [_joined(*pair) for pair in pairs]
            self._width *= 2
        empty = {name: np.zeros(env.floor[0] * env.floor[1]) for name, env in self.envs.items()}
        fields = {field: {name: zeros.copy() for name, zeros in empty.items()} for field in _FIELDS}
        self._slices.append({"from": start, "to": start, **fields})
        self._rollouts = 0

    def to_meta(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        slices = [
            {**part, **{field: {name: values.tolist() for name, values in part[field].items()} for field in _FIELDS}}
            for part in self._slices
        ]
        return {"width": self._width, "rollouts": self._rollouts, "slices": slices}

    def load_meta(self, meta: dict[str, Any]) -> None:
        self._width, self._rollouts = meta["width"], meta["rollouts"]
        self._slices = [
            {**part, **{field: {name: np.asarray(v, float) for name, v in part[field].items()} for field in _FIELDS}}
            for part in meta["slices"]
        ]

    def write(self, directory: Path) -> None:
        """maps.json, of environments that have a floor plan."""
        if self.envs:
            write_atomically(directory / "maps.json", json.dumps(self.to_file()) + "\n")

    def to_file(self) -> dict[str, Any]:
        """maps.json: floor plan and slices of each task; rewards are sums over the visits."""
        return {"tasks": {name: self._task(name, env) for name, env in self.envs.items()}}

    def _task(self, name: str, env: Any) -> dict[str, Any]:
        slices = [
            {
                "from": part["from"],
                "to": part["to"],
                "visits": part["visits"][name].astype(int).reshape(env.floor).tolist(),
                "intrinsic_reward": np.round(part["intrinsic_reward"][name], DIGITS).reshape(env.floor).tolist(),
            }
            for part in self._slices
        ]
        if name not in self._floors:
            self._floors[name] = env.floor_plan()
        return {"floor": self._floors[name], "slices": slices}


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two slices that follow each other, as one."""
    sums = {field: {name: first[field][name] + second[field][name] for name in first[field]} for field in _FIELDS}
    return {"from": first["from"], "to": second["to"], **sums}
