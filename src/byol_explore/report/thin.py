"""Runs small enough to be kept beside a page: what a report is made from, and nothing else.

Logs keep all metrics, with fewer digits and packed. Maps and films, which are most of what a run leaves behind, are
those that the page of these runs shows: of a few runs, while the others' would never be looked at.
"""

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from byol_explore.errors import UserError
from byol_explore.report import numbers
from byol_explore.report.films import FilmFile, film_files
from byol_explore.report.load import Run, load_runs
from byol_explore.report.logs import log_of, rows_of, write_packed
from byol_explore.report.outcomes import outcomes
from byol_explore.report.own_files import DAMAGE, own_file, read_object, read_own
from byol_explore.report.places import mapped
from byol_explore.report.placing import placed
from byol_explore.report.series import evenly
from byol_explore.report.short_films import short_film
from byol_explore.report.words import printable

MOST_LINES = 200  # of a log; a curve has no more points
DIGITS = 5  # of every number that has a fraction
MAP_DIGITS = 3  # a colour shows no more
COPIED = ("config.json", "versions.json", "summary.json", "coverage.json", "rooms.png")


class Thinned(NamedTuple):
    """What became of the runs below a directory."""

    runs: int  # that were copied
    left_out: list[str]  # those that cannot be read, with the reasons


def thin_runs(directory: Path, target: Path) -> Thinned:
    """Copy the runs below a directory without what its report does not show, all or nothing."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{printable(target)} exists and is not empty: choose another --out")
    if target.resolve().is_relative_to(directory.resolve()):
        raise UserError(
            f"{printable(target)} lies in {printable(directory)}, which it is to be a copy of: choose another --out"
        )
    runs = load_runs(directory)
    tasks: dict[Path, list[str]] = defaultdict(list)
    for run, task, _ in mapped(runs, outcomes(runs)).shown:
        tasks[run.directory].append(task)
    with placed(target) as fresh:
        fresh.mkdir()
        for run in runs.runs:
            _thin(run, fresh / run.directory.relative_to(directory), tasks[run.directory])
        for film in film_files(runs).shown:
            _thin_film(film, fresh / film.path.relative_to(directory))
        _copy(directory, "study.toml", fresh)
    return Thinned(len(runs.runs), runs.unreadable)


def _thin(run: Run, target: Path, tasks: list[str]) -> None:
    """A run without its films, with maps of these tasks."""
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        _copy(run.directory, name, target)
    if maps := _maps(run, tasks):
        (target / "maps.json").write_text(json.dumps(maps, separators=(",", ":")) + "\n")
    write_packed(target, _lines(run))


def _copy(directory: Path, name: str, target: Path) -> None:
    """A file of a directory, if it can be read."""
    if own_file(directory, name):
        try:
            data = read_own(directory, name)
        except (OSError, ValueError):
            return
        (target / name).write_bytes(data)


def _maps(run: Run, tasks: list[str]) -> dict[str, Any]:
    """Those of some tasks; nothing if they have changed since they were found, and are not whole."""
    if not tasks:
        return {}
    try:
        maps = read_object(run.directory, "maps.json")["tasks"]
        return rounded({"tasks": {task: maps[task] for task in tasks}}, MAP_DIGITS)
    except DAMAGE:
        return {}


def _lines(run: Run) -> list[dict[str, Any]]:
    """Of its log, as many as a copy has; none if it has been damaged since it was read."""
    log = log_of(run.directory)
    try:
        rows = list(rows_of(log)) if log else []
        return [rounded(rows[index], DIGITS) for index in evenly(len(rows), MOST_LINES)]
    except DAMAGE:
        return []


def _thin_film(film: FilmFile, target: Path) -> None:
    try:
        short = short_film(film.read())
    except Exception:  # decoders raise anything: a damaged film is no film
        return
    target.parent.mkdir(exist_ok=True)
    target.with_suffix(".webp").write_bytes(short)


def rounded(value: Any, digits: int) -> Any:
    """The same data with so many significant digits; whole numbers stay as they are."""
    if isinstance(value, dict):
        return {name: rounded(entry, digits) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry, digits) for entry in value]
    known = isinstance(value, float) and math.isfinite(value)
    return numbers.rounded(value, digits) if known else value
