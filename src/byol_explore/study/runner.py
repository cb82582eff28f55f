"""Run the missing runs of a study, a few at a time, each in its own process."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.storage.run_directory import SEARCH
from byol_explore.study.choice import Selection, diverged_runs, is_final_failure
from byol_explore.study.file import Study, describe_difference, read_study
from byol_explore.study.launchers import Launcher, LocalProcesses, RunHandle, check_parallel
from byol_explore.study.plan import PlannedRun, command_line, plan_runs
from byol_explore.study.progress import (
    RunState,
    estimate_eta,
    outcome_text,
    read_failures,
    read_run_state,
    study_bars,
    write_state,
)
from byol_explore.training.output import Display
from byol_explore.utils.files import DirectoryLock, atomic_write, is_locked
from byol_explore.utils.formatting import error_text, escape_unprintable
from byol_explore.utils.interrupts import SignalGuard

_POLL = 0.2  # seconds between polls of the processes
_REFRESH = 1.0  # seconds between reads of the files that they write
_LINE = 60.0  # seconds between printed lines about all runs, if the output is no terminal


def child_command(run: PlannedRun, study_dir: Path) -> list[str]:
    """Return the command of a process that trains, and saves and stops when the study ends."""
    return [sys.executable, "-m", "byol_explore.cli.supervised", *run.train_arguments(study_dir)]


def run_study(
    study: Study, directory: Path | str, *, parallel: int = 1, seeds: int | None = None, only: str = "",
    retries: int = 0, display: Display | None = None, launch: Callable[[int], Launcher] = LocalProcesses,
) -> dict[str, RunState]:  # fmt: skip
    """Run all runs of a study that are not done.

    Args:
      study: what to run.
      directory: of the study; created if it is missing. An existing one must hold the same study.
      parallel: number of runs at a time.
      seeds: number of seeds that replace the study's.
      only: text that the names of the chosen runs contain.
      retries: number of times that a failed run is tried again, after all others.
      display: shows progress; by default nothing is shown.
      launch: makes the launcher for `parallel` runs.
    Returns:
      The states of the chosen runs by name. After Ctrl-C or SIGTERM the runs save and stop, and
      `SignalGuard.StoppedBySignal` is raised.
    """
    directory, display = Path(directory), display or Display()
    check_parallel(parallel)
    if retries < 0:
        raise UserError(f"--retries is {retries}: it must not be negative")
    chosen = plan_missing(study, directory, seeds=seeds, only=only)
    check_study_dir(directory, study)
    lock = DirectoryLock(directory, doing="running a study", option="--study-dir")
    with contextlib.closing(display), lock:
        if not (directory / "study.toml").exists():
            atomic_write(directory / "study.toml", study.text)
        with contextlib.closing(launch(parallel)) as launcher:
            return _Runner(study, directory, chosen, launcher, retries, display, only).run()


def plan_missing(study: Study, directory: Path, *, seeds: int | None = None, only: str = "") -> list[PlannedRun]:
    """Plan the runs of a study, as `plan_runs` does, with those that the finished trials of its search have decided."""
    if study.search is None or seeds is not None:
        return plan_runs(study, seeds=seeds, only=only)
    return Selection(study, directory).plan(only, diverged_runs(directory))


def check_study_dir(directory: Path, study: Study) -> None:
    """Raise a UserError unless the directory is missing, empty, or holds this study."""
    path = directory / "study.toml"
    if path.exists():
        if different := describe_difference(read_study(path), study):
            raise UserError(f"{directory} holds another study: {different}; choose another --study-dir")
    elif directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file: choose another --study-dir")
    elif directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no study: choose another --study-dir")


class _Runner:
    """Runs the chosen runs of a study in the slots of a launcher."""

    def __init__(
        self, study: Study, directory: Path, chosen: Sequence[PlannedRun], launcher: Launcher, retries: int,
        display: Display, only: str,
    ) -> None:  # fmt: skip
        self.study, self.directory, self.display, self.only = study, directory, display, only
        self.selection = Selection(study, directory) if study.search is not None else None
        all_runs = {run.name: run for run in (*plan_missing(study, directory), *chosen)}
        self.states = {name: read_run_state(run, directory) for name, run in all_runs.items()}
        self.chosen = [run.name for run in chosen]
        failures, damage = read_failures(directory / "study.json")
        if damage:
            self.display.message(f"{damage}; it is rewritten, and runs that had failed count as pending")
        for name, failure in failures.items():
            is_kept = name not in self.chosen or is_final_failure(name, failure["exit_code"])
            if is_kept and name in self.states and self.states[name].state != "done":
                self.states[name] = self.states[name]._replace(**failure)
        self.queue = [run for run in chosen if self.states[run.name].state not in ("done", "failed")]
        self.launcher = launcher
        self.all_retries = retries
        self.announced: set[str] = set()  # variants whose choice was shown
        self.retries = dict.fromkeys(self.chosen, retries)  # left for each run
        self.running: dict[int, tuple[PlannedRun, RunHandle]] = {}
        self.written: Mapping[str, RunState] = {}
        self.reported_waiting = self.reported_write_error = False
        self.next_refresh, self.next_line = 0.0, time.monotonic() + _LINE

    def run(self) -> dict[str, RunState]:
        """Run until the queue is empty or a signal arrives; return the states of the chosen runs."""
        stopping = False
        self._continue_search()
        with SignalGuard() as guard:
            try:
                while self.running or (self.queue and not stopping):
                    if guard.signal_number is None:
                        self._fill_slots()
                    elif not stopping:
                        stopping = True
                        for _, child in self.running.values():
                            child.terminate()
                    time.sleep(_POLL)
                    self._collect(stopping=stopping)
                    self._show()
            finally:
                self._kill_running()
                self._show(now=True)
        if guard.signal_number is not None:
            raise SignalGuard.StoppedBySignal(guard.signal_number)
        return self._chosen_states()

    def _chosen_states(self) -> dict[str, RunState]:
        return {name: self.states[name] for name in self.chosen}

    def _fill_slots(self) -> None:
        """Start queued runs in free slots, except runs that another process trains."""
        for slot in range(self.launcher.slots):
            if slot in self.running:
                continue
            free = (run for run in self.queue if not is_locked(run.directory(self.directory)))
            run = next(free, None)
            if run is None:
                break
            self.queue.remove(run)
            self._start(slot, run)
        if self.queue and not self.running and not self.reported_waiting:
            self.reported_waiting = True
            busy = escape_unprintable(self.queue[0].directory(self.directory))
            self.display.message(f"waiting for other processes that train in {busy}")

    def _start(self, slot: int, run: PlannedRun) -> None:
        state, title = self.states[run.name], command_line(run.train_arguments(self.directory))
        try:
            command = child_command(run, self.directory)
            child = self.launcher.start(command, run.log(self.directory), title, slot)
        except OSError as error:
            self._fail(run, state._replace(exit_code=None), error_text(error))
            return
        self.running[slot] = run, child
        self.states[run.name] = state._replace(state="running", exit_code=None, message=None)
        self.display.message(f"{run.name}: " + (f"continues after {state.steps:,} steps" if state.steps else "started"))

    def _collect(self, *, stopping: bool) -> None:
        """Record the runs that have ended."""
        for slot, (run, child) in list(self.running.items()):
            code = child.exit_code()
            if code is None:
                continue
            del self.running[slot]
            state = read_run_state(run, self.directory)._replace(exit_code=code)
            self.states[run.name] = state
            if state.state == "done":
                speed = f"{state.steps:,} steps in {state.seconds:.0f} s"
                self.display.message(f"{run.name}: done, {speed}, {outcome_text(state)}")
                self._continue_search()
            elif not stopping:
                reason = child.last_log_line() or ("ended before its last step" if code == 0 else "printed nothing")
                self._fail(run, state, reason)
            self.next_refresh = 0.0

    def _fail(self, run: PlannedRun, state: RunState, reason: str) -> None:
        """Record a failed run, or put it at the end of the queue if it may be tried again."""
        message = f"{run.name}: failed ({describe_exit(state.exit_code)}): {reason}"
        if self.retries[run.name] > 0:
            self.retries[run.name] -= 1
            self.queue.append(run)
            self.display.message(f"{message}; it will be tried again")
        else:
            self.states[run.name] = state._replace(state="failed", message=reason)
            self.display.message(message)
            self._continue_search()

    def _continue_search(self) -> None:
        """Write what the trials have decided, and queue the runs with chosen settings that are new."""
        if self.selection is None:
            return
        diverged = {name for name, state in self.states.items() if is_final_failure(name, state.exit_code)}
        for variant, trial in self.selection.chosen(diverged).items():
            if variant not in self.announced:
                self.announced.add(variant)
                self.display.message(f"{variant}: chosen is trial {trial}, {self.selection.describe(variant, trial)}")
        for run in self.selection.plan("", diverged):
            if run.name not in self.states:
                self.states[run.name] = read_run_state(run, self.directory)
                if self.only in run.name:
                    self.chosen.append(run.name)
                    self.queue.append(run)
                    self.retries[run.name] = self.all_retries
        selection = self.selection
        self._write(SEARCH, lambda: selection.write(diverged))

    def _kill_running(self) -> None:
        """End the running runs after an error or a second signal; their last checkpoints stay."""
        for run, child in self.running.values():
            child.kill()
            self.states[run.name] = read_run_state(run, self.directory)
        self.running.clear()

    def _show(self, *, now: bool = False) -> None:
        """Read what the runs have written, update the display, and write study.json if a state has changed."""
        if not now and time.monotonic() < self.next_refresh:
            return
        self.next_refresh = time.monotonic() + _REFRESH
        for run, _ in self.running.values():
            self.states[run.name] = read_run_state(run, self.directory)._replace(state="running")
        eta = estimate_eta(self._chosen_states().values(), self.launcher.slots)
        if self.states != self.written:
            self._write_state(eta)
        bars = study_bars(self.study.name, self._chosen_states(), eta)
        self.display.update(bars)
        if time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + _LINE
            self.display.log(bars)

    def _write_state(self, eta: float | None) -> None:
        def write() -> None:
            write_state(self.directory / "study.json", self.study.name, self.states, eta)
            self.written = dict(self.states)

        self._write("study.json", write)

    def _write(self, name: str, write: Callable[[], None]) -> None:
        """Write a file. If that fails, report it once; the runs do not depend on it."""
        try:
            write()
        except OSError as error:
            if not self.reported_write_error:
                self.reported_write_error = True
                self.display.message(f"{name} cannot be written: {error_text(error)}")


def describe_exit(code: int | None) -> str:
    """Describe an exit code; None stands for a process that could not be started."""
    if code is None:
        return "not started"
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
