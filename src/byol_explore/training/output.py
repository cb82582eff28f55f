"""Output of a run: the console, metrics.jsonl, TensorBoard and W&B."""

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from byol_explore.config.config import Config, to_dict
from byol_explore.storage.metrics import console_summary, flatten_scalars, format_row, truncate_log
from byol_explore.utils.packages import require_extra


class Writer(Protocol):
    """Writes the lines of a log."""

    def write(self, metrics: dict[str, Any]) -> None:
        """Write a line.

        Args:
          metrics: JSON values by name, "steps" among them.
        """

    def close(self) -> None: ...


class JsonLinesWriter:
    """Append to metrics.jsonl with a checksum per line, and sync every line to the disk.

    Args:
      path: of the log.
      keep_until: drop the lines after this step first; None keeps all.
    """

    def __init__(self, path: Path, *, keep_until: int | None = None) -> None:
        if keep_until is not None and path.exists():
            truncate_log(path, keep_until)
        # Without a buffer, bytes that a full disk refuses are not kept to fail again in `close`.
        self._file = path.open("ab", buffering=0)

    def write(self, metrics: dict[str, Any]) -> None:
        left = format_row(metrics).encode()
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class TensorBoardWriter:
    """Write scalars to TensorBoard event files in the run directory."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.summary import Writer as EventWriter  # pyright: ignore[reportMissingImports]

        self._writer = EventWriter(str(directory / "tensorboard"))

    def write(self, metrics: dict[str, Any]) -> None:
        for name, value in flatten_scalars(metrics).items():
            self._writer.add_scalar(name, value, step=metrics["steps"])

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """Write scalars to Weights & Biases: offline, unless WANDB_MODE says otherwise."""

    def __init__(self, directory: Path, config: Config) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self._run = wandb.init(
            project=config.log.wandb_project,
            name=config.log.wandb_name or directory.resolve().name,
            dir=str(directory),
            config=to_dict(config),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def write(self, metrics: dict[str, Any]) -> None:
        self._run.log(flatten_scalars(metrics), step=metrics["steps"])

    def close(self) -> None:
        self._run.finish()


def check_extras(config: Config) -> None:
    """Raise UserError for a package of checkpoints, figures or a writer that is not installed."""
    for module in ("matplotlib", "orbax"):  # imported when a run needs them, which would be too late
        with require_extra("training"):
            if find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    for name in ("tensorboard", "wandb"):
        if getattr(config.log, name):
            with require_extra(f"log.{name}"):
                import_module(name)


def make_writers(config: Config, directory: Path, *, keep_until: int | None) -> list[Writer]:
    """Make the writers that the configuration asks for; `keep_until` is that of JsonLinesWriter."""
    writers: list[Writer] = [JsonLinesWriter(directory / "metrics.jsonl", keep_until=keep_until)]
    if config.log.tensorboard:
        writers.append(TensorBoardWriter(directory))
    if config.log.wandb:
        writers.append(WandbWriter(directory, config))
    return writers


class Bar(NamedTuple):
    """A progress bar."""

    name: str
    fraction: float  # 0 to 1
    status: str


class Display:
    """Base class of displays of messages and progress; shows nothing."""

    def message(self, text: str) -> None: ...

    def update(self, bars: Sequence[Bar]) -> None:
        """Show these bars, and remove others."""

    def log(self, bars: Sequence[Bar]) -> None:
        """Print the bars as one line, if the display shows no bars."""

    def close(self) -> None: ...


class PlainDisplay(Display):
    """Print lines, for files and pipes."""

    def message(self, text: str) -> None:
        print(text, flush=True)

    def log(self, bars: Sequence[Bar]) -> None:
        first, *others = bars
        rest = "".join(f"; {bar.name.strip()} {bar.status}" for bar in others)
        print(f"{first.fraction:4.0%}  {first.status}{rest}", flush=True)


class _StatusColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.fields["status"], no_wrap=True, overflow="ellipsis")


class BarDisplay(Display):
    """Draw progress bars on a terminal."""

    def __init__(self, console: Console) -> None:
        # Columns that do not wrap: on a narrow terminal the end of the status is cut.
        columns = [Column(no_wrap=True) for _ in range(4)]
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=columns[0]),
            BarColumn(bar_width=10, table_column=columns[1]),
            TextColumn("{task.percentage:>3.0f}%", table_column=columns[2]),
            TimeElapsedColumn(table_column=columns[3]),
            _StatusColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._progress.start()

    def message(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def update(self, bars: Sequence[Bar]) -> None:
        for name in self._tasks.keys() - {bar.name for bar in bars}:
            self._progress.remove_task(self._tasks.pop(name))
        for bar in bars:
            if bar.name not in self._tasks:
                self._tasks[bar.name] = self._progress.add_task(bar.name, total=1.0, status="")
            self._progress.update(self._tasks[bar.name], completed=bar.fraction, status=bar.status)

    def close(self) -> None:
        self._progress.stop()


def training_bar(steps: int, total: int, metrics: dict[str, Any]) -> Bar:
    """Return the bar of a run.

    Args:
      steps: environment steps that are done.
      total: environment steps of the whole run.
      metrics: a row of the log; the metrics that consoles show become part of the status.
    """
    speed = metrics.get("steps_per_second", 0.0)
    eta = f"{timedelta(seconds=round((total - steps) / speed))}" if speed > 0 else "-"
    # A terminal of 80 columns shows the first three parts: outcome, speed and time left.
    outcome = "return_mean" if metrics.get("success_rate") is None and metrics.get("return_mean") else "success_rate"
    first = {name: metrics[name] for name in (outcome, "steps_per_second") if name in metrics}
    others = {name: value for name, value in metrics.items() if name not in first}
    parts = [*console_summary(first), f"eta {eta}", f"{steps:,}/{total:,} steps", *console_summary(others)]
    return Bar("training", steps / total, "  ".join(parts))


def make_display(*, quiet: bool = False) -> Display:
    """Make the display for a terminal, or for a file or pipe."""
    if quiet:
        return Display()
    console = Console()
    return BarDisplay(console) if console.is_terminal else PlainDisplay()
