"""Small studies for the tests."""

import json
import sys
from pathlib import Path
from typing import Any

from byol_explore.study.file import Study, parse_study
from byol_explore.study.plan import PlannedRun

FAKE = Path(__file__).with_name("fake_run.py")


def study_of(*lines: str, tasks: str = "['probe:memory']", seeds: str = "1", steps: str = "96") -> Study:
    """Parse a small study that ends with these lines."""
    head = (
        f"name = 'small'\ntasks = {tasks}\nseeds = {seeds}\nsteps = {steps}\n",
        "settings.stop_at_success_rate = 0\n",
    )
    return parse_study("".join(head) + "\n".join(lines), "small.toml")


def study_with(*names: str, **changes: str) -> Study:
    """Parse a study with variants of these names, which are the behaviours of fake_run."""
    return study_of(*(f"[[variants]]\nname = '{name}'" for name in names), **changes)


def fake_command(run: PlannedRun, study_dir: Path) -> list[str]:
    words = [run.variant.partition("_")[0], str(run.directory(study_dir)), str(run.config.total_steps)]
    return [sys.executable, "-S", "-E", str(FAKE), *words]


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def finish(run: PlannedRun, study_dir: Path, **changes: Any) -> None:
    """Write the summary of a finished run."""
    summary = {"steps": run.config.total_steps, "seconds": 3.0, "success_rate": 0.5, "interrupted": False, **changes}
    write_json(run.directory(study_dir) / "summary.json", summary)
