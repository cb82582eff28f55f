"""Reports of damaged runs: the run, or the damaged part of it, is left out."""

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
    assert copied == (1, [reason])
    assert render(runs.parent / "copy").variants == ["rnd"]


@pytest.mark.parametrize("damage", READABLE.values(), ids=READABLE.keys())
def test_damaged_parts_of_a_run_are_ignored(runs: Path, damage: Damage) -> None:
    damage(runs / "mine-seed0")
    report = render(runs)
    assert sorted(report.variants) == ["mine", "rnd"]
    assert not report.left_out
    assert publish_runs(runs, runs.parent / "copy") == (2, [])
    assert sorted(render(runs.parent / "copy").variants) == ["mine", "rnd"]
