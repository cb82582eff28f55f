"""Files that are there as a whole or not at all."""

import os
from pathlib import Path


def temporary(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(path.name + ".tmp")


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole file or the old one, never half of it: not even if the power fails, so it is on the disk by then."""
    try:
        with temporary(path).open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary(path).replace(path)
    except OSError:  # of a full disk
        temporary(path).unlink(missing_ok=True)
        raise
