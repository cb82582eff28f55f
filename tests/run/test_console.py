"""What a person sees."""

import io
from typing import Any

import pytest
from rich.console import Console

from byol_explore.run.console import BarDisplay, NullDisplay, PlainDisplay, describe, make_display

METRICS: dict[str, Any] = {
    "steps": 2500, "steps_per_second": 500.0, "success_rate": 0.25, "uncertainty": 0.1234, "paid_share": 0.5,
}  # fmt: skip


def test_speed_success_and_curiosity_in_a_few_words() -> None:
    assert describe(METRICS).split() == ["success", "0.25", "curiosity", "0.123", "paid", "50%", "500", "steps/s"]
    assert "success -" in describe({**METRICS, "success_rate": None})
    assert "success 0.25  return 17.5  rooms 3  curiosity" in describe(
        {**METRICS, "return_mean": 17.5, "rooms_found": 3}
    )


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(10_000)
    display.say("hello [bold]you[/bold]")
    display.advance(2500, METRICS)
    display.log(METRICS)
    display.log({**METRICS, "steps_per_second": 0.0})
    display.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hello [bold]you[/bold]"
    assert lines[1].startswith(" 25%        2,500 steps ")
    assert lines[1].endswith("eta 15 s")
    assert lines[2].endswith("eta -")
    assert len(lines) == 3


def test_a_bar_on_a_terminal() -> None:
    screen = io.StringIO()
    display = BarDisplay(10_000, Console(file=screen, force_terminal=True, width=160))
    display.say("hello [bold]you[/bold]")
    display.advance(2500, METRICS)
    display.log(METRICS)
    display.close()
    shown = screen.getvalue()
    assert "hello [bold]you[/bold]" in shown
    assert "2,500/10,000" in shown
    assert "curiosity 0.123" in shown
    assert "eta" in shown


@pytest.mark.parametrize(
    ("width", "words"), [(80, "success 0.25"), (100, "success 0.25  curiosity 0.123  paid 50%"), (60, "")]
)
def test_a_narrow_terminal_has_bar_steps_and_eta_too(width: int, words: str) -> None:
    screen = io.StringIO()
    display = BarDisplay(6_000_000, Console(file=screen, force_terminal=True, width=width, color_system=None))
    display.advance(2_500_000, METRICS)
    display.close()
    line = [line for line in screen.getvalue().splitlines() if "training" in line][-1]
    assert "training ━━━" in line
    assert "2,500,000/6,000,000" in line
    assert " eta " in line
    assert line.rstrip().endswith(words or "-:--:--")


def test_the_display_fits_where_the_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byol_explore.run.console.Console", lambda: Console(file=io.StringIO(), force_terminal=False))
    assert isinstance(make_display(10), PlainDisplay)
    assert isinstance(make_display(10, quiet=True), NullDisplay)
    monkeypatch.setattr("byol_explore.run.console.Console", lambda: Console(file=io.StringIO(), force_terminal=True))
    display = make_display(10)
    assert isinstance(display, BarDisplay)
    display.close()
    assert isinstance(make_display(10, quiet=True), NullDisplay)
