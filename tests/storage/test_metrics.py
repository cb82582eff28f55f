"""The table of metrics: one entry shows a metric everywhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from byol_explore.report.build import build_report, write_report
from byol_explore.report.figures import draw_curves
from byol_explore.report.model import Plot
from byol_explore.storage import metrics
from byol_explore.storage.metrics import METRICS, Metric, metric
from report.synthetic import make_rows, write_run

NEW = Metric(
    "boredom", "Boredom", "yawns", (0.0, 9.0), higher_means="worse", section="curiosity", console_format="bored {:.1f}"
)


@pytest.fixture
def with_boredom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, NEW))


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
    assert metrics.console_summary({"boredom": 2.0}) == ["bored 2.0"]
    assert metrics.console_summary({"boredom": None}) == ["bored -"]


def test_the_console_shows_the_last_nonzero_entry_of_a_table() -> None:
    assert metrics.console_summary({"stages": {"moved": 0.75, "lifted": 0.125, "opened": 0.0}}) == ["lifted 0.12"]
    for table in ({"moved": 0.0}, None):
        assert metrics.console_summary({"stages": table}) == ["stages -"]


def test_curves_have_the_scales_and_ranges_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes: dict[str, Axes] = {}
    set_title = Axes.set_title

    def remember(self: Axes, title: str, **options: Any) -> Any:
        axes[title] = self
        return set_title(self, title, **options)

    monkeypatch.setattr(Axes, "set_title", remember)
    row = {"steps": 1, "uncertainty": 0.5, "target_relative_distance": 0.0, "embedding_spread": 0.2}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    draw_curves(tmp_path)
    assert axes[metric("uncertainty").title].get_yscale() == "log"
    assert axes[metric("target_relative_distance").title].get_yscale() == "linear", "0 has no logarithm"
    assert axes[metric("embedding_spread").title].get_ylim() == pytest.approx((-0.03, 1.03))


def test_names_are_unique_and_sections_exist() -> None:
    assert len({entry.name for entry in METRICS}) == len(METRICS)
    assert {entry.section for entry in METRICS} == {"", "curiosity", "places"}


def test_metrics_that_share_a_panel_share_its_axis() -> None:
    for entries in metrics.panels({}).values():
        assert len({(entry.range, entry.logarithmic) for entry in entries}) == 1


def test_the_table_imports_nothing_heavy() -> None:
    """Tools that only need names do not wait for JAX or matplotlib."""
    heavy = {"jax", "numpy", "matplotlib", "rich"}
    code = f"import sys, byol_explore.storage.metrics; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
