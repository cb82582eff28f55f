"""The log of a run: plain lines as training writes them, or the same lines packed, as a thin copy keeps them."""

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from byol_explore.report.own_files import own_file

PLAIN, PACKED = "metrics.jsonl", "metrics.jsonl.gz"
MOST_LETTERS = 10_000_000  # of a line: one that goes on is no log
MOST_STEPS = 2**63
LARGEST = 1e100  # no metric is larger: what is cannot be drawn


def log_of(directory: Path) -> Path | None:
    """The log of a run directory; None where there is none, or none of its own."""
    return next((path for name in (PLAIN, PACKED) if (path := own_file(directory, name))), None)


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Line by line; those that were cut off, are no objects or do not say their step are left out."""
    with gzip.open(path, "rt", errors="replace") if path.name == PACKED else path.open(errors="replace") as file:
        try:
            for line in _lines(file):
                if row := row_of(line):
                    yield row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None


def row_of(line: str | bytes) -> dict[str, Any]:
    """What a line says; empty if it was cut off, is no object or does not say its step."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) and _is_step(row.get("steps")) else {}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines at once."""
    return list(rows_of(path))


def number(value: Any) -> float:
    """What a line says, as a number; NaN for what is none, or none that can be drawn."""
    return float(value) if type(value) in (float, int) and -LARGEST < value < LARGEST else math.nan


def write_packed(directory: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The same rows make the same bytes: no time is written into the file."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (directory / PACKED).write_bytes(gzip.compress(text.encode(), mtime=0))


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(MOST_LETTERS):
        if len(line) == MOST_LETTERS:
            raise ValueError(f"its log has a line of more than {MOST_LETTERS:,} letters")
        yield line


def _is_step(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and 0 <= value < MOST_STEPS
