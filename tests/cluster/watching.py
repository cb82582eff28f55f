"""Looks at processes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0  # seconds that a loaded machine is given before a test fails
_SIGNS = ("byol-ray-", "byol_explore.runtime.cluster.head")  # in the command of a process, or where its words go


def ours() -> set[int]:
    """Processes of clusters that this package has started, also those whose parents have gone; nobody else's."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_ours(path)}


def _is_ours(process: Path) -> bool:
    try:
        words = [(process / "cmdline").read_text(errors="replace")]
        words += [os.readlink(process / "fd" / descriptor) for descriptor in ("1", "2")]
    except OSError:  # it has ended, or is somebody else's
        return False
    return any(sign in word for sign in _SIGNS for word in words)


def until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
