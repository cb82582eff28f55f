"""Launchers start the runs of a study as processes: here on this machine, in `ray_launcher` on a Ray cluster.

Each process has its share of the CPU cores, writes its output to a log file, and ends with the study.
"""

import contextlib
import errno
import itertools
import math
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from byol_explore.errors import UserError
from byol_explore.utils.files import read_tail
from byol_explore.utils.formatting import truncate
from byol_explore.utils.processes import available_core_ids, spawn_child

_MAX_LINE = 1_000  # characters of the last line of a log that are shown


def check_parallel(parallel: int) -> None:
    """Raise a UserError unless at least one run may run at a time."""
    if parallel < 1:
        raise UserError(f"--parallel is {parallel}: it must be positive")


def check_resources(cpus: float, gpus: float) -> None:
    """Raise a UserError for numbers of cores or GPUs that Ray cannot give to a run."""
    for name, number, minimum in (("cpus", cpus, 1), ("gpus", gpus, 0)):
        if not minimum <= number < math.inf:
            raise UserError(f"--{name} is {number:g}: it must be at least {minimum}, and finite")
    # Ray shares one GPU between processes, but several only as a whole.
    if gpus > 1 and gpus != int(gpus):
        raise UserError(f"--gpus is {gpus:g}: it must be a whole number, or a part of one GPU such as 0.5")


def core_shares(parallel: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Split cores into equal shares, one per process; with more processes than cores, several use the same core."""
    if parallel > len(cores):
        return [(cores[slot % len(cores)],) for slot in range(parallel)]
    bounds = [slot * len(cores) // parallel for slot in range(parallel + 1)]
    return [tuple(cores[begin:end]) for begin, end in itertools.pairwise(bounds)]


class RunHandle(Protocol):
    """A run that was started."""

    def exit_code(self) -> int | None:
        """Return None while it runs, and -n after signal n."""
        ...

    def terminate(self) -> None:
        """Ask it to save and end."""
        ...

    def kill(self) -> None:
        """End it and all its child processes at once."""
        ...

    def last_log_line(self) -> str:
        """Return the last line that it printed, without the end of a long one."""
        ...


class Launcher(Protocol):
    """Starts the runs of a study."""

    slots: int  # number of runs at a time

    def start(self, command: Sequence[str], log: Path, title: str, slot: int) -> RunHandle:
        """Start a process in a free slot; raise an OSError if that fails.

        Args:
          command: the program and its arguments.
          log: file that its output is appended to.
          title: the command as a user would type it, for the log.
          slot: number of the slot, below `slots`; no other run is in it.
        """
        ...

    def close(self) -> None:
        """Release the resources, after all runs have ended."""


class LocalProcesses(Launcher):
    """Starts processes on this machine, which share its cores evenly."""

    def __init__(self, parallel: int) -> None:
        self.slots, self._shares = parallel, core_shares(parallel, available_core_ids())

    def start(self, command: Sequence[str], log: Path, title: str, slot: int) -> RunHandle:
        return ChildProcess(command, log, title, self._shares[slot])


class ChildProcess(RunHandle):
    """A child process. Its standard input is a pipe that closes when the study ends, even by `kill -9`."""

    def __init__(self, command: Sequence[str], log: Path, title: str, cores: Sequence[int]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and not log.is_file():
            raise OSError(errno.EINVAL, f"{log} is no file")  # opening a pipe would block
        threads = {name: str(len(cores)) for name in ("NPROC", "OMP_NUM_THREADS")}  # the first is XLA's
        self._log = log
        with log.open("ab") as file:
            file.write(f"$ {title}\n".encode(errors="surrogateescape"))  # paths may hold bytes that are no text
            file.flush()
            self._begin = file.tell()
            self._process = spawn_child(command, stdout=file, stderr=file, env={**threads, **os.environ})
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # the process has ended already
                os.sched_setaffinity(self._process.pid, cores)

    def exit_code(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_log_line(self) -> str:
        return last_line(self._log, self._begin)


def last_line(log: Path, begin: int) -> str:
    """Return the last line of a log that was printed after the first `begin` bytes."""
    line = read_tail(log, begin).decode(errors="replace").strip().rpartition("\n")[2].strip()
    return truncate(line.removeprefix("error: "), _MAX_LINE)
