"""One process per run directory, and per directory of a study."""

import contextlib
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
        self._made: list[Path] = []  # directories that were not there before, the innermost first

    def __enter__(self) -> "DirectoryLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Make the directory if need be; a UserError if another process holds it."""
        if self._descriptor is not None or fcntl is None:
            return
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise UserError(
                    f"another process is {self._doing} in {self._directory}: choose another {self._option}"
                ) from None
            if _is_still(self._directory, descriptor):
                self._descriptor = descriptor
                return
            os.close(descriptor)  # whoever held it before has removed it

    def _open(self) -> int:
        while True:
            directory = self._directory.absolute()
            self._made += [path for path in (directory, *directory.parents) if not path.exists()]
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                return os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            except FileExistsError:
                raise UserError(f"{self._directory} is a file: choose another {self._option}") from None
            except FileNotFoundError:
                continue  # removed in this moment

    def release(self) -> None:
        """Directories that were made for the lock and are still empty are removed."""
        if self._descriptor is not None:
            for path in self._made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            self._made = []
            os.close(self._descriptor)
            self._descriptor = None


def _is_still(directory: Path, descriptor: int) -> bool:
    """Whether an open directory is the one that has this name now."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
