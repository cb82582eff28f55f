"""One odd run does not take the whole report down: it is named and left out, or what is damaged of it is."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from byol_explore.report.build import build_report
from byol_explore.report.drawing import draw_figure
from byol_explore.report.model import HeatMap, Report
from byol_explore.report.page import render_page
from byol_explore.report.thin import thin_runs
from report.damages import NAMED, READ, Damage
from report.synthetic import make_rows, write_run


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """What never ends fails here."""

    def too_late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it takes for ever")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A good run and one that is about to be damaged."""
    write_run(tmp_path / "runs", "rnd-seed0", make_rows([0.5, 0.25]), method="rnd")
    write_run(tmp_path / "runs", "mine-seed0")
    return tmp_path / "runs"


def shown(root: Path) -> Report:
    """The report of what is there, after all that may fail in making a page and its maps of it."""
    report = build_report(root)
    render_page(report).encode()
    for block in (block for section in report.sections for block in section.blocks):
        if isinstance(block, HeatMap):
            draw_figure(block, report.variants).savefig("/dev/null", format="png")
    return report


@pytest.mark.parametrize("damage", NAMED.values(), ids=NAMED.keys())
def test_a_run_that_cannot_be_read_is_named_and_left_out(runs: Path, damage: Damage) -> None:
    damage(runs / "mine-seed0")
    report = shown(runs)
    assert report.variants == ["rnd"]
    [reason] = report.left_out
    assert reason.startswith("runs/mine-seed0: ")
    assert 20 < len(reason) < 220
    assert f"Left out, because it cannot be read: {reason}" in str(report.sections[0])
    thinned = thin_runs(runs, runs.parent / "thin")
    assert thinned == (1, [reason])
    assert shown(runs.parent / "thin").variants == ["rnd"]


@pytest.mark.parametrize("damage", READ.values(), ids=READ.keys())
def test_what_is_damaged_of_a_run_does_not_count(runs: Path, damage: Damage) -> None:
    damage(runs / "mine-seed0")
    report = shown(runs)
    assert sorted(report.variants) == ["mine", "rnd"]
    assert not report.left_out
    assert thin_runs(runs, runs.parent / "thin") == (2, [])
    assert sorted(shown(runs.parent / "thin").variants) == ["mine", "rnd"]
