"""A directory that is written beside its place and then put there: whole, or not at all."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.report.words import printable, why


@contextlib.contextmanager
def placed(target: Path) -> Iterator[Path]:
    """Where to write what then takes the target's place; a UserError in one line if the disk does not allow it."""
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
        raise UserError(f"{printable(target)} cannot be written: {why(error)}; nothing was changed") from error


def _exchange(place: Path, new: Path, old: Path) -> None:
    """Put the new directory where the old one is, which stays there if that fails."""
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
