"""The display of training and of studies."""

import io
from typing import Any

import pytest
from rich.console import Console

from byol_explore.training import output
from byol_explore.training.output import Bar, BarDisplay, Display, PlainDisplay, make_display, training_bar

METRICS: dict[str, Any] = {
    "steps": 2500, "steps_per_second": 500.0, "success_rate": 0.25, "uncertainty": 0.1234,
    "intrinsic_nonzero_fraction": 0.5,
}  # fmt: skip
BAR = training_bar(2500, 10_000, METRICS)
RUNS = [Bar("study small", 0.4, "3 of 8 runs done"), Bar("  rnd-seed0", 0.25, "success 0.25")]


def test_a_training_bar_has_steps_time_left_and_metrics() -> None:
    assert BAR.fraction == 0.25
    assert BAR.status == "success 0.25  500 steps/s  eta 0:00:15  2,500/10,000 steps  curiosity 0.123  nonzero 50%"
    assert training_bar(1, 2, {**METRICS, "success_rate": None}).status.startswith("success -  500 steps/s  eta ")
    assert (
        "steps  return 17.5  rooms 3  curiosity"
        in training_bar(1, 2, {**METRICS, "return_mean": 17.5, "rooms_visited": 3}).status
    )
    assert "0 steps/s  eta -  1/2 steps" in training_bar(1, 2, {**METRICS, "steps_per_second": 0.0}).status


def test_a_training_bar_without_success_begins_with_the_return() -> None:
    unknown = training_bar(1, 2, {**METRICS, "success_rate": None, "return_mean": 17.5}).status
    assert unknown.startswith("return 17.5  500 steps/s  eta ")
    assert "success -" in unknown


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    display.message("hello [bold]you[/bold]")
    display.update([BAR])
    display.log([BAR])
    display.log(RUNS)
    display.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "hello [bold]you[/bold]",
        f" 25%  {BAR.status}",
        " 40%  3 of 8 runs done; rnd-seed0 success 0.25",
    ]


def test_bars_on_a_terminal_come_and_go() -> None:
    screen = io.StringIO()
    display = BarDisplay(Console(file=screen, force_terminal=True, width=120, height=30))
    display.update(RUNS)
    display.message("hello [bold]you[/bold]")
    display.log(RUNS)
    display.update([RUNS[0], Bar("  icm-seed0", 0.7, "[b]7,000[/b] steps")])
    display.close()
    shown = screen.getvalue()
    assert "hello [bold]you[/bold]" in shown
    last = shown[shown.rindex("study small") :]
    for part in ("40%", "3 of 8 runs done", "icm-seed0", "70%", "[b]7,000[/b] steps"):
        assert part in last
    assert "rnd" not in last


@pytest.mark.parametrize(("width", "end"), [(140, "nonzero 50%"), (80, "eta 12:34:56"), (60, "…")])
def test_a_narrow_terminal_cuts_the_end_of_the_status(width: int, end: str) -> None:
    screen = io.StringIO()
    display = BarDisplay(Console(file=screen, force_terminal=True, width=width, color_system=None))
    steps = 10_000 * ((12 * 60 + 34) * 60 + 56)
    display.update([training_bar(steps, 4 * steps, {**METRICS, "steps_per_second": 30_000.0})])
    display.close()
    line = [line for line in screen.getvalue().splitlines() if "training" in line][-1]
    assert "training ━━" in line
    assert " 25% " in line
    assert "success 0.25" in line
    assert end in line


def test_the_display_fits_where_the_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, kind in ((False, PlainDisplay), (True, BarDisplay)):
        console = Console(file=io.StringIO(), force_terminal=terminal)
        monkeypatch.setattr(output, "Console", lambda console=console: console)
        display = make_display()
        assert type(display) is kind
        display.close()
        assert type(make_display(quiet=True)) is Display
