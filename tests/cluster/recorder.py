"""A Gymnasium environment that records every step by its host: `gymnasium:cluster.recorder:Recorder-v0`."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from unruly import Unruly

PAUSE = 0.01  # seconds of a step, so that a busy machine keeps up
ENOUGH = "enough"  # a file beside the records; once it exists, episodes succeed


class Recorder(Unruly):
    """Writes a byte per step to a file of this process, in a directory of its network namespace."""

    def __init__(self, records: str) -> None:
        super().__init__()
        self._enough = Path(records) / ENOUGH
        directory = Path(records) / host("self")
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / str(os.getpid())).open("ab", buffering=0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(PAUSE)
        self._file.write(b".")
        observation, reward, *ended, info = super().step(action)
        return observation, reward if self._enough.exists() else 0.0, *ended, info

    def close(self) -> None:
        self._file.close()


def host(pid: int | str) -> str:
    """Return the network namespace of a process."""
    return str(os.stat(f"/proc/{pid}/ns/net").st_ino)


gymnasium.register("Recorder-v0", entry_point=Recorder)
