"""Draw runs on Montezuma's Revenge side by side: discoveries over time, and visits in the first room.

python benchmarks/montezuma.py runs/byol-explore-intrinsic runs/rnd-intrinsic runs/none-extrinsic --out montezuma.png
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byol_explore.errors import UserError
from byol_explore.report.figures import draw_visits
from byol_explore.storage.metrics import METRICS, read_metrics
from byol_explore.storage.run_directory import load_config

CURVES = {"cells_visited": "Places found in the first room"} | {
    metric.name: metric.title for metric in METRICS if metric.name in ("episode_length", "entropy")
}


@dataclass(frozen=True)
class Arguments:
    """Draw a figure of runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories."""
    out: Path = Path("montezuma.png")
    """Image file to write."""


def draw(runs: tuple[Path, ...], path: Path) -> None:
    """Draw a row of curves above a row of maps, one map per run."""
    columns = max(len(CURVES), len(runs))
    figure = Figure(figsize=(4.7 * columns, 8), layout="constrained")
    curves, maps = figure.subplots(2, columns, squeeze=False)
    for axis in (*curves[len(CURVES) :], *maps[len(runs) :]):
        axis.axis("off")
    for run, axis in zip(runs, maps, strict=False):
        name, coverage = run_name(run), read_coverage(run)
        draw_curves(curves, read_metrics(run / "metrics.jsonl"), name)
        draw_visits(axis, coverage)
        axis.set_title(f"{name}: {len(coverage['visits'])} places")
    curves[0].legend()
    figure.savefig(path, dpi=80)


def draw_curves(axes: Any, rows: list[dict[str, Any]], name: str) -> None:
    axis: Axes
    for axis, (metric, title) in zip(axes, CURVES.items(), strict=False):
        known = [row for row in rows if row.get(metric) is not None]
        axis.plot([row["steps"] / 1e6 for row in known], [row[metric] for row in known], label=name)
        axis.set_title(title)
        axis.set_xlabel("agent steps (millions)")
        axis.grid(alpha=0.3)


def run_name(run: Path) -> str:
    config = load_config(run)
    return f"{config.method}, {config.regime}"


def read_coverage(run: Path) -> dict[str, Any]:
    try:
        return json.loads((run / "room_coverage.json").read_text())
    except OSError as error:
        raise UserError(f"{run} has no room_coverage.json: it is not a run on Montezuma's Revenge") from error


def main(arguments: Arguments) -> None:
    try:
        draw(arguments.runs, arguments.out)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
