"""States of runs from the files that they have written."""

import json
from pathlib import Path

import pytest

from byol_explore.storage.run_directory import is_finished
from byol_explore.study.plan import PlannedRun, plan_runs
from byol_explore.study.progress import RunState, last_row, read_failures, read_run_state, write_state
from study.helpers import finish, study_of, write_json


@pytest.fixture
def run() -> PlannedRun:
    return plan_runs(study_of())[0]


def test_run_without_files_is_pending(run: PlannedRun, tmp_path: Path) -> None:
    assert read_run_state(run, tmp_path) == RunState("pending", 0, run.config.total_steps, 0.0)


def test_run_with_all_steps_is_done(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path)
    state = read_run_state(run, tmp_path)
    assert state == RunState("done", run.config.total_steps, run.config.total_steps, 3.0, 0.5, exit_code=0)
    assert state.fraction == 1.0


def test_begun_run_has_the_values_of_its_last_row(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path, interrupted=True)
    last = {"success_rate": 0.25, "uncertainty": 0.5, "return_mean": 2.0}
    rows = [{"steps": step, "elapsed_seconds": step / 10, **last} for step in (100, 6400)]
    lines = [json.dumps(row) for row in rows]
    (run.directory(tmp_path) / "metrics.jsonl").write_text("\n".join([*lines, '{"steps": 9']))
    state = read_run_state(run, tmp_path)
    assert state == RunState("pending", 6400, run.config.total_steps, 640.0, 0.25, 0.5, 2.0)
    assert state.fraction == 6400 / run.config.total_steps


def test_stages_without_a_number_are_left_out(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path, stages={"lifted": 0.5, "opened": "x"})
    assert read_run_state(run, tmp_path).stages == {"lifted": 0.5}
    finish(run, tmp_path, stages=[1])
    assert read_run_state(run, tmp_path).stages is None


def test_unreadable_files_are_ignored(run: PlannedRun, tmp_path: Path) -> None:
    run.directory(tmp_path).mkdir(parents=True)
    (run.directory(tmp_path) / "summary.json").write_text('{"steps": 9')
    (run.directory(tmp_path) / "metrics.jsonl").write_text("7\n\n")
    assert read_run_state(run, tmp_path).steps == 0
    write_json(run.directory(tmp_path) / "summary.json", [])
    assert read_run_state(run, tmp_path).state == "pending"


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
def test_run_ends_by_steps_or_by_success(changes: dict[str, object], enough: float, expected: bool) -> None:
    [run] = plan_runs(study_of(f"[[variants]]\nsettings = {{ stop_at_success_rate = {enough} }}"))
    summary = {"seconds": 1.0, "success_rate": 0.0, "interrupted": False, **changes}
    assert is_finished(summary, run.config.steps, run.config.stop_at_success_rate) == expected


def test_last_row_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(json.dumps({"steps": step, "padding": "x" * 1000}) for step in range(200)) + "\n")
    assert last_row(path)["steps"] == 199


def test_study_json_round_trip(tmp_path: Path) -> None:
    states = {"a": RunState("done", 9, 9, 3.0, 0.5), "b": RunState("failed", 4, 9, 1.0, exit_code=3, message="broke")}
    write_state(tmp_path / "study.json", "small", states, 2.5)
    data = json.loads((tmp_path / "study.json").read_text())
    assert (data["study"], data["done"], data["eta_seconds"]) == ("small", 1, 2.5)
    assert {name: RunState(**run) for name, run in data["runs"].items()} == states
    failed = {"b": {"state": "failed", "exit_code": 3, "message": "broke"}}
    assert read_failures(tmp_path / "study.json") == (failed, "")
    assert read_failures(tmp_path / "nowhere.json") == ({}, "")


def test_damaged_study_json_is_named_and_ignored(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    write_state(path, "small", {"b": RunState("failed", 4, 9, 1.0, exit_code=3, message="broke")}, None)
    text = path.read_text()
    path.write_text(text.replace('"exit_code": 3', '"exit_code": 7'))
    assert read_failures(path) == ({}, "study.json is damaged (does not match its checksum)")
    shapes = ["", "7", "null", "[]", "{}", '{"runs": 7}', '{"runs": [1]}', "[" * 10**5, "\0", text[:40]]
    for shape in shapes:
        path.write_text(shape)
        failures, damage = read_failures(path)
        assert (failures, "\n" in damage, damage[:23]) == ({}, False, "study.json is damaged ("), shape
    for entry in (None, 7, [], {}, {"state": "failed"}, {"state": "failed", "exit_code": "3", "message": "broke"}):
        path.write_text(json.dumps({"runs": {"b": entry}}))
        assert read_failures(path) == ({}, "")
    path.unlink()
    path.symlink_to("/dev/zero")
    assert read_failures(path)[1].startswith("study.json is damaged (")
