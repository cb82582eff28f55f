"""Starts the runs of a study on a Ray cluster.

Ray chooses the host, and waits until one has the cores and GPUs free that a run takes. There an actor starts the same
process as a local study, with its output in the same log: all hosts must see the study's directory. The actor ends with
the study, and the process with the actor, after saving.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byol_explore.errors import UserError
from byol_explore.runtime.cluster.ray_client import RayConnection, ray
from byol_explore.study.launchers import ChildProcess, RunHandle, check_resources, last_line
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import versions
from byol_explore.utils.processes import available_core_ids, available_cores

_POLL = 0.2  # seconds between polls of a process
_KILL_SECONDS = 10.0  # for a remote process to be killed
_LOST = 1  # exit code if Ray lost the process or could not start it


class RayLauncher:
    """Starts up to `parallel` runs at a time, each with its cores and GPUs."""

    def __init__(self, parallel: int, *, address: str = "", cpus: float = 1, gpus: float = 0) -> None:
        check_resources(cpus, gpus)
        self.slots = parallel
        actors = available_cores() - 1  # a private cluster has one CPU more than actors
        self._connection = RayConnection(address, actors, 0, setting="--address")
        try:
            self._check_hosts(cpus, gpus)
        except UserError:
            self.close()
            raise
        self._make = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_concurrency=3)(RayRunHost)
        self._cpus = max(1, int(cpus))

    def _check_hosts(self, cpus: float, gpus: float) -> None:
        """Raise a UserError if no host is large enough for a run, which would then wait for ever."""
        hosts = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(host.get("CPU", 0) >= cpus and host.get("GPU", 0) >= gpus for host in hosts):
            has = "; ".join(f"{host.get('CPU', 0):g} and {host.get('GPU', 0):g}" for host in hosts)
            raise UserError(f"no host has --cpus {cpus:g} and --gpus {gpus:g} for a run: they have {has}")

    def start(self, command: Sequence[str], log: Path, title: str, slot: int) -> RunHandle:
        return RayRunHandle(self._make.remote(), command, log.absolute(), title, self._cpus)

    def close(self) -> None:
        """Disconnect, and end the cluster if it was started for this study."""
        self._connection.close()


class RayRunHost:
    """The Ray actor on the host of a run, which starts its process."""

    def __init__(self) -> None:
        self._child: ChildProcess | None = None
        self._should_stop = False
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Return once Ray has placed this actor on a host."""

    def run(self, command: list[str], log: str, title: str, facts: dict[str, Any]) -> int:
        """Start the process, wait for its end and return its exit code."""
        if (here := versions()["byol-explore"]) != facts["version"]:
            raise OSError(f"{os.uname().nodename} has byol-explore {here}, not {facts['version']}")
        with contextlib.suppress(OSError):
            os.chdir(facts["directory"])  # import paths may name modules there
        os.environ["NPROC"] = os.environ["OMP_NUM_THREADS"] = str(facts["cpus"])
        with self._lock:
            self._child = ChildProcess([sys.executable, *command[1:]], Path(log), title, available_core_ids())
            if self._should_stop:  # `stop` came first
                self._child.terminate()
        while (code := self._child.exit_code()) is None:
            time.sleep(_POLL)
        return code

    def stop(self) -> None:
        with self._lock:
            self._should_stop = True
            if self._child is not None:
                self._child.terminate()

    def kill(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.kill()


class RayRunHandle(RunHandle):
    """A run on Ray, as the study's process sees it."""

    def __init__(self, host: Any, command: Sequence[str], log: Path, title: str, cpus: int) -> None:
        self._host, self._log, self._message = host, log, ""
        self._begin = log.stat().st_size if log.is_file() else 0
        facts = {"version": versions()["byol-explore"], "directory": os.getcwd(), "cpus": cpus}
        self._ready = host.ready.remote()
        self._code = host.run.remote(list(command), str(log), title, facts)

    def exit_code(self) -> int | None:
        done, _ = ray.wait([self._code], timeout=0)
        if not done:
            return None
        try:
            return ray.get(self._code)
        except ray.exceptions.RayTaskError as error:  # the process could not be started
            self._message = one_line(getattr(error, "cause", None) or error)
        except ray.exceptions.RayError:
            self._message = "its host, or Ray's process beside it, is lost"
        return _LOST

    def terminate(self) -> None:
        done, _ = ray.wait([self._ready], timeout=0)
        if done:
            self._host.stop.remote()
        else:  # it still waits for a host
            ray.kill(self._host)

    def kill(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._host.kill.remote(), timeout=_KILL_SECONDS)
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._host)

    def last_log_line(self) -> str:
        return self._message or last_line(self._log, self._begin)
