"""One display for all runs."""

import io

import pytest
from rich.console import Console

from byol_explore.study import display
from byol_explore.study.display import (
    BarStudyDisplay,
    PlainStudyDisplay,
    StudyProgress,
    describe,
    make_study_display,
    outcome,
)
from byol_explore.study.state import RunState

RUNNING = RunState("running", 2500, 10_000, 5.0, 0.25, 0.1234)
PROGRESS = StudyProgress(3, 8, 0.4, 3725.4, {"rooms-6/rnd-seed0": RUNNING})


def test_a_run_in_a_few_words() -> None:
    assert describe(RUNNING) == "2,500 steps  success 0.25  curiosity 0.123"
    assert describe(RUNNING._replace(success_rate=None, uncertainty=None)) == "2,500 steps"
    assert describe(RUNNING._replace(steps=0)) == "starting"
    returned = RUNNING._replace(success_rate=None, return_mean=-17.25)
    assert describe(returned) == "2,500 steps  no success defined, return -17.2  curiosity 0.123"
    staged = RUNNING._replace(stages={"lifted": 0.5, "opened": 0.02, "apple": 0.0})
    assert describe(staged) == "2,500 steps  success 0.25  opened 0.02  curiosity 0.123"
    assert describe(RUNNING._replace(stages={})) == "2,500 steps  success 0.25  stages -  curiosity 0.123"
    assert outcome(RUNNING) == "success 0.25"
    assert outcome(RUNNING._replace(success_rate=None)) == "success -"


def test_a_terminal_shows_the_study_and_the_runs_that_go_on() -> None:
    out = io.StringIO()
    shown = BarStudyDisplay("small", Console(file=out, force_terminal=True, width=120, height=30))
    shown.update(PROGRESS)
    shown.say("[b]: something [/b]")
    shown.update(PROGRESS._replace(done=4, running={"rooms-6/icm-seed0": RUNNING._replace(steps=7000)}))
    shown.close()
    text = out.getvalue()
    for part in ("study small", "40%", "3 of 8 runs done, eta 1:02:05", "rooms-6/rnd-seed0", "25%", "success 0.25",
                 "[b]: something [/b]"):  # fmt: skip
        assert part in text
    last = text[text.rindex("study small") :]
    assert "4 of 8 runs" in last
    assert "7,000 steps" in last
    assert "rnd" not in last


def test_a_pipe_gets_a_line_a_minute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 59.0, 60.0, 60.0, 61.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))
    shown = PlainStudyDisplay()
    for _ in range(3):
        shown.update(PROGRESS)
    runs = "rooms-6/rnd-seed0 2,500 steps  success 0.25  curiosity 0.123"
    assert capsys.readouterr().out == f" 40%  3 of 8 runs done, eta 1:02:05; {runs}\n"


def test_the_display_fits_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, kind in ((False, PlainStudyDisplay), (True, BarStudyDisplay)):
        console = Console(file=io.StringIO(), force_terminal=terminal)
        monkeypatch.setattr(display, "Console", lambda console=console: console)
        shown = make_study_display("small")
        assert isinstance(shown, kind)
        shown.close()
