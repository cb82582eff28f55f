"""Numbers, names and paths in one line."""

import re
from collections.abc import Sequence
from pathlib import Path


def short_number(number: float) -> str:
    """Format a number as 1.4k, 512k, 4.02M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            shown = number / size
            if unit == "k":
                return f"{shown:.2g}k" if shown < 9.95 else f"{shown:.0f}k"
            return f"{shown:.0f}{unit}" if shown >= 100 else f"{shown:.3g}{unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return plural(round(seconds), "second")
    if seconds < 2 * 3600:
        return plural(round(seconds / 60), "minute")
    return f"{seconds / 3600:,.1f} hours"


def plural(number: int, noun: str) -> str:
    """Format a count: 1 seed, 3 seeds."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def join_list(items: Sequence[str], max_items: int = 12) -> str:
    """Join with commas; name the first `max_items` and count the others."""
    more = len(items) - max_items
    return ", ".join(items) if more <= 0 else f"{', '.join(items[:max_items])} and {more} more"


def escape_unprintable(text: object) -> str:
    """Escape line breaks and other unprintable characters as Python does."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


def truncate(text: object, length: int = 200) -> str:
    """Escape a text and cut it at `length`."""
    shown = escape_unprintable(text)
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def error_text(error: BaseException) -> str:
    """Describe an error, without the number and path of an OSError."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def slug(*parts: str) -> str:
    """Make a name for files and links: lower case, words joined by dashes."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


def display_path(path: Path, root: Path) -> str:
    """Format a path relative to the working directory, or starting with the name of `root` if that is elsewhere."""
    whole, here = root.resolve(), Path.cwd()
    start = whole.relative_to(here) if whole != here and whole.is_relative_to(here) else Path(whole.name)
    return escape_unprintable((start / path.relative_to(root)).as_posix())


def one_line(text: object, length: int = 240) -> str:
    """Write a text without line breaks, cut at `length`."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 3] + "..."
