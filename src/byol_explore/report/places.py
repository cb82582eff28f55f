"""Where the agent was, and where it was curious: maps of grid worlds, and rooms of games that know theirs."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.report.load import Run, Runs
from byol_explore.report.logs import LARGEST
from byol_explore.report.metrics_table import plotted_in
from byol_explore.report.model import Block, HeatMap, Picture, Section, Text
from byol_explore.report.outcomes import Outcomes, normalized
from byol_explore.report.own_files import DAMAGE, own_file, read_object, read_own
from byol_explore.report.series import plot_metric
from byol_explore.report.words import amount, listed, slug

MOST_MAPS = 12  # pairs of them: visits and rewards
MOST_PYRAMIDS = 4
MOST_SLICES = 16  # of a map; training writes 8
LONGEST_SIDE = 1_000  # of a floor, in cells
STEEPEST = 8  # a floor is at most so many times as high as it is wide
MOST_PICTURE = 6_000_000  # bytes

Grid = list[list[float | None]]


def places(runs: Runs, found: Outcomes) -> Section:
    """Maps of the main variant on every task, then of others where variants differ most, as long as there is room."""
    blocks = [*_maps(runs, found), *_rooms(runs)]
    return Section(
        "places", "Where the agent was curious", blocks or [Text(["No run has left a map of where it was."])]
    )


class Mapped(NamedTuple):
    """Runs and tasks whose maps are shown, and those that there is no room for."""

    shown: list[tuple[Run, str, list[HeatMap]]]
    left_out: list[str]


def _maps(runs: Runs, found: Outcomes) -> list[Block]:
    pairs = mapped(runs, found)
    if not pairs.shown:
        return []
    words = [
        "Visits are counted on a logarithmic scale, rewards are means per visit (blank: never visited), "
        "of each variant's first seed."
    ]
    if pairs.left_out:
        words.append(f"Not shown, to keep this short: {listed(pairs.left_out)}.")
    return [Text(words), *(one for _, _, maps in pairs.shown for one in maps)]


def mapped(runs: Runs, found: Outcomes) -> Mapped:
    """The maps that a report has room for."""
    wanted = [(runs.main, task) for task in runs.tasks]
    wanted += [(variant, task) for task in _most_telling(runs, found) for variant in runs.variants[1:]]
    pairs, count = Mapped([], []), 0
    for variant, task in wanted:
        run = next((run for run in runs.of(variant, task) if own_file(run.directory, "maps.json")), None)
        if run is None:
            continue
        if count >= 2 * MOST_MAPS:
            pairs.left_out.append(f"{variant} on {task}")
        elif maps := _map_pair(run, task):
            pairs.shown.append((run, task, maps))
            count += len(maps)
    return pairs


def _most_telling(runs: Runs, found: Outcomes) -> list[str]:
    """Tasks with the widest gap between the best and the worst variant first."""

    def gap(task: str) -> float:
        scores = [normalized(task, entry.best_mean) for (_, name), entry in found.items() if name == task]
        return max(scores) - min(scores) if scores else 0.0

    return sorted(runs.tasks, key=gap, reverse=True)


def _map_pair(run: Run, task: str) -> list[HeatMap]:
    """Visits and rewards; nothing from a file that is damaged or does not know the task."""
    try:
        facts = read_object(run.directory, "maps.json")["tasks"][task]
        floor = [str(row) for row in facts["floor"]]
        visits = [(_label(part), _visits(part)) for part in facts["slices"]]
        rewards = [(_label(part), _rewards(part)) for part in facts["slices"]]
    except DAMAGE:
        return []
    sizes = {(len(grid), *{len(row) for row in grid}) for _, grid in (*visits, *rewards)}
    if not _can_be_drawn(floor, len(visits)) or sizes != {(len(floor), *{len(row) for row in floor})}:
        return []
    title, name = f"{run.variant} on {task}", slug(run.variant, task)
    maps = [HeatMap(f"visits-{name}", f"{title}: visits", floor, visits, "visits", logarithmic=True)]
    if any(value for _, grid in rewards for row in grid for value in row):
        maps.append(
            HeatMap(f"reward-{name}", f"{title}: intrinsic reward", floor, rewards, "intrinsic reward per visit")
        )
    return maps


def _can_be_drawn(floor: list[str], slices: int) -> bool:
    """Whether there is something, and not more than a figure has room for."""
    sides = (len(floor), *map(len, floor))
    fits = min(sides) > 0 and max(sides) <= LONGEST_SIDE and len(floor) <= STEEPEST * len(floor[0])
    return fits and 0 < slices <= MOST_SLICES


def _label(part: dict[str, Any]) -> str:
    return f"{amount(part['from'])} to {amount(part['to'])} steps"


def _visits(part: dict[str, Any]) -> Grid:
    return [[count or None for count in row] for row in _numbers(part["visits"]).tolist()]


def _numbers(rows: Any) -> np.ndarray:
    """As an array [H, W]; a ValueError for what cannot be drawn."""
    values = np.asarray(rows, float)
    if values.ndim != 2 or not (np.abs(values) < LARGEST).all():
        raise ValueError("no map")
    return values


def _rewards(part: dict[str, Any]) -> Grid:
    visits, sums = _numbers(part["visits"]), _numbers(part["intrinsic_reward"])
    mean = np.divide(sums, visits, out=np.zeros_like(sums), where=visits > 0)
    return [
        [float(value) if count else None for value, count in zip(*rows, strict=True)]
        for rows in zip(mean, visits, strict=True)
    ]


def _rooms(runs: Runs) -> list[Block]:
    blocks: list[Block] = []
    for env, tasks in {run.env: run.task_words for run in runs.runs}.items():
        of = {name: [run for run in runs.of(name) if run.env == env] for name in runs.variants}
        for metric in plotted_in("places"):
            blocks += plot_metric(metric, of, tasks)
    first = [group[0] for name in runs.variants if (group := runs.of(name, "atari:montezuma_revenge"))]
    pyramids = [(run, data) for run in first[:MOST_PYRAMIDS] if (data := _pyramid(run.directory)) is not None]
    return blocks + [
        Picture(slug("pyramid", run.variant), f"{run.variant}, seed {run.seed}: rooms of the pyramid", "png", data)
        for run, data in pyramids
    ]


def _pyramid(directory: Path) -> bytes | None:
    """The run's own picture, or a new one of what it knows."""
    try:
        if own_file(directory, "rooms.png"):
            return read_own(directory, "rooms.png", MOST_PICTURE)
        coverage = read_object(directory, "coverage.json")
        from byol_explore.report.pyramid import draw_pyramid  # brings in matplotlib

        with tempfile.TemporaryDirectory() as folder:
            return draw_pyramid(coverage, Path(folder) / "rooms.png").read_bytes()
    except DAMAGE:
        return None
