"""Figures of a report for papers and slides, in the colours of the page."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

from byol_explore.report.model import Bars, HeatMap, Plot
from byol_explore.report.palette import RAMP, Stroke, family_stroke, stroke

_MAP_COLUMNS = 4
_MARKS = {"D": "∩", "G": "⚑", "o": "●"}


def draw_figure(block: Plot | Bars | HeatMap, variants: list[str]) -> Figure:
    """The figure of a block, without pyplot, whose state is the caller's."""
    match block:
        case Plot():
            return _draw_plot(block, variants)
        case Bars():
            return _draw_bars(block, variants)
        case HeatMap():
            return _draw_map(block)


def _draw_plot(plot: Plot, variants: list[str]) -> Figure:
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axis = figure.subplots()
    strokes = _strokes([curve.variant for curve in plot.curves], variants)
    for order, (curve, line) in enumerate(zip(plot.curves, strokes, strict=True)):
        mean, low, high = (_array(values) for values in (curve.mean, curve.low, curve.high))
        axis.fill_between(curve.x, low, high, color=line.light, alpha=0.16, linewidth=0)
        dashes = (0, tuple(length / 2 for length in line.dashes)) if line.dashes else "-"
        single = np.isfinite(mean).sum() == 1
        axis.plot(
            curve.x, mean, color=line.light, linestyle=dashes, label=curve.variant, marker="o" if single else "",
            zorder=3 - order / 1000,
        )  # fmt: skip
    _style(axis, plot.title, plot.x_label, plot.y_label)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    if plot.logarithmic:
        axis.set_yscale("log")
    if plot.y_range:
        room = 0.03 * (plot.y_range[1] - plot.y_range[0])
        axis.set_ylim(plot.y_range[0] - room, plot.y_range[1] + room)
    if plot.curves:
        figure.legend(loc="outside lower center", ncols=min(len(plot.curves), 4), frameon=False, fontsize=8)
    return figure


def _draw_bars(bars: Bars, variants: list[str]) -> Figure:
    figure = Figure(figsize=(5.6, 0.8 + 0.38 * max(len(bars.variants), 1)), layout="constrained")
    axis = figure.subplots()
    low, high = _array(bars.low), _array(bars.high)
    for place, (name, value, line) in enumerate(
        zip(bars.variants, _array(bars.values), _strokes(bars.variants, variants), strict=True)
    ):
        axis.barh(place, value, height=0.6, color=line.light, alpha=0.22)
        axis.plot([low[place], high[place]], [place, place], color=line.light, linewidth=2)
        axis.plot([value], [place], "o", color=line.light, label=name)
    axis.set_yticks(range(len(bars.variants)), bars.variants)
    axis.invert_yaxis()
    _style(axis, bars.title, bars.x_label, "")
    axis.grid(visible=False, axis="y")
    return figure


def _draw_map(heat_map: HeatMap) -> Figure:
    """All slices side by side on one scale."""
    height, width = len(heat_map.floor), max(map(len, heat_map.floor))
    count = max(len(heat_map.slices), 1)
    columns = min(count, _MAP_COLUMNS)
    rows = -(-count // columns)
    panel = 2.6
    figure = Figure(figsize=(panel * columns + 0.8, (panel * height / width + 0.35) * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    norm = _norm(heat_map)
    colours = LinearSegmentedColormap.from_list("report", RAMP, bad="#eef0f1")
    image = None
    for axis, (label, values) in zip(axes.flat, heat_map.slices, strict=False):
        shown = np.ma.masked_invalid(np.array([_array(row) for row in values]))
        image = axis.imshow(shown, norm=norm, cmap=colours, extent=(0, width, height, 0))
        axis.set_title(label, fontsize=8)
        _draw_floor(axis, heat_map.floor)
    for axis in axes.flat:
        axis.axis("off")
    figure.suptitle(heat_map.title, fontsize=10)
    if image is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.8, format=FuncFormatter(lambda value, _: f"{value:,g}"))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
        bar.ax.tick_params(labelsize=8)
        bar.set_label(heat_map.unit, fontsize=8)
    return figure


def _draw_floor(axis: Axes, floor: list[str]) -> None:
    for y, line in enumerate(floor):
        for wall, cells in groupby(range(len(line)), key=lambda x: line[x] == "#"):
            first, *rest = cells
            if wall:
                axis.add_patch(Rectangle((first, y), len(rest) + 1, 1, facecolor="#646b75", linewidth=0))
        for x, what in enumerate(line):
            if what in _MARKS:
                axis.text(x + 0.5, y + 0.52, _MARKS[what], ha="center", va="center", fontsize=7, color="white")


def _norm(heat_map: HeatMap) -> Normalize:
    """Of all slices together; a logarithmic one begins at the smallest positive number."""
    values = np.array([value for _, rows in heat_map.slices for row in rows for value in row if value is not None])
    values = values[np.isfinite(values)]
    if heat_map.logarithmic:
        values = values[values > 0]
        return LogNorm(values.min(), values.max() * 1.001) if values.size else LogNorm(1, 10)
    return Normalize(min(values.min(), 0), max(values.max(), 0)) if values.size else Normalize(0, 1)


def _strokes(names: list[str], variants: list[str]) -> list[Stroke]:
    others = [name for name in names if name not in variants]
    return [stroke(n, variants) if n in variants else family_stroke(others.index(n), len(others)) for n in names]


def _style(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(x_label, fontsize=9)
    axis.set_ylabel(y_label, fontsize=9)
    axis.tick_params(labelsize=8, length=0)
    axis.grid(color="#eceeef")
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c9cdd2")


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
