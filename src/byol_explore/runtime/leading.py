"""Process 0 leads, all others follow: whatever it does with the arrays of all is done in every process.

The loop of a run, its trackers, its log and its checkpoints are process 0's alone. The others have a runtime with their
share of the environments and hear, order by order, what is done next. No file is read or written by them.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.interrupts import Interrupts
from byol_explore.learner import Learner
from byol_explore.learner_state import Dials, LearnerState, turned
from byol_explore.runtime.base import DispatchOutput, Runtime
from byol_explore.runtime.processes import Processes
from byol_explore.settings.config import Config, flatten, from_dict, to_dict
from byol_explore.settings.trust import outside_code, require_consent
from byol_explore.versions import versions

_MUST_AGREE = ("byol-explore", "jax", "jaxlib")  # versions


class Leading:
    """The runtime of process 0, where others follow."""

    def __init__(self, runtime: Runtime, processes: Processes) -> None:
        self.runtime, self.processes = runtime, processes
        self.learner: Learner = runtime.learner

    def init(self, seed: int, *, restored: bool = False) -> Any:
        return self.place(self.fresh(seed, restored=restored))

    def fresh(self, seed: int, *, restored: bool = False) -> Any:
        return self.runtime.fresh(seed, restored=restored)

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        return self.runtime.init_learner(seed, restored=restored)

    def place(self, state: Any) -> Any:
        self._order("place")
        return self.runtime.place(self.processes.same(state))

    def dispatch(self, state: Any) -> tuple[Any, DispatchOutput]:
        """One dispatch everywhere; a signal that another process has received is told."""
        told = self._order("dispatch", dials=[float(dial) for dial in state.learner.dials])
        with self.processes.noticing():
            state, output = self.runtime.dispatch(state)
        signals = [each["signal"] for each in told[1:] if each["signal"] is not None]
        return state, output._replace(signal=signals[0] if signals else None)

    def gathered(self, state: Any) -> Any:
        self._order("gather")
        with self.processes.noticing():
            return jax.block_until_ready(self.runtime.gathered(state))

    def close(self) -> None:
        self.runtime.close()

    def _order(self, name: str, **more: Any) -> list[Any]:
        return self.processes.everybody({"order": name, **more})


class Follower:
    """What every other process does until it is dismissed."""

    def __init__(self, config: Config, runtime: Runtime, processes: Processes) -> None:
        self.runtime, self.processes = runtime, processes
        self.state = runtime.fresh(config.seed, restored=True)

    def go(self) -> dict[str, Any]:
        """The last order: how the run has ended."""
        with Interrupts() as interrupts, contextlib.closing(self.runtime):
            while True:
                order = self.processes.everybody({"signal": interrupts.received})[0]
                if order["order"] == "end":
                    return order
                with self.processes.noticing():
                    self._obey(order)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["order"] == "place":
            self.state = self.runtime.place(self.processes.same(self.state))
        elif order["order"] == "gather":
            jax.block_until_ready(self.runtime.gathered(self.state))
        else:
            self._turn(Dials(*order["dials"]))
            with contextlib.suppress(EnvironmentFailure):  # process 0 has heard of it, and decides
                self.state, _ = self.runtime.dispatch(self.state)

    def _turn(self, wanted: Dials) -> None:
        learner = self.state.learner
        if tuple(wanted) != tuple(float(dial) for dial in learner.dials):
            self.state = self.state._replace(learner=learner._replace(dials=turned(learner.dials, wanted._asdict())))


@contextlib.contextmanager
def dismissing(processes: Processes) -> Iterator[dict[str, Any]]:
    """Inside, process 0 leads; when it has done all, or is interrupted, the others are told to end.

    What is put into the dictionary is told to them too.
    """
    outcome: dict[str, Any] = {}
    try:
        yield outcome
    except Interrupts.Stopped as stopped:
        processes.everybody({"order": "end", "exit_code": stopped.exit_code, **outcome})
        raise
    processes.everybody({"order": "end", "exit_code": 0, **outcome})


def introduce(processes: Processes, config: Config, *, resume: bool) -> Config:
    """The configuration of process 0, when all have been found to fit together; else a UserError in all of them.

    A run that goes on has its configuration where its directory is, which may be on the host of process 0 alone: the
    others take it from there.
    """
    if processes.count == 1:
        return config
    facts = {"config": to_dict(config), "resume": resume, "devices": jax.local_device_count(), "versions": versions()}
    said = processes.everybody(facts)
    for index, other in enumerate(said):
        if different := _difference(said[0], other):
            raise UserError(f"process {index} does not fit process 0: {different}")
    if processes.index == 0 or not resume:
        return config
    first = dataclasses.replace(from_dict(said[0]["config"]), distributed=config.distributed)
    require_consent(outside_code(first), "the run that process 0 continues")
    return first


def _difference(first: dict[str, Any], other: dict[str, Any]) -> str | None:
    """What keeps two processes from learning together: the first that is found, in words."""
    for name in _MUST_AGREE:
        if (one := first["versions"].get(name)) != (two := other["versions"].get(name)):
            return f"its {name} is {two}, not {one}"
    if first["devices"] != other["devices"]:
        return f"it has {other['devices']} devices and process 0 has {first['devices']}: all must have equally many"
    if first["resume"] != other["resume"]:
        return "only one of them is to resume a run"
    if first["resume"]:
        return None
    one, two = flatten(first["config"]), flatten(other["config"])
    different = [name for name in one if one[name] != two[name] and name != "distributed.process"]
    return "; ".join(f"its {name} is {two[name]!r}, not {one[name]!r}" for name in different[:3]) or None
