"""Reports of damaged runs: the run, or the damaged part of it, is left out."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from byol_explore.report.build import build_report
from byol_explore.report.figures import draw_figure
from byol_explore.report.model import HeatMap, Report
from byol_explore.report.page import render_page
from byol_explore.report.publish import publish_runs
from byol_explore.storage.metrics import format_row
from byol_explore.utils.files import add_checksum
from report.damages import READABLE, UNREADABLE, Damage
from report.synthetic import make_rows, write_run


@pytest.fixture(autouse=True)
def _timeout() -> Iterator[None]:
    """Fail tests that take too long."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError("timeout")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Write an intact run, and one to damage."""
    write_run(tmp_path / "runs", "rnd-seed0", make_rows([0.5, 0.25]), method="rnd")
    write_run(tmp_path / "runs", "mine-seed0")
    return tmp_path / "runs"


def render(root: Path) -> Report:
    """Build the report, and render its page and maps."""
    report = build_report(root)
    render_page(report).encode()
    for block in (block for section in report.sections for block in section.blocks):
        if isinstance(block, HeatMap):
            draw_figure(block, report.variants).savefig("/dev/null", format="png")
    return report


@pytest.mark.parametrize("damage", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_runs_are_listed_and_left_out(runs: Path, damage: Damage) -> None:
    damage(runs / "mine-seed0")
    report = render(runs)
    assert report.variants == ["rnd"]
    [reason] = report.left_out
    assert reason.startswith("runs/mine-seed0: ")
    assert 20 < len(reason) < 220
    assert f"Left out, because it cannot be read: {reason}" in str(report.sections[0])
    copied = publish_runs(runs, runs.parent / "copy")
    assert copied == (1, [reason], [])
    assert render(runs.parent / "copy").variants == ["rnd"]


@pytest.mark.parametrize("damage", READABLE.values(), ids=READABLE.keys())
def test_damaged_parts_of_a_run_are_ignored(runs: Path, damage: Damage) -> None:
    damage(runs / "mine-seed0")
    report = render(runs)
    assert sorted(report.variants) == ["mine", "rnd"]
    assert not report.left_out
    assert publish_runs(runs, runs.parent / "copy")[:2] == (2, [])
    assert sorted(render(runs.parent / "copy").variants) == ["mine", "rnd"]


def with_checksums(run: Path) -> list[str]:
    """Rewrite the files of a run as training writes them. Returns the lines of its log."""
    lines = [format_row(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(lines))
    for name in ("config.json", "summary.json"):
        (run / name).write_text(json.dumps(add_checksum(json.loads((run / name).read_text()))))
    return lines


def test_changed_lines_and_summaries_are_named_and_left_out(runs: Path) -> None:
    lines = with_checksums(runs / "mine-seed0")
    assert render(runs).damage == []
    lines[1] = lines[1].replace('"success_rate": 0.5', '"success_rate": 0.9')
    (runs / "mine-seed0" / "metrics.jsonl").write_text("".join(lines))
    summary = runs / "mine-seed0" / "summary.json"
    summary.write_text(summary.read_text().replace('"steps": 300', '"steps": 900'))
    damage = [
        "runs/mine-seed0/metrics.jsonl: line 2 is damaged and left out",
        "runs/mine-seed0/summary.json does not match its checksum; it is ignored",
    ]
    report = render(runs)
    assert report.damage == damage
    assert f"Damaged: {', '.join(damage)}." in str(report.sections[0])
    assert publish_runs(runs, runs.parent / "copy") == (2, [], damage)


def test_a_run_with_a_changed_configuration_is_left_out(runs: Path) -> None:
    with_checksums(runs / "mine-seed0")
    config = runs / "mine-seed0" / "config.json"
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 4'))
    assert render(runs).left_out == ["runs/mine-seed0: config.json does not match its checksum"]
