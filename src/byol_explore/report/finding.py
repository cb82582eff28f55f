"""Where runs are: a walk over the folders below a directory that the report, the live page and thin copies share."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from byol_explore.errors import UserError
from byol_explore.report.logs import PACKED, PLAIN
from byol_explore.report.words import printable, why

MOST_FOLDERS = 20_000  # below one directory: more is a home or a disk, and no place of runs
CONFIG = "config.json"


class Folder(NamedTuple):
    path: Path
    is_run: bool
    why_unreadable: str = ""


def folders(root: Path) -> Iterator[Folder]:
    """A directory and all below it, each once and in natural order, links followed; a run's own are not looked into."""
    waiting, seen = [root], set[tuple[int, int]]()
    while waiting:
        path = waiting.pop()
        try:
            status = path.stat()
            inside = [] if (is_run := _is_run(path)) else _folders_in(path)
        except FileNotFoundError:  # gone in between
            continue
        except OSError as error:
            yield Folder(path, False, why(error))
            continue
        if (place := (status.st_dev, status.st_ino)) in seen:
            continue
        seen.add(place)
        if len(seen) > MOST_FOLDERS:
            raise UserError(
                f"{printable(root)} has more than {MOST_FOLDERS:,} folders below it: name those that hold the runs"
            )
        yield Folder(path, is_run)
        waiting += inside


def natural(text: str) -> list[tuple[int, int, str]]:
    """So that rooms-10 comes after rooms-9."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", text)]


def _is_run(path: Path) -> bool:
    """Whether it has a configuration and a log, however damaged; an OSError if that may not be known."""
    return _is_there(path / CONFIG) and any(_is_there(path / name) for name in (PLAIN, PACKED))


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _folders_in(path: Path) -> list[Path]:
    """Those that are not hidden, the first one last."""
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry)]
    return [path / name for name in sorted(names, key=natural, reverse=True)]


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Or a link to one; not one that leads nowhere or in a circle."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))
