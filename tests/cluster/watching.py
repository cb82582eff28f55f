"""Looks at processes."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0  # seconds that a loaded machine is given before a test fails
_SIGNS = ("byol-ray-", "byol_explore.runtime.cluster.head", "ray::")  # in the command of every process of a cluster


def ours() -> set[int]:
    """Processes of clusters that this package has started, also those whose parents have gone."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command, state = path.read_bytes().decode(errors="replace"), path.with_name("stat").read_text()
        except OSError:
            continue
        if any(sign in command for sign in _SIGNS) and state.rpartition(")")[2].split()[0] != "Z":
            found.add(int(path.parent.name))
    return found


def until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
