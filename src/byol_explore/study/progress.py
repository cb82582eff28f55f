"""Progress of a study: states of runs from what they have written, the time left, and progress bars."""

import heapq
import math
import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from byol_explore.storage.metrics import LOG_NAME, console_summary, parse_last_row, to_float
from byol_explore.storage.run_directory import is_finished
from byol_explore.study.plan import PlannedRun
from byol_explore.training.output import Bar
from byol_explore.utils.files import DAMAGE_ERRORS, read_json_object, read_tail, safe_file, write_json_object
from byol_explore.utils.formatting import error_text, escape_unprintable, truncate


class RunState(NamedTuple):
    """One entry of study.json."""

    state: str  # pending (not begun or interrupted), running, done or failed
    steps: int
    total_steps: int
    seconds: float  # of training, summed over all sessions
    success_rate: float | None = None
    uncertainty: float | None = None
    return_mean: float | None = None
    exit_code: int | None = None
    message: str | None = None  # of a failed run: the last line of its log
    stages: dict | None = None  # share of its last episodes that reached each stage

    @property
    def fraction(self) -> float:
        return 1.0 if self.state == "done" else min(1.0, self.steps / self.total_steps)


def read_run_state(run: PlannedRun, study_dir: Path) -> RunState:
    """Return the state of a run that no process trains: done, or pending with the steps that it has."""
    directory, total = run.directory(study_dir), run.config.total_steps
    summary = _read_object(directory / "summary.json")
    if is_finished(summary, run.config.steps, run.config.stop_at_success_rate):
        seconds = to_float(summary["seconds"])
        return RunState("done", summary["steps"], total, seconds, exit_code=0, **_outcome(summary))
    row = last_row(directory / LOG_NAME)
    seconds = _known(row.get("elapsed_seconds")) or 0.0
    return RunState("pending", int(row.get("steps", 0)), total, seconds, **_outcome(row))


def _outcome(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `RunState` about the last episodes, from a summary or a row of metrics."""
    outcome: dict[str, Any] = {name: _known(facts.get(name)) for name in ("success_rate", "uncertainty", "return_mean")}
    if isinstance(stages := facts.get("stages"), dict):
        known = {name: _known(value) for name, value in stages.items()}
        outcome["stages"] = {name: share for name, share in known.items() if share is not None}
    return outcome


def _known(value: Any) -> float | None:
    """Return a finite number, or None for other values."""
    return None if math.isnan(number := to_float(value)) else number


def last_row(path: Path) -> dict[str, Any]:
    """Read the last intact row of a metrics.jsonl, and only the end of the file; empty if there is none."""
    return {} if safe_file(path.parent, path.name) is None else parse_last_row(read_tail(path))


def write_state(path: Path, study: str, states: Mapping[str, RunState], eta: float | None) -> None:
    """Write study.json with a checksum, for programs. A run is `running` only as long as the study's process is."""
    data = {
        "study": study,
        "done": _count_done(states),
        "eta_seconds": eta,
        "runs": {name: state._asdict() for name, state in states.items()},
    }
    write_json_object(path, data)


def read_failures(path: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Read state, exit code and message of the runs that had failed when study.json was written.

    Returns:
      The failures by the name of the run, and the reason if the file cannot be read; none without a file.
    """
    failures: dict[str, dict[str, Any]] = {}
    if not os.path.lexists(path):
        return failures, ""
    try:
        runs = read_json_object(path.parent, path.name).get("runs")
    except DAMAGE_ERRORS as error:
        return failures, f"{path.name} is damaged ({truncate(error_text(error)).removeprefix(f'{path.name} ')})"
    if not isinstance(runs, dict):
        return failures, f"{path.name} is damaged (holds no runs)"
    for name, run in runs.items():
        match run:
            case {"state": "failed", "exit_code": int() | None as code, "message": str(message)}:
                failures[name] = {"state": "failed", "exit_code": code, "message": escape_unprintable(message)}
    return failures, ""


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is none."""
    try:
        return read_json_object(path.parent, path.name)
    except (OSError, ValueError):
        return {}


def estimate_eta(states: Collection[RunState], parallel: int) -> float | None:
    """Estimate the seconds until all runs have ended; None if no speed is known yet.

    Each run takes the first of the `parallel` slots that becomes free. A running run keeps its own speed; a pending one
    gets the average speed of all runs.
    """
    begun = [state for state in states if state.steps > 0 and state.seconds > 0]
    if all(state.state == "done" for state in states):
        return 0.0
    if not begun:
        return None
    average = sum(state.steps for state in begun) / sum(state.seconds for state in begun)
    slots = [0.0] * parallel
    for kind in ("running", "pending"):
        for state in states:
            if state.state == kind:
                speed = state.steps / state.seconds if kind == "running" and state in begun else average
                heapq.heapreplace(slots, slots[0] + max(0, state.total_steps - state.steps) / speed)
    return max(slots)


def study_bars(name: str, states: Mapping[str, RunState], eta: float | None) -> list[Bar]:
    """Return a bar for the study and one for each running run."""
    done, total = _count_done(states), sum(state.total_steps for state in states.values())
    fraction = sum(state.fraction * state.total_steps for state in states.values()) / total
    left = "-" if eta is None else str(timedelta(seconds=round(eta)))
    study = Bar(f"study {name}", fraction, f"{done} of {len(states)} runs done, eta {left}")
    running = {run: state for run, state in states.items() if state.state == "running"}
    return [study, *(Bar(f"  {run}", state.fraction, run_text(state)) for run, state in running.items())]


def _count_done(states: Mapping[str, RunState]) -> int:
    return sum(state.state == "done" for state in states.values())


def run_text(state: RunState) -> str:
    """Format steps, success and uncertainty of a run, if it has logged them."""
    if state.steps == 0:
        return "starting"
    outcome = [] if state.success_rate is state.return_mean is None else [outcome_text(state)]
    known = {name: value for name in ("stages", "uncertainty") if (value := getattr(state, name)) is not None}
    return "  ".join([f"{state.steps:,} steps", *outcome, *console_summary(known)])


def outcome_text(state: RunState) -> str:
    """Format the success of the last episodes, or their return if the environment defines no success."""
    if state.success_rate is not None or state.return_mean is None:
        return console_summary({"success_rate": state.success_rate})[0]
    return f"no success defined, {console_summary({'return_mean': state.return_mean})[0]}"
