"""Figures drawn by matplotlib: those of a report, curves.png of a run, rooms of Montezuma's Revenge.

Nothing uses pyplot: its state belongs to the caller, who may draw in a notebook.
"""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

from byol_explore.report.model import RAMP, Bars, Curve, HeatMap, Plot, line_styles
from byol_explore.report.read_runs import MAX_FIGURE_HEIGHT, MAX_LEGEND_NAME
from byol_explore.storage.metrics import LOG_NAME, STEPS, panels, read_metrics, to_float, value_of
from byol_explore.utils.files import atomic_write
from byol_explore.utils.formatting import escape_unprintable, short_number

_LEGEND_COLUMNS = 4
_MAP_COLUMNS = 4
_MARKS = {"D": "∩", "G": "⚑", "o": "●"}  # door, goal, another object


def draw_figure(block: Plot | Bars | HeatMap, variants: list[str]) -> Figure:
    """Draw a block; `variants` in the order of the legend decide the colours."""
    match block:
        case Plot():
            return _draw_plot(block, variants)
        case Bars():
            return _draw_bars(block, variants)
        case HeatMap():
            return _draw_map(block)


def _draw_plot(plot: Plot, variants: list[str]) -> Figure:
    rows = -(-len(plot.curves) // _LEGEND_COLUMNS)
    figure, axis = _figure(3.3 + 0.2 * rows, left=0.75, bottom=0.55 + 0.2 * rows)
    _draw_curves_on(axis, plot, variants)
    if plot.curves:
        figure.legend(loc="lower center", ncols=min(len(plot.curves), _LEGEND_COLUMNS), frameon=False, fontsize=8)
    return figure


def figure_bytes(figure: Figure, kind: str, dpi: int) -> bytes:
    """Return the content of a file of a figure, png or svg."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _draw_curves_on(axis: Axes, plot: Plot, variants: list[str]) -> None:
    styles = line_styles([curve.variant for curve in plot.curves], variants)
    for order, (curve, style) in enumerate(zip(plot.curves, styles, strict=True)):
        mean, low, high = np.array([curve.mean, curve.low, curve.high], float)  # None becomes NaN
        if np.isfinite(low).any():
            axis.fill_between(curve.x, low, high, color=style.light, alpha=0.16, linewidth=0)
        dashes = (0, tuple(length / 2 for length in style.dashes)) if style.dashes else "-"
        marker = "o" if np.isfinite(mean).sum() == 1 else ""  # a line of one point is invisible
        axis.plot(
            curve.x, mean, color=style.light, linestyle=dashes, label=_short_name(curve.variant), marker=marker,
            zorder=3 - order / 99,
        )  # fmt: skip
    _style(axis, plot.title, plot.x_label, plot.y_label)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    if plot.logarithmic:
        axis.set_yscale("log")
    if plot.y_range:
        margin = 0.03 * (plot.y_range[1] - plot.y_range[0])
        axis.set_ylim(plot.y_range[0] - margin, plot.y_range[1] + margin)


def _draw_bars(block: Bars, variants: list[str]) -> Figure:
    names = [_short_name(bar.variant) for bar in block.bars]
    longest = max(map(len, names), default=0)
    height = 0.9 + 0.36 * max(len(names), 1)
    figure, axis = _figure(height, left=0.25 + 0.075 * longest, bottom=0.5)
    styles = line_styles([bar.variant for bar in block.bars], variants)
    for y, (bar, style) in enumerate(zip(block.bars, styles, strict=True)):
        value, low, high = np.array(bar[1:], float)  # None becomes NaN
        axis.barh(y, value, height=0.6, color=style.light, alpha=0.22)
        axis.plot([low, high], [y, y], color=style.light, linewidth=2)
        axis.plot([value], [y], "o", color=style.light)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    _style(axis, block.title, block.x_label, "")
    axis.grid(visible=False, axis="y")
    return figure


def _figure(height: float, *, left: float, bottom: float) -> tuple[Figure, Axes]:
    """Make a figure of one axis with margins in inches."""
    # matplotlib's layout engines take longer than the drawing
    width, height, right, top = 5.6, min(height, MAX_FIGURE_HEIGHT), 0.2, 0.35
    figure = Figure(figsize=(width, height))
    place = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    return figure, figure.add_axes(place)


def _draw_map(heat_map: HeatMap) -> Figure:
    """Draw all slices side by side on one scale."""
    columns = min(max(len(heat_map.slices), 1), _MAP_COLUMNS)
    rows = -(-len(heat_map.slices) // columns)
    panel = 2.6 * len(heat_map.floor) / max(map(len, heat_map.floor))
    width, height = 2.75 * columns + 0.9, (panel + 0.3) * rows + 0.35
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.22 / height, _escape_math(heat_map.title), fontsize=10)
    colours = ScalarMappable(_norm(heat_map), LinearSegmentedColormap.from_list("report", RAMP))
    for index, (label, values) in enumerate(heat_map.slices):
        row, column = divmod(index, columns)
        bottom = height - 0.35 - (row + 1) * (panel + 0.3)
        axis = figure.add_axes(((0.1 + 2.75 * column) / width, bottom / height, 2.6 / width, panel / height))
        _draw_slice(axis, heat_map.floor, np.array(values, float), colours)
        axis.set_title(label, fontsize=8)
    tall = min(panel * rows, height - 0.75)
    bar = figure.add_axes(((width - 0.75) / width, 0.15 / height, 0.12 / width, tall / height))
    figure.colorbar(colours, cax=bar, format=FuncFormatter(lambda value, _: f"{value:,g}"))
    bar.yaxis.set_minor_formatter(NullFormatter())
    bar.tick_params(labelsize=7)
    bar.set_title(heat_map.unit, fontsize=7, loc="left")
    return figure


def _draw_slice(axis: Axes, floor: list[str], values: np.ndarray, colours: ScalarMappable) -> None:
    """Draw cells in the colours of their numbers; walls and cells without a number are grey."""
    image = colours.to_rgba(np.ma.masked_invalid(values))
    image[~np.isfinite(values)] = to_rgba("#eef0f1")
    for y, line in enumerate(floor):
        for x, symbol in enumerate(line):
            if symbol == "#":
                image[y, x] = to_rgba("#646b75")
            elif symbol in _MARKS:
                axis.text(x, y, _MARKS[symbol], ha="center", va="center", fontsize=7, color="white")
    axis.imshow(image)
    axis.axis("off")


def _norm(heat_map: HeatMap) -> Normalize:
    """Return the scale of all slices; a logarithmic one begins at the smallest positive number."""
    values = np.array([rows for _, rows in heat_map.slices], float)  # None becomes NaN
    values = values[np.isfinite(values)]
    if heat_map.logarithmic:
        values = values[values > 0]
        return LogNorm(values.min(), values.max() * 1.001) if values.size else LogNorm(1, 10)
    return Normalize(min(values.min(), 0), max(values.max(), 0)) if values.size else Normalize(0, 1)


def _style(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set_title(_escape_math(title), fontsize=10, loc="left")
    axis.set_xlabel(x_label, fontsize=9)
    axis.set_ylabel(y_label, fontsize=9)
    axis.tick_params(labelsize=8, length=0)
    axis.grid(color="#eceeef")
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c9cdd2")


def _short_name(variant: str) -> str:
    """Return the end of a long name."""
    short = variant if len(variant) <= MAX_LEGEND_NAME else f"…{variant[1 - MAX_LEGEND_NAME :]}"
    return _escape_math(short)


def _escape_math(text: str) -> str:
    # matplotlib reads text between dollars as mathematics
    return text.replace("$", r"\$")


_PANEL_COLUMNS = 4


def draw_curves(directory: Path) -> Path | None:
    """Write curves.png of a run, with a panel for each metric that it logged; None if nothing was logged."""
    rows = read_metrics(directory / LOG_NAME)
    if not rows:
        return None
    plots = run_plots(rows)
    height = -(-len(plots) // _PANEL_COLUMNS)
    figure = Figure(figsize=(16, 3 * height), layout="constrained")
    for index, plot in enumerate(plots, 1):
        axis = figure.add_subplot(height, _PANEL_COLUMNS, index)
        _draw_curves_on(axis, plot, [curve.variant for curve in plot.curves])
        if len(plot.curves) > 1:
            axis.legend(fontsize=7, ncols=1 if len(plot.curves) < 6 else 2, framealpha=0.5)
    figure.suptitle(escape_unprintable(directory), parse_math=False)
    atomic_write(directory / "curves.png", figure_bytes(figure, "png", dpi=100))
    return directory / "curves.png"


def run_plots(rows: list[dict[str, Any]]) -> list[Plot]:
    """Return the panels of curves.png that have values; the first metric of a panel decides its axis."""
    plots = []
    for title, group in panels(rows[-1]).items():
        logged = [(each, curve) for each in group if (curve := _logged_curve(each.name, rows)).x]
        if logged:
            first, curves = logged[0][0], [curve for _, curve in logged]
            logarithmic = first.logarithmic and all(value and value > 0.0 for curve in curves for value in curve.mean)
            plots.append(Plot(title, title, STEPS.unit, first.unit, curves, first.range, logarithmic))
    return plots


def _logged_curve(name: str, rows: list[dict[str, Any]]) -> Curve:
    """Return the finite values of a metric."""
    points = [(row["steps"], value) for row in rows if math.isfinite(value := to_float(value_of(row, name)))]
    unknown: list[float | None] = [None] * len(points)
    return Curve(name, [step for step, _ in points], [value for _, value in points], unknown, unknown)


# Rooms of the first level from top to bottom; a floor is two rooms wider than the one above it.
_FLOORS = (range(3), range(3, 8), range(8, 15), range(15, 24))
# (column from the pyramid's axis, floor)
ROOM_POSITIONS = {room: (room - rooms[len(rooms) // 2], floor) for floor, rooms in enumerate(_FLOORS) for room in rooms}
FIRST_ROOM = 1


def draw_rooms(coverage: dict[str, Any]) -> bytes:
    """Draw the content of a room_coverage.json as a PNG, by its layout (`EnvSpec.room_layout`)."""
    if coverage["layout"] != "pyramid":
        raise ValueError(f"room layout {coverage['layout']!r} is unknown")
    entered = {room: step for level, room, step in coverage["rooms"] if level == 0 and room in ROOM_POSITIONS}
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    pyramid, first_room = figure.subplots(1, 2, width_ratios=(2, 1))
    _draw_pyramid(pyramid, entered, later_rooms=sum(level > 0 for level, _, _ in coverage["rooms"]))
    draw_visits(first_room, coverage)
    return figure_bytes(figure, "png", dpi=110)


def _draw_pyramid(axis: Axes, entered: dict[int, int], later_rooms: int) -> None:
    """Draw the first level of Montezuma's Revenge; `entered` has the steps of the first entries by room."""
    latest = max(entered.values(), default=1) or 1
    for room, (column, floor) in ROOM_POSITIONS.items():
        step = entered.get(room)
        colour = "#e8e8e8" if step is None else (0.15 + 0.6 * step / latest, 0.65, 0.45 + 0.3 * step / latest)
        axis.add_patch(Rectangle((column - 0.5, -floor - 0.5), 0.96, 0.92, facecolor=colour, edgecolor="#777777"))
        axis.text(column, -floor + 0.18, str(room), ha="center", va="center", fontsize=9, color="#333333")
        if step is not None:
            axis.text(column, -floor - 0.18, short_number(step), ha="center", va="center", fontsize=8, color="#111111")
    axis.set_xlim(-4.6, 4.6)
    axis.set_ylim(-3.6, 0.6)
    axis.axis("off")
    more = f", and {later_rooms} on later levels" if later_rooms else ""
    axis.set_title(f"{len(entered)} of 24 rooms entered{more}; numbers below: environment steps at the first entry")


def draw_visits(axis: Axes, coverage: dict[str, Any]) -> None:
    """Draw the steps spent in each cell of the first room, oriented like the screen."""
    cell = coverage["cell"]
    visits = np.zeros((256 // cell, 160 // cell + 1))
    for level, room, x, y, count in coverage["visits"]:
        if (level, room) == (0, FIRST_ROOM) and x < visits.shape[1]:
            visits[y, x] += count
    shown = np.ma.masked_equal(visits, 0)
    image = axis.imshow(
        shown, origin="lower", norm=LogNorm(vmin=1, vmax=max(visits.max(), 2)), cmap="viridis",
        extent=(0, visits.shape[1] * cell, 0, 256), aspect="auto",
    )  # fmt: skip
    rows = np.flatnonzero(visits.any(axis=1))
    if rows.size:
        axis.set_ylim(rows[0] * cell - cell, (rows[-1] + 2) * cell)
    axis.set_title(f"first room: {int(np.count_nonzero(visits))} places")
    axis.set_xlabel("x")
    axis.set_ylabel("y")
    axis.figure.colorbar(image, ax=axis, label="steps")
