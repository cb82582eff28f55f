"""Sections of the report with visit maps, rooms and films."""

import contextlib
import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from byol_explore.config.config import env_dir_name
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import HeatMap, Picture, Plot, Section, Text
from byol_explore.report.read_runs import (
    MAX_FILM_BYTES,
    MAX_FLOOR_ASPECT,
    MAX_FLOOR_SIDE,
    MAX_MAPS,
    MAX_PICTURE_BYTES,
    MAX_ROOM_PICTURES,
    MAX_SLICES,
)
from byol_explore.report.scores import Outcomes, normalized, section_plots
from byol_explore.storage.metrics import LARGEST
from byol_explore.utils.files import DAMAGE_ERRORS, read_json_object, read_safe_file, safe_file
from byol_explore.utils.formatting import display_path, join_list, short_number, slug

T = TypeVar("T")


class Selection(NamedTuple, Generic[T]):
    """The maps or films that a report shows, and "variant on task" of those beyond its limits."""

    shown: list[T]
    left_out: list[str]


class SelectedMaps(NamedTuple):
    run: Run
    task: str
    maps: list[HeatMap]  # visits, and intrinsic rewards if there are any


def maps_section(runs: Runs, outcomes: Outcomes) -> Section:
    """Show visit maps, the number of rooms over training, and pictures of rooms."""
    blocks = [*_maps(select_maps(runs, outcomes)), *_rooms(runs)]
    if not blocks:
        blocks = [Text(["No run has left a map of where it was."])]
    return Section("places", "Where the agent was curious", blocks)


def _maps(selection: Selection[SelectedMaps]) -> list[Text | HeatMap]:
    if not selection.shown:
        return []
    words = [
        "Visits are counted on a logarithmic scale, rewards are means per visit (blank: never visited), "
        "of each variant's first seed."
    ]
    if selection.left_out:
        words.append(f"Not shown, to keep this short: {join_list(selection.left_out)}.")
    return [Text(words), *(each for selected in selection.shown for each in selected.maps)]


def select_maps(runs: Runs, outcomes: Outcomes) -> Selection[SelectedMaps]:
    """Select maps of the main variant on every task, then of the others where variants differ most."""

    def score_range(task: str) -> float:
        scores = [normalized(task, each.best_mean) for (_, name), each in outcomes.items() if name == task]
        return max(scores) - min(scores) if scores else 0.0

    selection, count = Selection[SelectedMaps]([], []), 0
    for variant, task in _main_first(runs, sorted(runs.tasks, key=score_range, reverse=True)):
        run = next((run for run in runs.select(variant, task) if safe_file(run.directory, "visit_maps.json")), None)
        if run is None:
            continue
        if count >= MAX_MAPS:
            selection.left_out.append(f"{variant} on {task}")
        elif maps := _read_maps(run, task):
            selection.shown.append(SelectedMaps(run, task, maps))
            count += len(maps)
    return selection


def _main_first(runs: Runs, tasks: list[str]) -> list[tuple[str, str]]:
    """Return (variant, task): the main variant on every task, then the others on `tasks` in their order."""
    others = [(variant, task) for task in tasks for variant in runs.variants[1:]]
    return [(runs.main, task) for task in runs.tasks] + others


def _read_maps(run: Run, task: str) -> list[HeatMap]:
    """Read visits and rewards; empty for a file that is damaged, too large or without the task."""
    try:
        content = read_json_object(run.directory, "visit_maps.json")["tasks"][task]
        floor, slices = [str(row) for row in content["floor"]], content["slices"]
        height, width = shape = len(floor), len(floor[0])
        if not (0 < width <= MAX_FLOOR_SIDE and height <= min(MAX_FLOOR_SIDE, MAX_FLOOR_ASPECT * width)):
            raise ValueError("the floor cannot be drawn")
        if not 0 < len(slices) <= MAX_SLICES or {len(row) for row in floor} != {width}:
            raise ValueError("the slices or rows cannot be drawn")
        labels = [f"{short_number(part['from'])} to {short_number(part['to'])} steps" for part in slices]
        visits = np.stack([_grid(part["visits"], shape) for part in slices])
        sums = np.stack([_grid(part["intrinsic_reward"], shape) for part in slices])
    except DAMAGE_ERRORS:
        return []
    means = np.divide(sums, visits, out=np.zeros_like(sums), where=visits > 0)
    visit_slices, reward_slices = [], []
    for values, slices in ((visits, visit_slices), (means, reward_slices)):
        cells = values.astype(object)
        cells[visits == 0] = None
        slices += zip(labels, cells.tolist(), strict=True)
    title, name = f"{run.variant} on {task}", slug(run.variant, task)
    maps = [HeatMap(f"visits-{name}", f"{title}: visits", floor, visit_slices, "visits", logarithmic=True)]
    if means.any():
        unit = "intrinsic reward per visit"
        maps.append(HeatMap(f"reward-{name}", f"{title}: intrinsic reward", floor, reward_slices, unit))
    return maps


