"""Small copies of runs for publishing: the files that a report is made from.

Logs keep all metrics, with fewer digits, and are compressed. Maps and films take most of the space of a run: a copy has
those that the report shows, which are of a few runs.
"""

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageSequence

from byol_explore.errors import UserError
from byol_explore.report.load import Run, load_runs
from byol_explore.report.maps_and_films import FilmFile, select_films, select_maps
from byol_explore.report.model import round_nested
from byol_explore.report.read_runs import MAX_FILM_FRAMES, MAX_FILM_PIXELS, MAX_LOG_LINES
from byol_explore.report.scores import compute_scores, even_indices
from byol_explore.storage.metrics import LogReader, find_log, write_packed_log
from byol_explore.storage.run_directory import SEARCH
from byol_explore.utils.files import DAMAGE_ERRORS, atomic_directory, read_json_object, read_safe_file
from byol_explore.utils.formatting import escape_unprintable

DIGITS = 5  # of floats in logs
MAP_DIGITS = 3  # of floats in maps: a colour shows no more
COPIED = ("config.json", "versions.json", "summary.json", "room_coverage.json", "rooms.png")


class PublishResult(NamedTuple):
    runs: int  # runs copied
    left_out: list[str]  # runs that cannot be read, with the reasons
    damage: list[str]  # of files of the copied runs, of which the copy has the intact lines


def publish_runs(directory: Path, target: Path) -> PublishResult:
    """Copy the runs below a directory, with the files that their report needs; an error leaves no copy.

    Args:
      directory: run or study directory, or a directory above them.
      target: an empty directory, or one that does not exist.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{escape_unprintable(target)} exists and is not empty: choose another --out")
    if target.resolve().is_relative_to(directory.resolve()):
        place, source = escape_unprintable(target), escape_unprintable(directory)
        raise UserError(f"{place} is inside {source}, the directory to copy: choose another --out")
    runs = load_runs(directory)
    tasks: dict[Path, list[str]] = defaultdict(list)
    for selected in select_maps(runs, compute_scores(runs)).shown:
        tasks[selected.run.directory].append(selected.task)
    with atomic_directory(target) as copy:
        copy.mkdir()
        for run in runs.runs:
            _publish(run, copy / run.directory.relative_to(directory), tasks[run.directory])
        for film in select_films(runs).shown:
            _publish_film(film, copy / film.path.relative_to(directory))
        for name in ("study.toml", SEARCH, "search.csv", "chosen.toml"):
            _copy(directory, name, copy)
    return PublishResult(len(runs.runs), runs.unreadable, runs.damage)


def _publish(run: Run, target: Path, tasks: list[str]) -> None:
    """Copy a run without films, with the maps of `tasks`."""
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        _copy(run.directory, name, target)
    if tasks and (maps := _maps(run, tasks)):
        (target / "visit_maps.json").write_text(json.dumps(maps, separators=(",", ":")) + "\n")
    write_packed_log(target, _log_rows(run))


def _copy(directory: Path, name: str, target: Path) -> None:
    """Copy a file if it can be read."""
    try:
        content = read_safe_file(directory, name)
    except (OSError, ValueError):
        return
    (target / name).write_bytes(content)


def _maps(run: Run, tasks: list[str]) -> dict[str, Any]:
    """Return the maps of some tasks; empty if the file was damaged since they were selected."""
    try:
        maps = read_json_object(run.directory, "visit_maps.json")["tasks"]
        return round_nested({"tasks": {task: maps[task] for task in tasks}}, MAP_DIGITS, keep_non_finite=True)
    except DAMAGE_ERRORS:
        return {}


def _log_rows(run: Run) -> list[dict[str, Any]]:
    """Return at most MAX_LOG_LINES rows; empty if the log was damaged since it was read."""
    log = find_log(run.directory)
    try:
        rows = list(LogReader(log)) if log else []
        kept = [rows[index] for index in even_indices(len(rows), MAX_LOG_LINES)]
        return round_nested(kept, DIGITS, keep_non_finite=True)
    except DAMAGE_ERRORS:
        return []


def _publish_film(film: FilmFile, target: Path) -> None:
    try:
        content = shrink_film(film.read())
    except Exception:  # decoders of a damaged film raise anything
        return
    target.parent.mkdir(exist_ok=True)
    target.with_suffix(".webp").write_bytes(content)


COLOURS = 64  # grid worlds and most games have fewer; only text becomes blurred


def shrink_film(data: bytes) -> bytes:
    """Return a film as an animated WebP of the same duration with fewer frames; raise OSError if it is no film."""
    with Image.open(io.BytesIO(data)) as film:
        count = getattr(film, "n_frames", 1)
        if count * film.width * film.height > MAX_FILM_PIXELS:
            raise ValueError(f"a film of {count:,} frames of {film.width:,} x {film.height:,} is too large")
        kept, pictures, times = even_indices(count, MAX_FILM_FRAMES), [], []
        for index, frame in enumerate(ImageSequence.Iterator(film)):
            if index in kept:
                pictures.append(frame.convert("RGB"))
            times.append(frame.info.get("duration", 0))
    durations = np.add.reduceat(times, kept).tolist()
    sheet = Image.fromarray(np.concatenate([np.asarray(picture) for picture in pictures]))
    palette = sheet.quantize(COLOURS, dither=Image.Dither.NONE)  # the same for all frames: none flickers
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    file = io.BytesIO()
    first.convert("RGB").save(
        file, "webp", save_all=True, append_images=[other.convert("RGB") for other in others], duration=durations,
        loop=0, lossless=True, minimize_size=True, method=4,
    )  # fmt: skip
    return file.getvalue()
