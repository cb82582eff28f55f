"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from byol_explore.report.metrics_table import in_brief

_SHORTEST_BAR = 10
_TIMES = len(" 0:00:00 eta 0:00:00 ")  # since the beginning, and until the end


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
    """A progress bar with steps and ETA, and with success, curiosity and speed as far as there is room for them."""

    def __init__(self, total: int, console: Console) -> None:
        whole = Column(no_wrap=True)  # so that only the bar gives way on a narrow terminal
        self._progress = Progress(
            TextColumn("[bold]training", table_column=whole.copy()),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}", table_column=whole.copy()),
            TimeElapsedColumn(table_column=whole.copy()),
            TextColumn("eta", table_column=whole.copy()),
            TimeRemainingColumn(table_column=whole.copy()),
            TextColumn("{task.fields[status]}", table_column=whole.copy()),
            console=console,
            expand=True,
        )
        self._others = len("training ") + _SHORTEST_BAR + len(f" {total:,}/{total:,}") + _TIMES
        self._task = self._progress.add_task("training", total=total, status="compiling")
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def advance(self, steps: int, metrics: dict[str, Any]) -> None:
        room = self._progress.console.width - self._others
        self._progress.update(self._task, completed=steps, status=describe(metrics, room))

    def log(self, metrics: dict[str, Any]) -> None: ...

    def close(self) -> None:
        self._progress.stop()


def describe(metrics: dict[str, Any], room: int | None = None) -> str:
    """Success, return, rooms, curiosity and speed in a few words: those that are logged and that there is room for."""
    words = in_brief(metrics)
    while room is not None and len("  ".join(words)) > max(room, 0):
        words.pop()
    return "  ".join(words)


def make_display(total: int, *, quiet: bool = False) -> Display:
    """The display that fits where the output goes."""
    console = Console()
    if quiet:
        return NullDisplay()
    return BarDisplay(total, console) if console.is_terminal else PlainDisplay(total)
