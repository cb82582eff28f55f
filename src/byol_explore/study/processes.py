"""The processes of a study: each with its share of the cores, its output in a log file, and bound to the study.

Where they run is a launcher's business: on this machine, or as Ray has room for them (`ray_tasks.py`).
"""

import contextlib
import errno
import itertools
import math
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from byol_explore.envs.adapters.atari_settings import available_cores
from byol_explore.errors import UserError
from byol_explore.report.words import brief

_TAIL = 65_536  # bytes of a log that are looked at for its last line
_LONGEST = 1_000  # letters of that line


def check_parallel(parallel: int) -> None:
    """A UserError if nothing could ever run."""
    if parallel < 1:
        raise UserError(f"--parallel is {parallel}: it must be positive")


def check_resources(cpus: float, gpus: float) -> None:
    """A UserError unless Ray could give that to a run: of several GPUs it gives whole ones only."""
    for name, number, least in (("cpus", cpus, 1), ("gpus", gpus, 0)):
        if not least <= number < math.inf:
            raise UserError(f"--{name} is {number:g}: it must be at least {least}, and finite")
    if gpus > 1 and gpus != int(gpus):
        raise UserError(f"--gpus is {gpus:g}: it must be a whole number, or a part of one GPU such as 0.5")


def core_shares(parallel: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Cores for each of the processes: equal shares, or one that is used by several if there are not enough."""
    if parallel > len(cores):
        return [(cores[place % len(cores)],) for place in range(parallel)]
    bounds = [place * len(cores) // parallel for place in range(parallel + 1)]
    return [tuple(cores[begin:end]) for begin, end in itertools.pairwise(bounds)]


def usable_cores() -> list[int]:
    """Those that this process may use, by number."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(available_cores()))


class Running(Protocol):
    """A run that goes on somewhere."""

    def exit_code(self) -> int | None:
        """None while it runs; -n after signal n."""
        ...

    def ask_to_stop(self) -> None:
        """It saves and ends."""
        ...

    def kill(self) -> None:
        """At once, with all processes of its own."""
        ...

    def last_words(self) -> str:
        """The last line that it printed, or as much of a long one as anybody would read."""
        ...


class Launcher(Protocol):
    """Where the runs of a study go on."""

    places: int  # for as many at a time

    def start(self, words: Sequence[str], log: Path, title: str, place: int) -> Running:
        """Begin a process; an OSError if that cannot be."""
        ...

    def close(self) -> None:
        """When all have ended."""
        ...


class LocalProcesses:
    """On this machine, whose cores they share evenly."""

    def __init__(self, parallel: int) -> None:
        self.places, self._shares = parallel, core_shares(parallel, usable_cores())

    def start(self, words: Sequence[str], log: Path, title: str, place: int) -> Running:
        return Child(words, log, title, self._shares[place])

    def close(self) -> None: ...


class Child:
    """A running process. The pipe to its standard input closes with the study, however that ends."""

    def __init__(self, words: Sequence[str], log: Path, title: str, cores: Sequence[int]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and not log.is_file():
            raise OSError(errno.EINVAL, f"{log} is no file")  # a pipe would be waited for
        threads = {name: str(len(cores)) for name in ("NPROC", "OMP_NUM_THREADS")}  # the first is XLA's
        self._log = log
        with log.open("ab") as file:
            file.write(f"$ {title}\n".encode(errors="surrogateescape"))  # of names that are no text
            file.flush()
            self._begin = file.tell()
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=file, stderr=file, env={**threads, **os.environ},
                start_new_session=True,  # Ctrl-C reaches the study alone, which passes it on once
            )  # fmt: skip
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # it has ended already
                os.sched_setaffinity(self._process.pid, cores)

    def exit_code(self) -> int | None:
        """None while it runs; -n after signal n."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """It saves and ends."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """At once, with all processes of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        """The last line that it printed, or as much of a long one as anybody would read."""
        return last_line(self._log, self._begin)


def last_line(log: Path, begin: int) -> str:
    """Of what was printed into a log behind so many bytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:  # somebody has removed it
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return brief(line.removeprefix("error: "), _LONGEST)
