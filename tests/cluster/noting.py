"""A Gymnasium environment that notes every step by the host it was taken on: `gymnasium:cluster.noting:Noting-v0`."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from unruly import Unruly

PAUSE = 0.01  # seconds of a step, so that a busy machine keeps up
ENOUGH = "enough"  # a file among the notes, with which episodes begin to succeed


class Noting(Unruly):
    """A byte for every step, in a file of this process in a directory of its network namespace."""

    def __init__(self, notes: str) -> None:
        super().__init__()
        self._enough = Path(notes) / ENOUGH
        directory = Path(notes) / host("self")
        directory.mkdir(parents=True, exist_ok=True)
        self._notes = (directory / str(os.getpid())).open("ab", buffering=0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(PAUSE)
        self._notes.write(b".")
        observation, reward, *ended, info = super().step(action)
        return observation, reward if self._enough.exists() else 0.0, *ended, info

    def close(self) -> None:
        self._notes.close()


def host(pid: int | str) -> str:
    """The network namespace of a process."""
    return str(os.stat(f"/proc/{pid}/ns/net").st_ino)


gymnasium.register("Noting-v0", entry_point=Noting)
