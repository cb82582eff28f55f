"""The learning curves of one run, drawn when it ends."""

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from byol_explore.report import metrics_table
from byol_explore.report.drawing import scale_axis
from byol_explore.report.logs import PLAIN, number, read_metrics
from byol_explore.report.metrics_table import STEPS, Metric, value_of
from byol_explore.report.words import printable

COLUMNS = 4


def draw_curves(directory: Path) -> Path | None:
    """curves.png of a run, with a panel for everything that it logs; None when nothing was logged."""
    rows = read_metrics(directory / PLAIN)
    if not rows:
        return None
    panels = {
        title: known for title, group in metrics_table.panels(rows[-1]).items() if (known := _logged(group, rows))
    }
    height = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(16, 3 * height), layout="constrained")  # without pyplot, whose state is the caller's
    for index, panel in enumerate(panels.items(), 1):
        _panel(figure.add_subplot(height, COLUMNS, index), rows, *panel)
    figure.suptitle(printable(directory), parse_math=False)
    path = directory / "curves.png"
    temporary = directory / "curves.tmp.png"
    figure.savefig(temporary, dpi=100)
    temporary.replace(path)
    return path


def _logged(metrics: list[Metric], rows: list[dict[str, Any]]) -> list[Metric]:
    return [metric for metric in metrics if _points(metric, rows)]


def _points(metric: Metric, rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Steps and values, as far as they are known."""
    points = [(row["steps"], number(value_of(row, metric.name))) for row in rows]
    return [(step, value) for step, value in points if not math.isnan(value)]


def _panel(axis: Axes, rows: list[dict[str, Any]], title: str, metrics: list[Metric]) -> None:
    """Metrics that share a panel have one kind of axis, that of the first."""
    lowest = math.inf
    for metric in metrics:
        points = _points(metric, rows)
        [drawn] = axis.plot(*zip(*points, strict=True), label=metric.name)
        if len(points) == 1:
            drawn.set_marker("o")  # a line of one point cannot be seen
        lowest = min(lowest, *(value for _, value in points))
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(STEPS.unit)
    axis.set_ylabel(metrics[0].unit)
    axis.grid(alpha=0.3)
    scale_axis(axis, metrics[0].range, logarithmic=metrics[0].logarithmic and lowest > 0.0)
    if len(metrics) > 1:
        axis.legend()
