"""The time that a study still takes."""

import pytest

from byol_explore.study.eta import seconds_left
from byol_explore.study.state import RunState

DONE = RunState("done", 100, 100, 10.0)  # 10 steps a second
NEW = RunState("missing", 0, 100, 0.0)


def test_nothing_is_known_before_the_first_steps() -> None:
    assert seconds_left([NEW, NEW], 1) is None


def test_nothing_is_left_when_all_is_done() -> None:
    assert seconds_left([DONE, DONE], 2) == 0.0


@pytest.mark.parametrize(("parallel", "expected"), [(1, 30.0), (2, 20.0), (3, 10.0), (8, 10.0)])
def test_runs_share_the_places(parallel: int, expected: float) -> None:
    assert seconds_left([DONE, NEW, NEW, NEW], parallel) == expected


def test_steps_that_are_done_count() -> None:
    begun = RunState("missing", 50, 100, 5.0)
    assert seconds_left([DONE, begun, NEW], 1) == 15.0


def test_a_running_run_keeps_its_own_speed() -> None:
    slow = RunState("running", 50, 100, 50.0)
    assert seconds_left([slow], 1) == 50.0
    assert seconds_left([slow, NEW._replace(state="running")], 2) == pytest.approx(100.0)


def test_a_failed_run_is_not_waited_for() -> None:
    assert seconds_left([DONE, NEW._replace(state="failed"), NEW], 1) == 10.0


def test_a_run_that_stopped_early_is_as_quick_as_it_was() -> None:
    assert seconds_left([RunState("done", 20, 100, 4.0), NEW], 1) == 20.0
