"""Texts and bars for the runs of a study."""

import pytest

from byol_explore.study.progress import RunState, outcome_text, run_text, study_bars

RUNNING = RunState("running", 2500, 10_000, 5.0, 0.25, 0.1234)


def test_run_text_shows_steps_success_and_uncertainty() -> None:
    assert run_text(RUNNING) == "2,500 steps  success 0.25  curiosity 0.123"
    assert run_text(RUNNING._replace(success_rate=None, uncertainty=None)) == "2,500 steps"
    assert run_text(RUNNING._replace(steps=0)) == "starting"
    returned = RUNNING._replace(success_rate=None, return_mean=-17.25)
    assert run_text(returned) == "2,500 steps  no success defined, return -17.2  curiosity 0.123"
    staged = RUNNING._replace(stages={"lifted": 0.5, "opened": 0.02, "apple": 0.0})
    assert run_text(staged) == "2,500 steps  success 0.25  opened 0.02  curiosity 0.123"
    assert run_text(RUNNING._replace(stages={})) == "2,500 steps  success 0.25  stages -  curiosity 0.123"
    assert outcome_text(RUNNING) == "success 0.25"
    assert outcome_text(RUNNING._replace(success_rate=None)) == "success -"


def test_study_and_running_runs_have_bars() -> None:
    states = {"rooms-6/rnd-seed0": RUNNING, "rooms-6/rnd-seed1": RUNNING._replace(state="done", steps=10_000),
              "rooms-6/rnd-seed2": RUNNING._replace(state="pending", steps=0)}  # fmt: skip
    whole, run = study_bars("small", states, 3725.4)
    assert whole == ("study small", pytest.approx(1.25 / 3), "1 of 3 runs done, eta 1:02:05")
    assert run == ("  rooms-6/rnd-seed0", 0.25, "2,500 steps  success 0.25  curiosity 0.123")
    assert study_bars("small", states, None)[0].status == "1 of 3 runs done, eta -"
