"""Process 0 leads, the others follow: every computation over the devices of all must run in every process.

The training loop, its callbacks, log and checkpoints belong to process 0. The other processes have a runtime with their
share of the environments. They write no file; a `Follower` receives one command after the other and runs it.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Hyperparams, LearnerState, with_hyperparams
from byol_explore.config.config import Config, external_code, from_dict, to_dict
from byol_explore.config.overrides import flatten
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.registry import require_consent
from byol_explore.runtime.base import DispatchOutput, Runtime
from byol_explore.runtime.distributed import ProcessGroup
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.packages import versions

_MUST_AGREE = ("byol-explore", "jax", "jaxlib")  # versions


class LeaderRuntime(Runtime):
    """The runtime of process 0: sends a command to the followers before each computation over all devices."""

    def __init__(self, runtime: Runtime, processes: ProcessGroup) -> None:
        self.runtime, self.processes = runtime, processes
        self.learner: Learner = runtime.learner

    def init_on_host(self, seed: int, *, restored: bool = False) -> Any:
        return self.runtime.init_on_host(seed, restored=restored)

    def state_shapes(self) -> Any:
        return self.runtime.state_shapes()

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        return self.runtime.init_learner(seed, restored=restored)

    def shard(self, state: Any) -> Any:
        self._send("shard")
        return self.runtime.shard(self.processes.broadcast(state))

    def dispatch(self, state: Any) -> tuple[Any, DispatchOutput]:
        """Dispatch in all processes; the output has the signal that another process has received."""
        # Callbacks run in process 0 alone and may have changed hyperparameters: the followers need the same.
        replies = self._send("dispatch", hyperparams=[float(value) for value in state.learner.hyperparams])
        with self.processes.peer_errors():
            state, output = self.runtime.dispatch(state)
        signals = [reply["signal"] for reply in replies[1:] if reply["signal"] is not None]
        return state, output._replace(signal=signals[0] if signals else None)

    def gather(self, state: Any) -> Any:
        self._send("gather")
        with self.processes.peer_errors():
            return jax.block_until_ready(self.runtime.gather(state))

    def close(self) -> None:
        self.runtime.close()

    def _send(self, command: str, **arguments: Any) -> list[Any]:
        return self.processes.all_gather_objects({"command": command, **arguments})


class Follower:
    """Runs the commands of process 0 in another process."""

    def __init__(self, config: Config, runtime: Runtime, processes: ProcessGroup) -> None:
        self.runtime, self.processes = runtime, processes
        # Values do not matter: process 0 broadcasts its own before the first dispatch.
        self.state = runtime.init_on_host(config.seed, restored=True)

    def run(self) -> dict[str, Any]:
        """Run commands until "end". Returns that command, with the exit code and perhaps the summary of the run."""
        with SignalGuard() as interrupts, contextlib.closing(self.runtime):
            while True:
                message = self.processes.all_gather_objects({"signal": interrupts.signal_number})[0]
                if message["command"] == "end":
                    return message
                with self.processes.peer_errors():
                    self._execute(message)

    def _execute(self, message: dict[str, Any]) -> None:
        if message["command"] == "shard":
            self.state = self.runtime.shard(self.processes.broadcast(self.state))
        elif message["command"] == "gather":
            jax.block_until_ready(self.runtime.gather(self.state))
        else:
            learner, values = self.state.learner, Hyperparams(*message["hyperparams"])
            hyperparams = with_hyperparams(learner.hyperparams, values._asdict())
            self.state = self.state._replace(learner=learner._replace(hyperparams=hyperparams))
            with contextlib.suppress(EnvironmentFailure):  # process 0 raises it too, and decides
                self.state, _ = self.runtime.dispatch(self.state)


@contextlib.contextmanager
def dismiss_followers(processes: ProcessGroup) -> Iterator[dict[str, Any]]:
    """End the followers when the work of process 0 inside is done or was stopped by a signal.

    Yields a dictionary; its entries are sent to the followers with the last command.
    """
    outcome: dict[str, Any] = {}
    try:
        yield outcome
    except SignalGuard.StoppedBySignal as stopped:
        processes.all_gather_objects({"command": "end", "exit_code": stopped.exit_code, **outcome})
        raise
    # After any other exception the followers end by `DistributedProcesses.report_failure`.
    processes.all_gather_objects({"command": "end", "exit_code": 0, **outcome})


def agree_on_config(processes: ProcessGroup, config: Config, *, resume: bool) -> Config:
    """Return the configuration of process 0. Raises a UserError in all processes if they do not fit together."""
    # The configuration of a resumed run lies in its directory, which only the host of process 0 needs to have.
    if processes.count == 1:
        return config
    facts = {"config": to_dict(config), "resume": resume, "devices": jax.local_device_count(), "versions": versions()}
    gathered = processes.all_gather_objects(facts)
    for index, other in enumerate(gathered):
        if difference := _difference(gathered[0], other):
            raise UserError(f"process {index} does not fit process 0: {difference}")
    if processes.index == 0 or not resume:
        return config
    first = dataclasses.replace(from_dict(gathered[0]["config"]), distributed=config.distributed)
    require_consent(external_code(first), "the run that process 0 continues")
    return first


def _difference(first: dict[str, Any], other: dict[str, Any]) -> str | None:
    """Describe the first difference that keeps two processes from learning together; None if there is none."""
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
    names = [name for name in one if one[name] != two[name] and name != "distributed.process_id"]
    return "; ".join(f"its {name} is {two[name]!r}, not {one[name]!r}" for name in names[:3]) or None
