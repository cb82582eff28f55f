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


def log_of(directory: Path, count: int = 4) -> Path:
    """Write a log with checksums."""
    path = directory / "metrics.jsonl"
    rows = [{"steps": step, "success_rate": step / 8, "tasks": {"a": [1.5, None]}} for step in range(1, count + 1)]
    path.write_text("".join(map(metrics.format_row, rows)))
    return path


def test_readers_of_json_lines_see_one_more_key(tmp_path: Path) -> None:
    lines = log_of(tmp_path).read_text().splitlines()
    assert [list(json.loads(line)) for line in lines] == [["steps", "success_rate", "tasks", "crc"]] * 4
    assert metrics.read_metrics(tmp_path / "metrics.jsonl")[1] == {
        "steps": 2,
        "success_rate": 0.25,
        "tasks": {"a": [1.5, None]},
    }


def test_no_changed_byte_of_a_log_changes_a_row(tmp_path: Path) -> None:
    """Change every byte once. A row is read as it was written, or its line is named."""
    path = log_of(tmp_path, 2)
    content, rows = path.read_bytes(), metrics.read_metrics(path)
    for place in range(len(content)):
        for bit in (1, 4):
            path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            reader = metrics.LogReader(path)
            found = list(reader)
            assert all(row in rows for row in found), path.read_text()
            assert found == rows or reader.damaged or (len(found) < 2 and not path.read_bytes().endswith(b"\n"))


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    path = log_of(tmp_path, 9)
    reader = metrics.LogReader(path)
    assert len(list(reader)) == 9
    assert reader.describe_damage() is None
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace('"steps": 3', '"steps": 8')
    path.write_text("\n".join(lines) + "\n")
    assert [row["steps"] for row in reader] == [1, 2, 4, 5, 6, 7, 8, 9]
    assert reader.describe_damage() == "metrics.jsonl: line 3 is damaged and left out"
    lines = [line.replace("true", "false") if index % 2 else "{" for index, line in enumerate(lines)]
    path.write_text("\n".join([*lines, "[]", '{"steps": 10}', '{"steps": 11, "cr']))
    assert [row["steps"] for row in reader] == [2, 4, 6, 8]
    words = "metrics.jsonl: lines 1, 3, 5, 7, 9 and 2 more are damaged and dropped"
    assert reader.describe_damage("dropped") == words


def test_a_log_without_any_checksum_is_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"steps": 1}\n{"steps": 2}\n')
    reader = metrics.LogReader(tmp_path / "metrics.jsonl")
    assert [row["steps"] for row in reader] == [1, 2]
    assert reader.damaged == []


def test_a_packed_log_is_checked_by_its_archive(tmp_path: Path) -> None:
    rows = [{"steps": step, "success_rate": step / 7} for step in range(1, 50)]
    metrics.write_packed_log(tmp_path, rows)
    path = tmp_path / metrics.PACKED_LOG_NAME
    content = path.read_bytes()
    assert metrics.read_metrics(path) == rows
    for place in range(10, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"^metrics\.jsonl\.gz is damaged: "):
            metrics.read_metrics(path)


def test_the_last_row_of_a_log_is_an_intact_one(tmp_path: Path) -> None:
    content = log_of(tmp_path).read_bytes()
    assert metrics.parse_last_row(content)["steps"] == 4
    assert metrics.parse_last_row(content.replace(b'"steps": 4', b'"steps": 5'))["steps"] == 3
    assert metrics.parse_last_row(content + b'{"steps": 9}\n')["steps"] == 4
    assert metrics.parse_last_row(b'{"steps": 9}\n{"ste')["steps"] == 9
    assert metrics.parse_last_row(b"") == {}


def test_lines_of_a_resumed_log_continue_each_other(tmp_path: Path) -> None:
    """A line that was repeated, or moved back, is not written again."""
    path = log_of(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[1], lines[0], *lines[2:]]))
    assert [row["steps"] for row in metrics.rows_until(path, 3)[0]] == [1, 2, 3]
