"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display(Protocol):
    """Shows the course of a run."""

    def say(self, text: str) -> None: ...
    def advance(self, steps: int, metrics: dict[str, Any]) -> None: ...
    def log(self, metrics: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class NullDisplay:
    """Shows nothing."""

    def say(self, text: str) -> None: ...
    def advance(self, steps: int, metrics: dict[str, Any]) -> None: ...
    def log(self, metrics: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class PlainDisplay:
    """A line per log step, for files and pipes."""

    def __init__(self, total: int) -> None:
        self.total = total

    def say(self, text: str) -> None:
        print(text, flush=True)

    def advance(self, steps: int, metrics: dict[str, Any]) -> None: ...

    def log(self, metrics: dict[str, Any]) -> None:
        share = metrics["steps"] / self.total
        speed = metrics["steps_per_second"]
        remaining = f"{(self.total - metrics['steps']) / speed:.0f} s" if speed > 0 else "-"
        print(f"{share:4.0%}  {metrics['steps']:>11,} steps  {describe(metrics)}  eta {remaining}", flush=True)

    def close(self) -> None: ...


class BarDisplay:
    """A progress bar with ETA, speed, success and curiosity."""

    def __init__(self, total: int, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
        )
        self._task = self._progress.add_task("training", total=total, status="compiling")
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def advance(self, steps: int, metrics: dict[str, Any]) -> None:
        self._progress.update(self._task, completed=steps, status=describe(metrics))

    def log(self, metrics: dict[str, Any]) -> None: ...

    def close(self) -> None:
        self._progress.stop()


def describe(metrics: dict[str, Any]) -> str:
    """Speed, success, return, rooms and curiosity in a few words; what is not known is left out."""
    success, value, rooms = (metrics.get(name) for name in ("success_rate", "return_mean", "rooms_found"))
    words = [
        f"{metrics['steps_per_second']:>8,.0f} steps/s",
        "success -" if success is None else f"success {success:.2f}",
        "" if value is None else f"return {value:.1f}",
        "" if rooms is None else f"rooms {rooms}",
        f"curiosity {metrics['uncertainty']:.3f}",
        f"paid {metrics['paid_share']:.0%}",
    ]
    return "  ".join(filter(None, words))


def make_display(total: int, *, quiet: bool = False) -> Display:
    """The display that fits where the output goes."""
    console = Console()
    if quiet:
        return NullDisplay()
    return BarDisplay(total, console) if console.is_terminal else PlainDisplay(total)
