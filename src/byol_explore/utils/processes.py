"""Child processes that end with their parent, ends in bounded time, free ports, and the cores of this process.

A child notices the end of its parent, `kill -9` too, in one of two ways. `spawn_child` gives it a pipe as standard
input, which closes when the parent ends: the child may then save and stop (`exit_when_stdin_closes`). On Linux
`kill_on_parent_exit` has the kernel kill a child that could not notice, because it is stopped or hangs.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from typing import Any

EXIT_SECONDS, SIGNAL_SECONDS = 10.0, 1.0  # time to end unasked, and after a signal
CLOSE_SECONDS = 2.0  # for something faulty to close
_PR_SET_PDEATHSIG = 1

Process = subprocess.Popen[bytes] | BaseProcess
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="starter")


def spawn_child(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process whose standard input closes when this process ends."""
    # A session of its own: Ctrl-C in the terminal reaches this process alone, which decides what the child does.
    options |= {"stdin": subprocess.PIPE, "start_new_session": True}
    # Linux takes the thread that started a process for its parent, and `kill_on_parent_exit` goes by that: start it
    # from a thread that lasts as long as this process.
    return _STARTER.submit(subprocess.Popen, command, **options).result()


def exit_when_stdin_closes() -> None:
    """Send SIGTERM to this process once the one that spawned it has ended; returns at once."""

    def wait() -> None:
        wait_for_parent_exit()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def wait_for_parent_exit() -> None:
    """Return when the other end of standard input closes."""
    while os.read(0, 1):
        pass


def kill_on_parent_exit(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even while it is stopped (Linux only)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        sys.exit()


def terminate_all(processes: Sequence[Process], *, patiently: bool) -> None:
    """End all processes: wait for them if `patiently`, then send SIGTERM, then SIGKILL."""
    left = list(processes)
    for method, seconds in ((None, EXIT_SECONDS), ("terminate", SIGNAL_SECONDS), ("kill", SIGNAL_SECONDS)):
        if method is not None:
            for process in left:
                getattr(process, method)()
        deadline = time.monotonic() + (seconds if method or patiently else 0.0)
        left = [process for process in left if not wait_exited(process, max(0.0, deadline - time.monotonic()))]


def wait_exited(process: Process, seconds: float) -> bool:
    """Return True if the process ends within that time."""
    if isinstance(process, BaseProcess):
        process.join(seconds)
        return process.exitcode is not None
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def close_in_time(thing: Any, seconds: float = CLOSE_SECONDS) -> None:
    """Call `close` of something faulty; leave it behind if that takes too long or fails."""

    def close() -> None:
        with contextlib.suppress(Exception):
            thing.close()

    closing = threading.Thread(target=close, daemon=True, name="closing")
    closing.start()
    closing.join(seconds)


def free_port() -> int:
    """Find a free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def available_core_ids() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(available_core_ids())