def _grid(rows: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return numbers [H, W]; raise ValueError if they have another shape or cannot be drawn."""
    values = np.asarray(rows, float)
    if values.shape != shape or not (np.abs(values) < LARGEST).all():
        raise ValueError("no map")
    return values


def _rooms(runs: Runs) -> list[Plot | Picture]:
    plots: list[Plot | Picture] = []
    for env, tasks in {run.env: run.task_text for run in runs.runs}.items():
        plots += section_plots("places", {name: runs.select(name, env=env) for name in runs.variants}, tasks)
    return plots + list(itertools.islice(_room_pictures(runs), MAX_ROOM_PICTURES))


def _room_pictures(runs: Runs) -> Iterator[Picture]:
    """Yield the first picture of rooms of each variant."""
    for variant in runs.variants:
        for run in runs.select(variant):
            if data := _room_picture(run.directory):
                yield Picture(slug("rooms", variant), f"{variant}, seed {run.seed}: rooms", "png", data)
                break


def _room_picture(directory: Path) -> bytes:
    """Read rooms.png, or draw rooms of a known layout; empty without either."""
    try:
        if safe_file(directory, "rooms.png"):
            return read_safe_file(directory, "rooms.png", MAX_PICTURE_BYTES)
        coverage = read_json_object(directory, "room_coverage.json")
        from byol_explore.report.figures import draw_rooms  # imports matplotlib

        return draw_rooms(coverage) if coverage["layout"] else b""
    except DAMAGE_ERRORS:
        return b""


KINDS = (".gif", ".webp")  # as recorded, and in published copies


class FilmFile(NamedTuple):
    run: Run
    task: str
    when: str  # before or after training
    path: Path

    def read(self) -> bytes:
        """Read the film; raise OSError or ValueError if it was removed or changed since it was selected."""
        return read_safe_file(self.run.directory, self.path.relative_to(self.run.directory).as_posix(), MAX_FILM_BYTES)


def films(runs: Runs) -> Section:
    """Show films up to a number of bytes, and name the others."""
    selection = select_films(runs)
    if not selection.shown and not selection.left_out:
        run = runs.select(runs.main)[0]
        command = f"byol-explore film {shlex.quote(display_path(run.directory, run.root))}"
        words = ["No run has filmed its episodes. Films are made after training, for example by", f"    {command}"]
        return Section("films", "Episodes", [Text(words)])
    words = ["Episodes before and after training, with the intrinsic reward under the frames."]
    if selection.left_out:
        words.append(f"Not shown, because the page would become too large: {join_list(selection.left_out)}.")
    return Section("films", "Episodes", [Text(words), *_pictures(selection.shown)])


def select_films(runs: Runs) -> Selection[FilmFile]:
    """Select films of each variant's first filmed seed, the main variant first, within MAX_FILM_BYTES."""
    selection, free = Selection[FilmFile]([], []), MAX_FILM_BYTES
    for variant, task in _main_first(runs, runs.tasks):
        files = next((files for run in runs.select(variant, task) if (files := _film_files(run, task))), [])
        size = sum(map(_size, files))
        if size > free:
            selection.left_out.append(f"{variant} on {task}")
        else:
            free -= size
            selection.shown.extend(files)
    return selection


def _film_files(run: Run, task: str) -> list[FilmFile]:
    films = []
    for when in ("before", "after"):
        paths = (safe_file(run.directory, f"films/{env_dir_name(task)}-{when}{kind}") for kind in KINDS)
        films += [FilmFile(run, task, when, path) for path in paths if path][:1]
    return films


def _size(film: FilmFile) -> int:
    try:
        return film.path.stat().st_size
    except OSError:  # removed since it was found
        return 0


def _pictures(films: list[FilmFile]) -> Iterator[Picture]:
    """Yield the films that still exist."""
    for film in films:
        variant, task, when = film.run.variant, film.task, film.when
        title, kind = f"{variant} on {task}, {when} training", film.path.suffix.removeprefix(".")
        with contextlib.suppress(OSError, ValueError):
            yield Picture(slug("film", variant, task, when), title, kind, film.read())
