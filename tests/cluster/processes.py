"""Processes of private clusters, and waiting for conditions."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0  # seconds that a loaded machine is given before a test fails
# In the command line of a process, or in the paths of its output.
_MARKS = ("byol-ray-", "byol_explore.runtime.cluster.head_process")


def cluster_processes() -> set[int]:
    """Return processes of clusters that this package has started, also those without a parent."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_marked(path)}


def _is_marked(process: Path) -> bool:
    try:
        words = [(process / "cmdline").read_text(errors="replace")]
        words += [os.readlink(process / "fd" / descriptor) for descriptor in ("1", "2")]
    except OSError:  # it has ended, or belongs to another user
        return False
    return any(mark in word for mark in _MARKS for word in words)


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    """Fail with a message if the condition does not become true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
