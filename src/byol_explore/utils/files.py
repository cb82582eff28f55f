"""Atomic writes, checksums, atomic directories, directory lock, safe reads inside a run directory.

A run directory may be damaged or come from another person. Safe reads take regular files inside the directory only: a
link out of it could carry any file of this machine into a published page, and reading a pipe could block forever.
"""

import contextlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from byol_explore.errors import UserError
from byol_explore.utils.formatting import error_text, escape_unprintable


def temporary_path(path: Path) -> Path:
    """Return the path that a file is written to before it is moved to `path`."""
    return path.with_name(path.name + ".tmp")


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file and sync it to the disk, so that a power failure leaves the old or the new file, never a part."""
    try:
        with temporary_path(path).open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary_path(path).replace(path)
    except OSError:  # such as a full disk
        temporary_path(path).unlink(missing_ok=True)
        raise


CHECKSUM = "crc"  # key of the checksum in a JSON object, the last one
_Object = dict[str, Any]


def checksum(data: _Object) -> int:
    """Return the CRC-32 of an object's JSON text."""
    # JSON text is the same after it was parsed: keys keep their order, and floats are written so that they round-trip.
    return zlib.crc32(json.dumps(data).encode())


def add_checksum(data: _Object) -> _Object:
    """Return an object with its checksum as the last key."""
    return {**data, CHECKSUM: checksum(data)}


def split_checksum(data: _Object) -> tuple[_Object, bool | None]:
    """Return an object without its checksum, and whether it matches; None if there is no checksum.

    Raises a ValueError for data that is no object.
    """
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    rest = {name: value for name, value in data.items() if name != CHECKSUM}
    if CHECKSUM not in data:
        return rest, None
    try:
        return rest, data[CHECKSUM] == checksum(rest) and type(data[CHECKSUM]) is int
    except RecursionError:
        return rest, False


def write_json_object(path: Path, data: _Object) -> None:
    """Write an object with its checksum, for `read_json_object`."""
    atomic_write(path, json.dumps(add_checksum(data), indent=2) + "\n")


try:
    import fcntl
except ImportError:  # on Windows nothing is locked
    fcntl = None


class DirectoryLock:
    """A lock from `acquire` to `release` or the end of the process. Leaves no file behind."""

    def __init__(self, directory: Path, *, doing: str = "training", option: str = "--run-dir") -> None:
        self._directory, self._doing, self._option = directory, doing, option
        self._descriptor: int | None = None
        self._made: list[Path] = []  # directories made for the lock, the innermost first

    def __enter__(self) -> "DirectoryLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Make the directory if it is missing; raise a UserError if another process holds the lock."""
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
            os.close(descriptor)  # the process that held it before has removed it

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
                continue  # removed between the two calls

    def release(self) -> None:
        """Release the lock; remove the directories that were made for it and are still empty."""
        if self._descriptor is not None:
            for path in self._made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            self._made = []
            os.close(self._descriptor)
            self._descriptor = None


def _is_still(directory: Path, descriptor: int) -> bool:
    """Return True if this path still names the open directory."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_locked(directory: Path) -> bool:
    """Return True if a process holds the lock of a directory."""
    if not directory.is_dir():
        return False
    lock = DirectoryLock(directory)
    try:
        lock.acquire()
    except UserError:
        return True
    lock.release()
    return False


MAX_BYTES = 64_000_000
DAMAGE_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions that reading a damaged file may raise."""


def safe_file(directory: Path, name: str) -> Path | None:
    """Return the path of a regular file inside a directory; None if there is none, or a link leads out."""
    path = directory / name
    try:
        inside = path.resolve().is_relative_to(directory.resolve())
        return path if inside and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # an impossible name, or links in a circle
        return None


def read_safe_file(directory: Path, name: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file inside a directory; raise an OSError or ValueError with the reason if that fails."""
    path = safe_file(directory, name)
    if path is None:
        raise ValueError(f"{name} is no file in this directory")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{name} has more than {max_bytes:,} bytes")
    return data


def read_tail(path: Path, begin: int = 0, max_bytes: int = 65_536) -> bytes:
    """Read the end of a file, without the bytes before `begin`; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - max_bytes))
            return file.read()
    except OSError:
        return b""


def read_json_object(directory: Path, name: str, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read the JSON object of a file inside a directory; raise an OSError or ValueError if that fails.

    A checksum in the object must match. Objects without one are accepted: other programs and versions write them.
    """
    try:
        data = json.loads(read_safe_file(directory, name, max_bytes))
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{name} holds no object")
    data, is_intact = split_checksum(data)
    if is_intact is False:
        raise ValueError(f"{name} does not match its checksum")
    return data


@contextlib.contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a path to write a directory to, which then replaces the target; a UserError if it cannot be written."""
    place = target.resolve()  # "." cannot be renamed
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name[:50]}-", dir=place.parent))
        try:
            yield scratch / "new"
            _exchange(place, scratch / "new", scratch / "old")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{escape_unprintable(target)} cannot be written: {error_text(error)}; nothing was changed"
        ) from error


def _exchange(place: Path, new: Path, old: Path) -> None:
    """Put the new directory in the place of the old one; keep the old one if that fails."""
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
