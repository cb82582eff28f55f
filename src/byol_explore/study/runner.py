"""Running a study: what is missing, a few runs at a time, each in a process of its own."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from byol_explore.errors import UserError
from byol_explore.files import write_atomically
from byol_explore.interrupts import Interrupts
from byol_explore.report.words import printable, why
from byol_explore.run.locking import DirectoryLock, is_held
from byol_explore.study.display import NullStudyDisplay, StudyDisplay, StudyProgress, outcome
from byol_explore.study.eta import seconds_left
from byol_explore.study.file import Study, difference, read_study
from byol_explore.study.plan import PlannedRun, plan_runs, shell_line
from byol_explore.study.processes import Launcher, LocalProcesses, Running, check_parallel
from byol_explore.study.state import RunState, look, read_failures, write_state

_POLL = 0.2  # seconds between looks at the processes
_LOOK = 1.0  # seconds between looks at what they write

MakeCommand = Callable[[PlannedRun, Path], list[str]]


def train_command(run: PlannedRun, study_dir: Path) -> list[str]:
    """A process that trains, and ends when the study does."""
    return [sys.executable, "-m", "byol_explore.cli.attached", *run.train_arguments(study_dir)]


def run_study(
    study: Study, directory: Path | str, *, parallel: int = 1, seeds: int | None = None, only: str = "",
    retries: int = 0, display: StudyDisplay | None = None, make_command: MakeCommand = train_command,
    launch: Callable[[int], Launcher] = LocalProcesses,
) -> dict[str, RunState]:  # fmt: skip
    """Run what is missing; the state of every chosen run, some of which may have failed, `retries` times again too.

    After Ctrl-C and SIGTERM the runs save and stop first; then Interrupts.Stopped is raised.
    """
    directory, display = Path(directory), display or NullStudyDisplay()
    check_parallel(parallel)
    if retries < 0:
        raise UserError(f"--retries is {retries}: it must not be negative")
    chosen = plan_runs(study, seeds=seeds, only=only)
    check_study_dir(directory, study)
    lock = DirectoryLock(directory, doing="running a study", option="--dir")
    lock.acquire()
    try:
        if not (directory / "study.toml").exists():
            write_atomically(directory / "study.toml", study.text)
        with contextlib.closing(launch(parallel)) as launcher:
            return _Runner(study, directory, chosen, launcher, retries, display, make_command).go()
    finally:
        lock.release()
        display.close()


def check_study_dir(directory: Path, study: Study) -> None:
    """A UserError unless the directory is missing, empty, or holds this study."""
    path = directory / "study.toml"
    if path.exists():
        if different := difference(read_study(path), study):
            raise UserError(f"{directory} holds another study: {different}; choose another --dir")
    elif directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file: choose another --dir")
    elif directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study: choose another --dir")


class _Place(NamedTuple):
    """Where a run goes on."""

    run: PlannedRun
    child: Running


class _Runner:
    """From what is missing to what is done."""

    def __init__(
        self, study: Study, directory: Path, chosen: Sequence[PlannedRun], launcher: Launcher, retries: int,
        display: StudyDisplay, make_command: MakeCommand,
    ) -> None:  # fmt: skip
        self.study, self.directory, self.display, self.make_command = study, directory, display, make_command
        everything = {run.name: run for run in (*plan_runs(study), *chosen)}
        self.states = {name: look(run, directory) for name, run in everything.items()}
        self.chosen = [run.name for run in chosen]
        self.waiting = [run for run in chosen if self.states[run.name].state != "done"]
        for name, failure in read_failures(directory / "study.json").items():
            if name not in self.chosen and name in self.states and self.states[name].state != "done":
                self.states[name] = failure
        self.launcher = launcher
        self.retries = dict.fromkeys(self.chosen, retries)  # that are left
        self.places: dict[int, _Place] = {}
        self.written: Mapping[str, RunState] = {}
        self.said_waiting = self.said_unwritten = False
        self.next_look = 0.0

    def go(self) -> dict[str, RunState]:
        """Until nothing is missing that can be run, or somebody interrupts."""
        stopping = False
        with Interrupts() as interrupts:
            try:
                while self.places or (self.waiting and not stopping):
                    if interrupts.received is None:
                        self._fill_places()
                    elif not stopping:
                        stopping = True
                        self._ask_to_stop()
                    time.sleep(_POLL)
                    self._collect(stopping=stopping)
                    self._show()
            finally:
                self._kill_the_rest()
                self._show(now=True)
        if interrupts.received is not None:
            raise Interrupts.Stopped(interrupts.received)
        return {name: self.states[name] for name in self.chosen}

    def _fill_places(self) -> None:
        """Start runs on free places, but none that another process is still at work on."""
        for place in range(self.launcher.places):
            if place in self.places:
                continue
            free = (run for run in self.waiting if not is_held(run.directory(self.directory)))
            run = next(free, None)
            if run is None:
                break
            self.waiting.remove(run)
            self._start(place, run)
        if self.waiting and not self.places and not self.said_waiting:
            self.said_waiting = True
            where = printable(self.waiting[0].directory(self.directory))
            self.display.say(f"waiting for other processes that train in {where}")

    def _start(self, place: int, run: PlannedRun) -> None:
        state, title = self.states[run.name], shell_line(run.train_arguments(self.directory))
        try:
            child = self.launcher.start(
                self.make_command(run, self.directory), run.log(self.directory), title, place
            )  # fmt: skip
        except OSError as error:
            self._fail(run, state._replace(exit_code=None), why(error))
            return
        self.places[place] = _Place(run, child)
        self.states[run.name] = state._replace(state="running", exit_code=None, message=None)
        self.display.say(f"{run.name}: " + (f"continues after {state.steps:,} steps" if state.steps else "started"))

    def _ask_to_stop(self) -> None:
        for place in self.places.values():
            place.child.ask_to_stop()

    def _collect(self, *, stopping: bool) -> None:
        """Note how runs have ended."""
        for number, (run, child) in list(self.places.items()):
            code = child.exit_code()
            if code is None:
                continue
            del self.places[number]
            state = look(run, self.directory)._replace(exit_code=code)
            self.states[run.name] = state
            if state.state == "done":
                took = f"{state.steps:,} steps in {state.seconds:.0f} s"
                self.display.say(f"{run.name}: done, {took}, {outcome(state)}")
            elif not stopping:
                words = child.last_words() or ("ended before its last step" if code == 0 else "printed nothing")
                self._fail(run, state, words)
            self.next_look = 0.0

    def _fail(self, run: PlannedRun, state: RunState, words: str) -> None:
        """Note that a run has failed; it waits behind all others as long as it may be tried again."""
        said = f"{run.name}: failed ({how_it_ended(state.exit_code)}): {words}"
        if self.retries[run.name] > 0:
            self.retries[run.name] -= 1
            self.waiting.append(run)
            self.display.say(f"{said}; it will be tried again")
        else:
            self.states[run.name] = state._replace(state="failed", message=words)
            self.display.say(said)

    def _kill_the_rest(self) -> None:
        """After an error, or when somebody is in a hurry: what was saved last is kept."""
        for run, child in self.places.values():
            child.kill()
            self.states[run.name] = look(run, self.directory)
        self.places.clear()

    def _show(self, *, now: bool = False) -> None:
        """Look at what the runs have written; tell the display and, when something has changed, study.json."""
        if not now and time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + _LOOK
        for run, _ in self.places.values():
            self.states[run.name] = look(run, self.directory)._replace(state="running")
        chosen = [self.states[name] for name in self.chosen]
        eta = seconds_left(chosen, self.launcher.places)
        if self.states != self.written:
            self._write_state(eta)
        total = sum(state.total_steps for state in chosen)
        share = sum(state.share * state.total_steps for state in chosen) / total
        running = {run.name: self.states[run.name] for run, _ in self.places.values()}
        done = sum(state.state == "done" for state in chosen)
        self.display.update(StudyProgress(done, len(chosen), share, eta, running))

    def _write_state(self, eta: float | None) -> None:
        """The runs go on where it cannot be written; that is said once."""
        try:
            write_state(self.directory / "study.json", self.study.name, self.states, eta)
            self.written = dict(self.states)
        except OSError as error:
            if not self.said_unwritten:
                self.said_unwritten = True
                self.display.say(f"study.json cannot be written: {why(error)}")


def how_it_ended(code: int | None) -> str:
    """An exit code in words; None is that of what could not be started."""
    if code is None:
        return "not started"
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
