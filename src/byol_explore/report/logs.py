"""The log of a run: plain lines as training writes them, or the same lines packed, as a thin copy keeps them."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PLAIN, PACKED = "metrics.jsonl", "metrics.jsonl.gz"


def log_of(directory: Path) -> Path | None:
    """The log of a run directory; None where there is none, so that it is no run."""
    return next((path for name in (PLAIN, PACKED) if (path := directory / name).is_file()), None)


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Line by line; those that were cut off, or are no objects, are left out."""
    with gzip.open(path, "rt", errors="replace") if path.name == PACKED else path.open(errors="replace") as file:
        try:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines at once."""
    return list(rows_of(path))


def write_packed(directory: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The same rows make the same bytes: no time is written into the file."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (directory / PACKED).write_bytes(gzip.compress(text.encode(), mtime=0))
