"""Figures of a report."""

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from byol_explore.report import figures
from byol_explore.report.figures import draw_figure
from byol_explore.report.model import Bar, Bars, Curve, HeatMap, Plot, line_style
from report.samples import VARIANTS, sample_map, sample_plot


def test_curves_have_page_colours_and_gaps_at_unknown_values() -> None:
    [axis] = draw_figure(sample_plot("p", "Success"), VARIANTS).axes
    assert [line.get_color() for line in axis.lines] == [line_style(variant, VARIANTS).light for variant in VARIANTS]
    assert np.isnan(np.asarray(axis.lines[0].get_ydata())[:2]).all()
    assert axis.get_title(loc="left") == "Success"


def test_logarithmic_plot_has_a_logarithmic_axis() -> None:
    [axis] = draw_figure(sample_plot("p", "Error")._replace(logarithmic=True, y_range=None), VARIANTS).axes
    assert axis.get_yscale() == "log"


def test_single_point_has_a_marker() -> None:
    curve = Curve("rnd", [1.0, 2.0], [None, 0.5], [None, 0.5], [None, 0.5])
    [axis] = draw_figure(Plot("p", "", "x", "y", [curve]), VARIANTS).axes
    assert axis.lines[0].get_marker() == "o"


def test_bars_are_labelled_and_may_be_unknown() -> None:
    [axis] = draw_figure(
        Bars(
            "b",
            "",
            "x",
            [Bar(VARIANTS[0], 1.0, 0.5, 1.5), Bar(VARIANTS[1], None, None, None), Bar(VARIANTS[2], 3.0, 2.0, 4.0)],
        ),
        VARIANTS,
    ).axes
    assert [label.get_text() for label in axis.get_yticklabels()] == VARIANTS
    assert [patch.get_width() for patch in axis.patches][::2] == [1.0, 3.0]


def test_any_name_can_be_drawn(tmp_path: Path) -> None:
    names = [r"$\foo$", f"{'deep/' * 40}run"]
    curves = [Curve(name, [1.0, 2.0], [0.0, 0.5], [None, None], [None, None]) for name in names]
    maps = HeatMap("m", names[0], ["..."], [("now", [[1.0] * 3])], "visits")
    bars = Bars("b", "", "x", [Bar(name, 1.0, None, None) for name in names])
    for block in (Plot("p", names[0], "x", "y", curves), bars, maps):
        draw_figure(block, names).savefig(tmp_path / "figure.png")
    [axis] = draw_figure(bars, names).axes
    assert axis.get_yticklabels()[1].get_text() == f"…/{'deep/' * 7}run"


def test_slices_share_a_scale_and_show_walls() -> None:
    figure = draw_figure(sample_map("m", "Visits", "visits", logarithmic=True), VARIANTS)
    *slices, _ = figure.axes
    first, last = np.asarray(slices[0].images[0].get_array()), np.asarray(slices[-1].images[0].get_array())
    assert len(slices) == 4
    assert {to_hex(first[0, 0]), to_hex(first[1, 9])} == {"#646b75", "#eef0f1"}, (
        "a wall, and a cell that was not visited"
    )
    assert to_hex(last[1, 9]) not in ("#646b75", "#eef0f1")


def test_blocks_without_numbers_can_be_drawn() -> None:
    assert draw_figure(Plot("p", "", "x", "y", []), []).axes
    assert draw_figure(HeatMap("m", "", ["###"], [("now", [[None] * 3])], "visits", logarithmic=True), []).axes


def test_figure_height_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MAX_FIGURE_HEIGHT", 5)
    many = [f"variant {index}" for index in range(40)]
    figure = draw_figure(Bars("b", "", "x", [Bar(name, 1.0, None, None) for name in many]), many)
    assert figure.get_size_inches()[1] == 5


EXTREME = Curve("rnd", [1.0, 5e15], [-9e99, 9e99], [-9e99, -9e99], [9e99, 9e99])
TINY = Curve("rnd", [1.0, 9e18], [1e-99, 9e99], [1e-99, 1e-99], [9e99, 9e99])


@pytest.mark.parametrize(
    "block",
    [
        Plot("p", "", "x", "y", [EXTREME]),
        Plot("p", "", "x", "y", [TINY], logarithmic=True),
        Plot("p", "", "x", "y", [EXTREME], logarithmic=True),
        Bars("b", "", "x", [Bar("rnd", 9e99, -9e99, 9e99)]),
        HeatMap("m", "", ["." * 1000], [("", [[9e99, 1e-99, *([None] * 998)]])] * 16, "visits", logarithmic=True),
        HeatMap("m", "", ["."] * 8, [("", [[9e99], [-9e99], *([[None]] * 6)])] * 16, "visits"),
        HeatMap("m", "", [".."], [("", [[1.0, None]])], "visits", logarithmic=True),
    ],
)
def test_extreme_numbers_and_sizes_can_be_drawn(block: Plot | Bars | HeatMap) -> None:
    """The largest and smallest numbers, and extreme aspect ratios of floors."""
    file = io.BytesIO()
    draw_figure(block, ["rnd"]).savefig(file, format="png", dpi=10)
    assert file.getvalue().startswith(b"\x89PNG")
