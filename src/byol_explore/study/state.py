"""How far the runs of a study are, from what they have written."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from byol_explore.files import write_atomically
from byol_explore.report.logs import PLAIN, number, row_of
from byol_explore.report.own_files import own_file, read_object
from byol_explore.settings.config import Config
from byol_explore.study.plan import PlannedRun

_TAIL = 65_536  # bytes: more than a line of metrics.jsonl


class RunState(NamedTuple):
    """One entry of study.json."""

    state: str  # missing (perhaps begun), running, done or failed
    steps: int
    total_steps: int
    seconds: float  # of training, over all sessions
    success_rate: float | None = None
    uncertainty: float | None = None
    return_mean: float | None = None
    exit_code: int | None = None
    message: str | None = None  # of a failed run: the last line of its log
    stages: dict | None = None  # the share of its last episodes that reached each

    @property
    def share(self) -> float:
        return 1.0 if self.state == "done" else min(1.0, self.steps / self.total_steps)


def look(run: PlannedRun, study_dir: Path) -> RunState:
    """Done, or missing with the steps that it has so far."""
    directory, total = run.directory(study_dir), run.config.total_steps
    summary = _read_object(directory / "summary.json")
    if is_finished(summary, run.config):
        done = RunState("done", summary["steps"], total, number(summary["seconds"]), exit_code=0)
        return _with_outcome(done, summary)
    row = last_row(directory / PLAIN)
    begun = RunState("missing", int(row.get("steps", 0)), total, _known(row.get("elapsed")) or 0.0)
    return _with_outcome(begun, row)


def _with_outcome(state: RunState, facts: Mapping[str, Any]) -> RunState:
    """With what a summary or a line of metrics says of the last episodes."""
    success, uncertainty, returned = (
        _known(facts.get(each)) for each in ("success_rate", "uncertainty", "return_mean")
    )
    return state._replace(
        success_rate=success, uncertainty=uncertainty, return_mean=returned, stages=_shares(facts.get("stages"))
    )


def _shares(stages: Any) -> dict[str, float] | None:
    """Those that are known; None where nobody has stages."""
    if not isinstance(stages, dict):
        return None
    return {name: share for name, value in stages.items() if (share := _known(value)) is not None}


def is_finished(summary: Mapping[str, Any], config: Config) -> bool:
    """Whether a run with this summary was not interrupted, and has all its steps or as much success as asked for."""
    is_whole = type(summary.get("steps")) is int and _known(summary.get("seconds")) is not None
    if not is_whole or "success_rate" not in summary or summary.get("interrupted") is not False:
        return False
    if summary["steps"] >= config.steps:
        return True
    tasks = summary.get("tasks", {"": summary})
    rates = [_success(task) for task in tasks.values()] if isinstance(tasks, dict) else [0.0]
    return config.stop_at_success > 0 and min(rates, default=0.0) >= config.stop_at_success


def _success(task: Any) -> float:
    """Of the last episodes of a task in a summary; none where it does not say."""
    return (_known(task.get("success_rate")) if isinstance(task, dict) else None) or 0.0


def _known(value: Any) -> float | None:
    """A number; None for what is none."""
    return None if math.isnan(known := number(value)) else known


def last_row(path: Path) -> dict[str, Any]:
    """The last whole line of a metrics.jsonl, without reading the others; empty if there is none."""
    if own_file(path.parent, path.name) is None:
        return {}
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    return next((row for line in reversed(lines) if (row := row_of(line))), {})


def write_state(path: Path, study: str, states: Mapping[str, RunState], eta: float | None) -> None:
    """study.json, for programs: `running` holds while a study process does."""
    data = {
        "study": study,
        "done": sum(state.state == "done" for state in states.values()),
        "eta_seconds": eta,
        "runs": {name: state._asdict() for name, state in states.items()},
    }
    write_atomically(path, json.dumps(data, indent=1) + "\n")


def read_failures(path: Path) -> dict[str, RunState]:
    """The runs that had failed when study.json was written."""
    runs = _read_object(path).get("runs")
    states = {name: _entry(run) for name, run in runs.items()} if isinstance(runs, dict) else {}
    return {name: state for name, state in states.items() if state is not None and state.state == "failed"}


def _entry(run: Any) -> RunState | None:
    """What an entry of study.json says; None for one that this program has not written."""
    kinds = get_type_hints(RunState)
    if not isinstance(run, dict) or run.keys() != kinds.keys():
        return None
    known = all(isinstance(run[name], kind) for name, kind in kinds.items()) and run["total_steps"] > 0
    return RunState(**run) if known else None


def _read_object(path: Path) -> dict[str, Any]:
    """Empty where there is none."""
    try:
        return read_object(path.parent, path.name)
    except (OSError, ValueError):
        return {}
