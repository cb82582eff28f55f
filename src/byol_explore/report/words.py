"""Numbers and names as the report writes them in sentences and file names."""

import re
from collections.abc import Sequence
from pathlib import Path


def amount(number: float) -> str:
    """Short: 1.4k, 512k, 4.02M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            shown = number / size
            if unit == "k":
                return f"{shown:.2g}k" if shown < 9.95 else f"{shown:.0f}k"
            return f"{shown:.0f}{unit}" if shown >= 100 else f"{shown:.3g}{unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} seconds"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:,.1f} hours"


def count(number: int, noun: str) -> str:
    """1 seed, 3 seeds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: Sequence[str], most: int = 12) -> str:
    """With commas; of many only the first."""
    more = len(items) - most
    return ", ".join(items) if more <= 0 else f"{', '.join(items[:most])} and {more} more"


def printable(text: object) -> str:
    """In one line, whatever a name has in it: what cannot be seen is written as Python does, in ASCII."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


def brief(text: object, most: int = 200) -> str:
    """In one line, and of a long text the beginning."""
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def why(error: BaseException) -> str:
    """What went wrong, in words: without the number of an error of the system, and without its path."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def slug(*parts: str) -> str:
    """A name for files and links."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


def shown_path(path: Path, root: Path) -> str:
    """A path from where the user is, or from the directory that was given if that is elsewhere."""
    whole, here = root.resolve(), Path.cwd()
    start = whole.relative_to(here) if whole != here and whole.is_relative_to(here) else Path(whole.name)
    return printable((start / path.relative_to(root)).as_posix())
