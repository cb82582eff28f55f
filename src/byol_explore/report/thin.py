"""Runs small enough to be kept beside a page: what a report is made from, and nothing else.

Logs keep all metrics, with fewer digits and packed. Maps and films, which are most of what a run leaves behind, are
those that the page of these runs shows: of a few runs, while the others' would never be looked at.
"""

import contextlib
import json
import math
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from byol_explore.errors import UserError
from byol_explore.report import numbers
from byol_explore.report.films import film_files
from byol_explore.report.load import load_runs, run_directories
from byol_explore.report.logs import log_of, rows_of, write_packed
from byol_explore.report.outcomes import outcomes
from byol_explore.report.places import mapped
from byol_explore.report.series import evenly
from byol_explore.report.short_films import short_film

MOST_LINES = 200  # of a log; a curve has no more points
DIGITS = 5  # of every number that has a fraction
MAP_DIGITS = 3  # a colour shows no more
COPIED = ("config.json", "summary.json", "coverage.json", "rooms.png")


def thin_runs(directory: Path, target: Path) -> int:
    """Copy the runs below a directory without what its report does not show; how many there were."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not empty: choose another --out")
    if target.resolve().is_relative_to(directory.resolve()):
        raise UserError(f"{target} lies in {directory}, which it is to be a copy of: choose another --out")
    runs = load_runs([directory])
    tasks: dict[Path, list[str]] = defaultdict(list)
    for run, task, _ in mapped(runs, outcomes(runs)).shown:
        tasks[run.directory].append(task)
    copied = list(run_directories(directory))
    for run in copied:
        _thin(run, target / run.relative_to(directory), tasks[run])
    for film in film_files(runs).shown:
        _thin_film(film.path, target / film.path.relative_to(directory))
    if (directory / "study.toml").is_file():
        shutil.copy(directory / "study.toml", target)
    return len(copied)


def _thin(run: Path, target: Path, tasks: list[str]) -> None:
    """A run without its films, with maps of these tasks."""
    target.mkdir(parents=True)
    for name in COPIED:
        if (run / name).is_file():
            shutil.copy(run / name, target)
    if tasks:
        maps = json.loads((run / "maps.json").read_text())["tasks"]
        kept = rounded({"tasks": {task: maps[task] for task in tasks}}, MAP_DIGITS)
        (target / "maps.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    log = log_of(run)
    with contextlib.suppress(ValueError, OSError):  # a report leaves out runs whose log is damaged
        rows = list(rows_of(log)) if log else []
        write_packed(target, [rounded(rows[index], DIGITS) for index in evenly(len(rows), MOST_LINES)])


def _thin_film(path: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # a damaged film is no film
        film = short_film(path.read_bytes())
        target.parent.mkdir(exist_ok=True)
        target.with_suffix(".webp").write_bytes(film)


def rounded(value: Any, digits: int) -> Any:
    """The same data with so many significant digits; whole numbers stay as they are."""
    if isinstance(value, dict):
        return {name: rounded(entry, digits) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry, digits) for entry in value]
    known = isinstance(value, float) and math.isfinite(value)
    return numbers.rounded(value, digits) if known else value
