"""Damaged files in a study's directory: their contents count as unknown, and the study continues."""

import json
import os
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.study.plan import PlannedRun, plan_runs
from byol_explore.study.progress import estimate_eta, read_failures, read_run_state, write_state
from byol_explore.study.runner import check_study_dir
from report.damages import DEEP, DIGITS, MORE_DIGITS, Damage, folder, link, pipe, raw, text
from study.helpers import finish, study_of

WHOLE = {"steps": 10**6, "seconds": 3.0, "success_rate": 0.5, "interrupted": False}


def every_kind(name: str, *contents: str) -> dict[str, Damage]:
    """Return damages that write these contents, contents that fit no file, or no regular file."""
    usual = ("", "null", "[]", "7", DEEP, '{"steps": 9', "{}")
    damages = {f"{name}: {content[:60]}": text(name, content) for content in (*usual, *contents)}
    others = {"noise": raw(name, os.urandom(999)), "a pipe": pipe(name), "endless": link(name, "/dev/zero")}
    others |= {"elsewhere": link(name, "/etc/passwd"), "a folder": folder(name), "a circle": link(name, name)}
    return damages | {f"{name} is {kind}": damage for kind, damage in others.items()}


SUMMARIES = every_kind(
    "summary.json",
    *(json.dumps({**WHOLE, name: value}) for name in ("steps", "seconds") for value in (None, "x", [1], {}, 1e999)),
    *(json.dumps({**WHOLE, "interrupted": value}) for value in ("no", None, 0)),
    json.dumps({**WHOLE, "steps": 5, "tasks": [1]}),
    json.dumps({**WHOLE, "steps": 5, "tasks": {"a": 7, "b": {"success_rate": "x"}}}),
    json.dumps(WHOLE).replace("3.0", DIGITS),
    json.dumps(WHOLE).replace("3.0", MORE_DIGITS),
)
LOGS = every_kind(
    "metrics.jsonl",
    "123",
    *(json.dumps({"steps": value, "elapsed_seconds": value}) for value in (None, "x", [1], True, -5, 1e999)),
    f'{{"steps": {DIGITS}, "elapsed_seconds": {DIGITS}}}',
)
UNKNOWN = ("success_rate", "uncertainty", "return_mean", "exit_code", "message", "stages")
STATES = every_kind(
    "study.json",
    *(json.dumps({"runs": value}) for value in (5, [], None, {"a": 5}, {"a": {}}, {"a": {"state": "failed"}})),
    json.dumps({"runs": {"a": {"state": "failed", "steps": "x", "total_steps": None, "seconds": "y"}}}),
    json.dumps({"runs": {"a": {**dict.fromkeys(UNKNOWN), "state": "failed", "steps": 1, "total_steps": 0,
                               "seconds": 1.0}}}),
)  # fmt: skip
STUDIES = every_kind("study.toml", f"x = {MORE_DIGITS}", f"name = {DEEP}", "name = 5", "#" * 2_000_000)


@pytest.fixture
def run() -> PlannedRun:
    return plan_runs(study_of())[0]


@pytest.mark.parametrize("damage", [*SUMMARIES.values(), *LOGS.values()], ids=[*SUMMARIES, *LOGS])
def test_run_with_a_damaged_file_is_pending(run: PlannedRun, tmp_path: Path, damage: Damage) -> None:
    directory = run.directory(tmp_path)
    directory.mkdir(parents=True)
    damage(directory)
    state = read_run_state(run, tmp_path)
    assert (state.state, state.steps, state.seconds) == ("pending", 0, 0.0)
    assert state.fraction == 0.0
    assert estimate_eta([state], 1) is None
    write_state(tmp_path / "study.json", "small", {"a": state}, None)


def test_finished_run_with_damaged_results_is_done(run: PlannedRun, tmp_path: Path) -> None:
    finish(run, tmp_path, success_rate="x", return_mean=[1])
    state = read_run_state(run, tmp_path)
    assert (state.state, state.success_rate, state.return_mean) == ("done", None, None)


@pytest.mark.parametrize("damage", STATES.values(), ids=STATES)
def test_damaged_study_json_has_no_failures(tmp_path: Path, damage: Damage) -> None:
    damage(tmp_path)
    assert read_failures(tmp_path / "study.json")[0] == {}


@pytest.mark.parametrize("damage", STUDIES.values(), ids=STUDIES)
def test_damaged_study_toml_is_an_error_of_one_line(tmp_path: Path, damage: Damage) -> None:
    damage(tmp_path)
    (tmp_path / "notes").touch()
    with pytest.raises(UserError) as raised:
        check_study_dir(tmp_path, study_of())
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
