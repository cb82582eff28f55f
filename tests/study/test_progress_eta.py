"""Estimated time left for a study."""

import pytest

from byol_explore.study.progress import RunState, estimate_eta

DONE = RunState("done", 100, 100, 10.0)  # 10 steps a second
NEW = RunState("pending", 0, 100, 0.0)


def test_eta_is_unknown_before_the_first_steps() -> None:
    assert estimate_eta([NEW, NEW], 1) is None


def test_eta_is_zero_when_all_runs_are_done() -> None:
    assert estimate_eta([DONE, DONE], 2) == 0.0


@pytest.mark.parametrize(("parallel", "expected"), [(1, 30.0), (2, 20.0), (3, 10.0), (8, 10.0)])
def test_runs_share_the_slots(parallel: int, expected: float) -> None:
    assert estimate_eta([DONE, NEW, NEW, NEW], parallel) == expected


def test_done_steps_of_pending_runs_count() -> None:
    begun = RunState("pending", 50, 100, 5.0)
    assert estimate_eta([DONE, begun, NEW], 1) == 15.0


def test_running_run_keeps_its_own_speed() -> None:
    slow = RunState("running", 50, 100, 50.0)
    assert estimate_eta([slow], 1) == 50.0
    assert estimate_eta([slow, NEW._replace(state="running")], 2) == pytest.approx(100.0)


def test_failed_run_takes_no_time() -> None:
    assert estimate_eta([DONE, NEW._replace(state="failed"), NEW], 1) == 10.0


def test_run_that_stopped_early_counts_with_its_own_speed() -> None:
    assert estimate_eta([RunState("done", 20, 100, 4.0), NEW], 1) == 20.0
