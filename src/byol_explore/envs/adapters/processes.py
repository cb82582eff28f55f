"""Processes that environments run in: they end with their parent, and in time. Light: workers import this."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any

OWN_END, TOLD_TO = 10.0, 1.0  # seconds in which a process ends by itself, and after a signal
_PR_SET_PDEATHSIG = 1

Process = subprocess.Popen[bytes] | BaseProcess
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="starter")


def started(start: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What starts a process, called in a thread that lasts as long as this process does.

    For Linux the parent of a process is the thread that started it, and `die_with_parent` goes by that.
    """
    return _STARTER.submit(start, *arguments, **options).result()


def die_with_parent(parent: int) -> None:
    """In a worker: when its parent has gone it is killed, even if it is stopped and could not notice (on Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        sys.exit()


def end(processes: Sequence[Process], *, patiently: bool) -> None:
    """End them all: by themselves if they are given the time, else by SIGTERM, and at last by SIGKILL."""
    left = list(processes)
    for way, seconds in ((None, OWN_END), ("terminate", TOLD_TO), ("kill", TOLD_TO)):
        if way is not None:
            for process in left:
                getattr(process, way)()
        deadline = time.monotonic() + (seconds if way or patiently else 0.0)
        left = [process for process in left if not has_ended(process, max(0.0, deadline - time.monotonic()))]


def has_ended(process: Process, seconds: float) -> bool:
    """Whether it has ended after so many seconds at most."""
    if isinstance(process, BaseProcess):
        process.join(seconds)
        return process.exitcode is not None
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
