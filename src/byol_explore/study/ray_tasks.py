"""The runs of a study on a Ray cluster: each where there is room for it, in a process as on one machine.

Ray decides where a run goes on, and waits until there is a place with the cores and GPUs that it takes. There an actor
starts the very process that a local study would start, with its output in the same log: all hosts must see the study's
directory. The actor ends with the study, and its process with the actor, after saving.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byol_explore.errors import UserError, one_line
from byol_explore.runtime.cluster.connecting import Connection
from byol_explore.runtime.cluster.rays import ray
from byol_explore.study.processes import Child, Running, check_resources, last_line, usable_cores
from byol_explore.versions import versions

_PATIENCE = 10.0  # seconds in which a cluster must answer
_POLL = 0.2  # seconds between looks at a process
_FAREWELL = 10.0  # seconds in which a process is killed
_LOST = 1  # exit code of what nobody knows one of


class RayTasks:
    """Room for so many runs at a time, each with its cores and GPUs."""

    def __init__(self, parallel: int, *, address: str = "", cpus: float = 1, gpus: float = 0) -> None:
        check_resources(cpus, gpus)
        self.places = parallel
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is told to anybody
        _check_address(address)
        self._own = None if address else Connection("", len(usable_cores()) - 1, 0)  # one more than actors, as always
        try:
            if address:
                ray.init(address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"there is no Ray cluster at --address {address!r}: {one_line(error)}") from error
        try:
            self._check_room(cpus, gpus)
        except UserError:
            self.close()
            raise
        self._make = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_concurrency=3)(Host)
        self._cpus = max(1, int(cpus))

    def _check_room(self, cpus: float, gpus: float) -> None:
        """A run that fits on no host would wait for ever."""
        hosts = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(host.get("CPU", 0) >= cpus and host.get("GPU", 0) >= gpus for host in hosts):
            has = "; ".join(f"{host.get('CPU', 0):g} and {host.get('GPU', 0):g}" for host in hosts)
            raise UserError(f"no host has --cpus {cpus:g} and --gpus {gpus:g} for a run: they have {has}")

    def start(self, words: Sequence[str], log: Path, title: str, place: int) -> Running:
        return Task(self._make.remote(), words, log.absolute(), title, self._cpus)

    def close(self) -> None:
        """Also ends the cluster, if it was started for this study."""
        ray.shutdown()
        if self._own is not None:
            self._own.close()


def _check_address(address: str) -> None:
    """Ray itself would look for a cluster that is not there for many minutes."""
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal()):
        raise UserError(f"--address is {address!r}: it must be host:port, such as 10.0.0.1:6379")
    try:
        if address:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"there is no Ray cluster at --address {address}: {one_line(error)}") from error


class Host:
    """Ray's actor beside a run, on the host that it goes on."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._is_to_stop = False
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Once there is a place for it."""

    def run(self, words: list[str], log: str, title: str, facts: dict[str, Any]) -> int:
        """From the beginning to the end of the process: its exit code."""
        if (here := versions()["byol-explore"]) != facts["version"]:
            raise OSError(f"{os.uname().nodename} has byol-explore {here}, not {facts['version']}")
        with contextlib.suppress(OSError):
            os.chdir(facts["directory"])  # import paths may name what lies there
        os.environ["NPROC"] = os.environ["OMP_NUM_THREADS"] = str(facts["cpus"])
        with self._lock:
            self._child = Child([sys.executable, *words[1:]], Path(log), title, usable_cores())
            if self._is_to_stop:
                self._child.ask_to_stop()
        while (code := self._child.exit_code()) is None:
            time.sleep(_POLL)
        return code

    def stop(self) -> None:
        with self._lock:
            self._is_to_stop = True
            if self._child is not None:
                self._child.ask_to_stop()

    def kill(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.kill()


class Task:
    """A run that Ray has been given, seen from the study."""

    def __init__(self, host: Any, words: Sequence[str], log: Path, title: str, cpus: int) -> None:
        self._host, self._log, self._said = host, log, ""
        self._begin = log.stat().st_size if log.is_file() else 0
        facts = {"version": versions()["byol-explore"], "directory": os.getcwd(), "cpus": cpus}
        self._ready = host.ready.remote()
        self._code = host.run.remote(list(words), str(log), title, facts)

    def exit_code(self) -> int | None:
        done, _ = ray.wait([self._code], timeout=0)
        if not done:
            return None
        try:
            return ray.get(self._code)
        except ray.exceptions.RayTaskError as error:  # the process could not be started
            self._said = one_line(getattr(error, "cause", None) or error)
        except ray.exceptions.RayError:
            self._said = "its host, or Ray's process beside it, is lost"
        return _LOST

    def ask_to_stop(self) -> None:
        """One that waits for a place waits no more."""
        done, _ = ray.wait([self._ready], timeout=0)
        if done:
            self._host.stop.remote()
        else:
            ray.kill(self._host)

    def kill(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._host.kill.remote(), timeout=_FAREWELL)
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._host)

    def last_words(self) -> str:
        return self._said or last_line(self._log, self._begin)
