"""One entry in the table of metrics is all that showing one takes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from byol_explore.report import metrics_table
from byol_explore.report.build import build_report
from byol_explore.report.curves import draw_curves
from byol_explore.report.files import write_report
from byol_explore.report.metrics_table import METRICS, Metric, metric
from byol_explore.report.model import Plot
from byol_explore.run.console import describe
from report.synthetic import make_rows, write_run

NEW = Metric("boredom", "Boredom", "yawns", (0.0, 9.0), higher="worse", section="curiosity", brief="bored {:.1f}")


@pytest.fixture
def with_boredom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_table, "METRICS", (*METRICS, NEW))


@pytest.mark.usefixtures("with_boredom")
def test_an_entry_makes_the_report_load_plot_and_explain_it(tmp_path: Path) -> None:
    write_run(tmp_path, "byol-explore-seed0", make_rows([0.0, 0.5], uncertainty=1.0, boredom=4.0))
    report = build_report([tmp_path])
    plots = {block.name: block for section in report.sections for block in section.blocks if isinstance(block, Plot)}
    shown = plots["boredom"]
    assert (shown.title, shown.y_label, shown.y_range, shown.note) == ("Boredom", "yawns", (0.0, 9.0), "Higher: worse.")
    assert shown.curves[0].mean == [4.0, 4.0]
    assert '<p class="note">Higher: worse.</p>' in write_report(report, tmp_path / "page", page_only=True).read_text()


@pytest.mark.usefixtures("with_boredom")
def test_an_entry_makes_curves_and_console_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(Axes, "set_title", lambda self, title, **_: titles.append(title))
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"steps": 1, "boredom": 2.0}) + "\n")
    draw_curves(tmp_path)
    assert titles == ["Boredom"]
    assert describe({"boredom": 2.0}) == "bored 2.0"
    assert describe({"boredom": None}) == "bored -"


def test_of_a_table_the_console_shows_what_is_furthest() -> None:
    assert describe({"stages": {"moved": 0.75, "lifted": 0.125, "opened": 0.0}}) == "lifted 0.12"
    assert describe({"stages": {"moved": 0.0}}) == describe({"stages": None}) == "stages -"


def test_scales_and_ranges_of_curves_are_those_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes: dict[str, Axes] = {}
    set_title = Axes.set_title

    def remember(self: Axes, title: str, **options: Any) -> Any:
        axes[title] = self
        return set_title(self, title, **options)

    monkeypatch.setattr(Axes, "set_title", remember)
    row = {"steps": 1, "uncertainty": 0.5, "target_distance": 0.0, "embedding_spread": 0.2}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    draw_curves(tmp_path)
    assert axes[metric("uncertainty").title].get_yscale() == "log"
    assert axes[metric("target_distance").title].get_yscale() == "linear", "0 has no logarithm"
    assert axes[metric("embedding_spread").title].get_ylim() == pytest.approx((-0.03, 1.03))


def test_names_are_given_once_and_sections_are_those_of_the_report() -> None:
    assert len({entry.name for entry in METRICS}) == len(METRICS)
    assert {entry.section for entry in METRICS} == {"", "curiosity", "places"}
    assert {entry.scale for entry in METRICS} == {"linear", "log"}


def test_metrics_that_share_a_panel_share_its_axis() -> None:
    for entries in metrics_table.panels().values():
        assert len({(entry.range, entry.scale) for entry in entries}) == 1


def test_the_table_imports_nothing_heavy() -> None:
    """The console and tools that only want names should not wait for JAX or matplotlib."""
    heavy = {"jax", "numpy", "matplotlib", "rich"}
    code = f"import sys, byol_explore.report.metrics_table; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
