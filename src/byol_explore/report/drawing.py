"""Figures of a report for papers and slides, in the colours of the page."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

from byol_explore.report.model import Bars, HeatMap, Plot
from byol_explore.report.palette import RAMP, Stroke, family_stroke, stroke

HIGHEST = 300  # inches: a figure with more pixels than 65,535 cannot be drawn
_LEGEND_COLUMNS = 4
_MAP_COLUMNS = 4
_LONGEST = 40  # letters of a name that a figure has room for
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
    rows = -(-len(plot.curves) // _LEGEND_COLUMNS)
    figure, axis = _figure(5.6, 3.3 + 0.2 * rows, left=0.75, right=0.2, bottom=0.55 + 0.2 * rows, top=0.35)
    strokes = _strokes([curve.variant for curve in plot.curves], variants)
    for order, (curve, line) in enumerate(zip(plot.curves, strokes, strict=True)):
        mean, low, high = (_array(values) for values in (curve.mean, curve.low, curve.high))
        axis.fill_between(curve.x, low, high, color=line.light, alpha=0.16, linewidth=0)
        dashes = (0, tuple(length / 2 for length in line.dashes)) if line.dashes else "-"
        marker = "o" if np.isfinite(mean).sum() == 1 else ""
        axis.plot(
            curve.x, mean, color=line.light, linestyle=dashes, label=_name(curve.variant), marker=marker,
            zorder=3 - order / 99,
        )  # fmt: skip
    _style(axis, plot.title, plot.x_label, plot.y_label)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    scale_axis(axis, plot.y_range, logarithmic=plot.logarithmic)
    if plot.curves:
        figure.legend(loc="lower center", ncols=min(len(plot.curves), _LEGEND_COLUMNS), frameon=False, fontsize=8)
    return figure


def scale_axis(axis: Axes, y_range: tuple[float, float] | None, *, logarithmic: bool) -> None:
    """The vertical axis as a metric wants it; a known range with some room around it."""
    if logarithmic:
        axis.set_yscale("log")
    if y_range:
        room = 0.03 * (y_range[1] - y_range[0])
        axis.set_ylim(y_range[0] - room, y_range[1] + room)


def _draw_bars(bars: Bars, variants: list[str]) -> Figure:
    names = [_name(variant) for variant in bars.variants]
    longest = max(map(len, names), default=0)
    height = 0.9 + 0.36 * max(len(bars.variants), 1)
    figure, axis = _figure(5.6, height, left=0.25 + 0.075 * longest, right=0.2, bottom=0.5, top=0.35)
    low, high = _array(bars.low), _array(bars.high)
    strokes = _strokes(bars.variants, variants)
    for place, (value, line) in enumerate(zip(_array(bars.values), strokes, strict=True)):
        axis.barh(place, value, height=0.6, color=line.light, alpha=0.22)
        axis.plot([low[place], high[place]], [place, place], color=line.light, linewidth=2)
        axis.plot([value], [place], "o", color=line.light)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    _style(axis, bars.title, bars.x_label, "")
    axis.grid(visible=False, axis="y")
    return figure


def _figure(
    width: float, height: float, *, left: float, right: float, bottom: float, top: float
) -> tuple[Figure, Axes]:
    """A figure of one axis with margins in inches: placing things by their size takes longer than drawing them."""
    height = min(height, HIGHEST)
    figure = Figure(figsize=(width, height))
    place = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    return figure, figure.add_axes(place)


def _draw_map(heat_map: HeatMap) -> Figure:
    """All slices side by side on one scale."""
    columns = min(max(len(heat_map.slices), 1), _MAP_COLUMNS)
    rows = -(-len(heat_map.slices) // columns)
    panel = 2.6 * len(heat_map.floor) / max(map(len, heat_map.floor))
    width, height = 2.75 * columns + 0.9, (panel + 0.3) * rows + 0.35
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.22 / height, _plain(heat_map.title), fontsize=10)
    colours = ScalarMappable(_norm(heat_map), LinearSegmentedColormap.from_list("report", RAMP))
    for index, (label, values) in enumerate(heat_map.slices):
        row, column = divmod(index, columns)
        bottom = height - 0.35 - (row + 1) * (panel + 0.3)
        axis = figure.add_axes(((0.1 + 2.75 * column) / width, bottom / height, 2.6 / width, panel / height))
        _draw_slice(axis, heat_map.floor, np.array([_array(line) for line in values]), colours)
        axis.set_title(label, fontsize=8)
    tall = min(panel * rows, height - 0.75)
    bar = figure.add_axes(((width - 0.75) / width, 0.15 / height, 0.12 / width, tall / height))
    figure.colorbar(colours, cax=bar, format=FuncFormatter(lambda value, _: f"{value:,g}"))
    bar.yaxis.set_minor_formatter(NullFormatter())
    bar.tick_params(labelsize=7)
    bar.set_title(heat_map.unit, fontsize=7, loc="left")
    return figure


def _draw_slice(axis: Axes, floor: list[str], values: np.ndarray, colours: ScalarMappable) -> None:
    """Cells in the colours of their numbers, walls and never visited ones in grey."""
    image = colours.to_rgba(np.ma.masked_invalid(values))
    image[~np.isfinite(values)] = to_rgba("#eef0f1")
    for y, line in enumerate(floor):
        for x, what in enumerate(line):
            if what == "#":
                image[y, x] = to_rgba("#646b75")
            elif what in _MARKS:
                axis.text(x, y, _MARKS[what], ha="center", va="center", fontsize=7, color="white")
    axis.imshow(image)
    axis.axis("off")


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
    axis.set_title(_plain(title), fontsize=10, loc="left")
    axis.set_xlabel(x_label, fontsize=9)
    axis.set_ylabel(y_label, fontsize=9)
    axis.tick_params(labelsize=8, length=0)
    axis.grid(color="#eceeef")
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c9cdd2")


def _name(variant: str) -> str:
    """For a legend; of a long one the end."""
    return _plain(variant if len(variant) <= _LONGEST else f"…{variant[1 - _LONGEST :]}")


def _plain(text: str) -> str:
    """For matplotlib, which takes what stands between dollars for mathematics."""
    return text.replace("$", r"\$")


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
