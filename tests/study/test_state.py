"""How far runs are, from what they have written."""

import json
from pathlib import Path

import pytest

from byol_explore.study.plan import PlannedRun, plan_runs
from byol_explore.study.state import RunState, is_finished, last_row, look, read_failures, write_state
from study.helpers import finish, study_of, write_json


@pytest.fixture
def run() -> PlannedRun:
    return plan_runs(study_of())[0]


def test_a_run_without_files_is_missing(run: PlannedRun, tmp_path: Path) -> None:
    assert look(run, tmp_path) == RunState("missing", 0, run.config.total_steps, 0.0)


def test_a_run_with_all_its_steps_is_done(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path)
    state = look(run, tmp_path)
    assert state == RunState("done", run.config.total_steps, run.config.total_steps, 3.0, 0.5, exit_code=0)
    assert state.share == 1.0


def test_a_begun_run_has_its_last_line(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path, interrupted=True)
    last = {"success_rate": 0.25, "uncertainty": 0.5, "return_mean": 2.0}
    rows = [{"steps": step, "elapsed": step / 10, **last} for step in (100, 6400)]
    lines = [json.dumps(row) for row in rows]
    (run.directory(tmp_path) / "metrics.jsonl").write_text("\n".join([*lines, '{"steps": 9']))
    state = look(run, tmp_path)
    assert state == RunState("missing", 6400, run.config.total_steps, 640.0, 0.25, 0.5, 2.0)
    assert state.share == 6400 / run.config.total_steps


def test_stages_are_those_that_can_be_shown(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path, stages={"lifted": 0.5, "opened": "x"})
    assert look(run, tmp_path).stages == {"lifted": 0.5}
    finish(run, tmp_path, stages=[1])
    assert look(run, tmp_path).stages is None


def test_files_that_cannot_be_read_count_for_nothing(run: PlannedRun, tmp_path: Path) -> None:
    run.directory(tmp_path).mkdir(parents=True)
    (run.directory(tmp_path) / "summary.json").write_text('{"steps": 9')
    (run.directory(tmp_path) / "metrics.jsonl").write_text("7\n\n")
    assert look(run, tmp_path).steps == 0
    write_json(run.directory(tmp_path) / "summary.json", [])
    assert look(run, tmp_path).state == "missing"


@pytest.mark.parametrize(
    ("changes", "enough", "expected"),
    [
        ({"steps": 96}, 0.0, True),
        ({"steps": 95}, 0.0, False),
        ({"steps": 96, "interrupted": True}, 0.0, False),
        ({"steps": 10, "success_rate": 0.9}, 0.9, True),
        ({"steps": 10, "success_rate": 0.8}, 0.9, False),
        ({"steps": 10, "success_rate": None}, 0.9, False),
        ({"steps": 10, "success_rate": 0.9, "tasks": {"a": {"success_rate": 1.0}, "b": {"success_rate": 0.8}}}, 0.9,
         False),
        ({"steps": 10, "success_rate": 0.9, "tasks": {"a": {"success_rate": 1.0}, "b": None}}, 0.9, False),
    ],
)  # fmt: skip
def test_all_steps_or_enough_success_is_the_end(changes: dict[str, object], enough: float, expected: bool) -> None:
    [run] = plan_runs(study_of(f"[[variants]]\nsettings = {{ stop_at_success = {enough} }}"))
    assert is_finished({"seconds": 1.0, "success_rate": 0.0, "interrupted": False, **changes}, run.config) == expected


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(json.dumps({"steps": step, "padding": "x" * 1000}) for step in range(200)) + "\n")
    assert last_row(path)["steps"] == 199


def test_programs_can_read_the_state(tmp_path: Path) -> None:
    states = {"a": RunState("done", 9, 9, 3.0, 0.5), "b": RunState("failed", 4, 9, 1.0, exit_code=3, message="broke")}
    write_state(tmp_path / "study.json", "small", states, 2.5)
    data = json.loads((tmp_path / "study.json").read_text())
    assert (data["study"], data["done"], data["eta_seconds"]) == ("small", 1, 2.5)
    assert {name: RunState(**run) for name, run in data["runs"].items()} == states
    assert read_failures(tmp_path / "study.json") == {"b": states["b"]}
    assert read_failures(tmp_path / "nowhere.json") == {}
