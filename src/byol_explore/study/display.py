"""One display for all runs of a study: bars on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from byol_explore.report.metrics_table import in_brief
from byol_explore.study.state import RunState

_PLAIN_EVERY = 60.0  # seconds between lines


class StudyProgress(NamedTuple):
    """A study at a moment."""

    done: int  # runs
    runs: int
    share: float  # of all steps
    eta: float | None  # seconds
    running: dict[str, RunState]


class StudyDisplay(Protocol):
    """Shows the course of a study."""

    def say(self, text: str) -> None: ...
    def update(self, progress: StudyProgress) -> None: ...
    def close(self) -> None: ...


class NullStudyDisplay:
    """Shows nothing."""

    def say(self, text: str) -> None: ...
    def update(self, progress: StudyProgress) -> None: ...
    def close(self) -> None: ...


class PlainStudyDisplay:
    """What happens, line by line, and once a minute how far everything is."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _PLAIN_EVERY

    def say(self, text: str) -> None:
        print(text, flush=True)

    def update(self, progress: StudyProgress) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PLAIN_EVERY
        runs = "".join(f"; {name} {describe(state)}" for name, state in progress.running.items())
        print(f"{progress.share:4.0%}  {summarize(progress)}{runs}", flush=True)

    def close(self) -> None: ...


class BarStudyDisplay:
    """A bar for the study and one for each run that goes on."""

    def __init__(self, name: str, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[status]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self._study = self._progress.add_task(f"study {name}", total=1.0, status="")
        self._runs: dict[str, TaskID] = {}
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def update(self, progress: StudyProgress) -> None:
        self._progress.update(self._study, completed=progress.share, status=summarize(progress))
        for name in self._runs.keys() - progress.running.keys():
            self._progress.remove_task(self._runs.pop(name))
        for name, state in progress.running.items():
            if name not in self._runs:
                self._runs[name] = self._progress.add_task(f"  {name}", total=1.0, status="")
            self._progress.update(self._runs[name], completed=state.share, status=describe(state))
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


def summarize(progress: StudyProgress) -> str:
    """Runs that are done and the time that is left."""
    left = "-" if progress.eta is None else str(timedelta(seconds=round(progress.eta)))
    return f"{progress.done} of {progress.runs} runs done, eta {left}"


def describe(state: RunState) -> str:
    """Steps, success and curiosity of a run, as far as it has logged them."""
    if state.steps == 0:
        return "starting"
    words = [
        f"{state.steps:,} steps",
        "" if state.success_rate is state.return_mean is None else outcome(state),
        *([] if state.stages is None else in_brief({"stages": state.stages})),
        *([] if state.uncertainty is None else in_brief({"uncertainty": state.uncertainty})),
    ]
    return "  ".join(filter(None, words))


def outcome(state: RunState) -> str:
    """How a run's last episodes went: by their success, or by their return where nobody has defined a success."""
    if state.success_rate is not None or state.return_mean is None:
        return in_brief({"success_rate": state.success_rate})[0]
    return f"no success defined, {in_brief({'return_mean': state.return_mean})[0]}"


def make_study_display(name: str) -> StudyDisplay:
    """The display that fits where the output goes."""
    console = Console()
    return BarStudyDisplay(name, console) if console.is_terminal else PlainStudyDisplay()
