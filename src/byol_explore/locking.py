"""One process per run directory."""

import os
from pathlib import Path

from byol_explore.errors import UserError

try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None


class DirectoryLock:
    """Held from `acquire` to `release`, or to the end of the process however it ends; leaves no file behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
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
            raise UserError(f"another process is training in {self._directory}: choose another --run-dir") from None
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
