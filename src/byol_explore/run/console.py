"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from byol_explore.report.metrics_table import in_brief


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
    """Success, return, rooms, curiosity and speed in a few words; what is not logged is left out."""
    return "  ".join(in_brief(metrics))


def make_display(total: int, *, quiet: bool = False) -> Display:
    """The display that fits where the output goes."""
    console = Console()
    if quiet:
        return NullDisplay()
    return BarDisplay(total, console) if console.is_terminal else PlainDisplay(total)
