"""One process per run directory, and per directory of a study."""

import os
from pathlib import Path

from byol_explore.errors import UserError

try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None


class DirectoryLock:
    """Held from `acquire` to `release`, or to the end of the process however it ends; leaves no file behind."""

    def __init__(self, directory: Path, *, doing: str = "training", option: str = "--run-dir") -> None:
        self._directory, self._doing, self._option = directory, doing, option
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Make the directory if need be; a UserError if another process holds it."""
        if self._descriptor is not None or fcntl is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise UserError(
                f"another process is {self._doing} in {self._directory}: choose another {self._option}"
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_held(directory: Path) -> bool:
    """Whether a process is at work in a directory."""
    if not directory.is_dir():
        return False
    lock = DirectoryLock(directory)
    try:
        lock.acquire()
    except UserError:
        return True
    lock.release()
    return False
