"""How far the runs of a study are, from what they have written."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from byol_explore.files import write_atomically
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

    @property
    def share(self) -> float:
        return 1.0 if self.state == "done" else min(1.0, self.steps / self.total_steps)


def look(run: PlannedRun, study_dir: Path) -> RunState:
    """Done, or missing with the steps that it has so far."""
    directory, total = run.directory(study_dir), run.config.total_steps
    summary = _read_object(directory / "summary.json")
    if is_finished(summary, run.config):
        return RunState("done", summary["steps"], total, summary["seconds"], summary["success_rate"],
                        return_mean=summary.get("return_mean"), exit_code=0)  # fmt: skip
    row = last_row(directory / "metrics.jsonl")
    known = [row.get(name) for name in ("success_rate", "uncertainty", "return_mean")]
    return RunState("missing", row.get("steps", 0), total, row.get("elapsed", 0.0), *known)


def is_finished(summary: Mapping[str, Any], config: Config) -> bool:
    """Whether a run with this summary was not interrupted, and has all its steps or as much success as asked for."""
    if not {"interrupted", "steps", "seconds", "success_rate"} <= summary.keys() or summary["interrupted"]:
        return False
    if summary["steps"] >= config.steps:
        return True
    tasks = [task or {} for task in summary.get("tasks", {"": summary}).values()]
    return config.stop_at_success > 0 and all((t.get("success_rate") or 0.0) >= config.stop_at_success for t in tasks)


def last_row(path: Path) -> dict[str, Any]:
    """The last whole line of a metrics.jsonl, without reading the others; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    return {}


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
    runs = _read_object(path).get("runs", {})
    return {name: RunState(**run) for name, run in runs.items() if run["state"] == "failed"}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
