"""Runs small enough to be kept beside a page: what a report is made from, and nothing else."""

import contextlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.errors import UserError
from byol_explore.metrics import read_metrics
from byol_explore.report import numbers
from byol_explore.report.load import run_directories

MOST_LINES = 200  # of a metrics.jsonl; a curve has no more points
DIGITS = 5  # of every number that has a fraction
COPIED = ("config.json", "summary.json", "coverage.json", "rooms.png")


def thin_runs(directory: Path, target: Path) -> int:
    """Copy the runs below a directory without their checkpoints, with fewer lines and digits; how many there were."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not empty: choose another --out")
    if target.resolve().is_relative_to(directory.resolve()):
        raise UserError(f"{target} lies in {directory}, which it is to be a copy of: choose another --out")
    runs = list(run_directories(directory)) if directory.is_dir() else []
    if not runs:
        raise UserError(f"{directory} holds no run: neither it nor anything below it has config.json and metrics.jsonl")
    for run in runs:
        _thin(run, target / run.relative_to(directory))
    if (directory / "study.toml").is_file():
        shutil.copy(directory / "study.toml", target)
    return len(runs)


def _thin(run: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for name in COPIED:
        if (run / name).is_file():
            shutil.copy(run / name, target)
    if (run / "films").is_dir():
        shutil.copytree(run / "films", target / "films")
    with contextlib.suppress(FileNotFoundError, ValueError):  # a report leaves out damaged maps too
        maps = rounded(json.loads((run / "maps.json").read_text()))
        (target / "maps.json").write_text(json.dumps(maps, separators=(",", ":")) + "\n")
    rows = spaced(read_metrics(run / "metrics.jsonl"))
    lines = [json.dumps(rounded(row), separators=(",", ":")) + "\n" for row in rows]
    (target / "metrics.jsonl").write_text("".join(lines))


def spaced(rows: Sequence[Any]) -> list[Any]:
    """At most `MOST_LINES` of them, evenly spaced, the first and the last among them."""
    if len(rows) <= MOST_LINES:
        return list(rows)
    return [rows[index] for index in np.linspace(0, len(rows) - 1, MOST_LINES).round().astype(int)]


def rounded(value: Any) -> Any:
    """The same data with `DIGITS` significant digits."""
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    known = isinstance(value, float) and math.isfinite(value)
    return numbers.rounded(value, DIGITS) if known else value
