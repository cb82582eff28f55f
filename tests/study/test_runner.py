"""Run studies of stand-in runs that crash, hang, are killed or are interrupted."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from byol_explore.errors import UserError
from byol_explore.study import runner
from byol_explore.study.file import parse_study
from byol_explore.study.plan import plan_runs
from byol_explore.study.runner import run_study
from byol_explore.training.output import Bar, Display
from byol_explore.utils.files import DirectoryLock
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.processes import available_core_ids
from study.helpers import fake_command, finish, study_of, study_with
from study.test_launchers import is_alive


@pytest.fixture(autouse=True)
def quick_fake_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "child_command", fake_command)
    monkeypatch.setattr(runner, "_POLL", 0.01)
    monkeypatch.setattr(runner, "_REFRESH", 0.02)


class Spy(Display):
    """Records messages, bars and lines."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.bars: list[Bar] = []
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, bars: Sequence[Bar]) -> None:
        self.bars.append(bars[0])

    def log(self, bars: Sequence[Bar]) -> None:
        self.lines.append(bars[0].status)


def facts(directory: Path, name: str) -> dict[str, Any]:
    return json.loads((directory / "probe-memory" / name / "facts.json").read_text())


def read_study_json(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "study.json").read_text())


def call_when(condition: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    """Call a function in a thread as soon as a condition holds."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_only_missing_runs_are_run(tmp_path: Path) -> None:
    study, spy = study_with("good", "good_2"), Spy()
    finish(plan_runs(study, only="good_2")[0], tmp_path / "s")
    (tmp_path / "s" / "study.toml").write_text(study.text)
    states = run_study(study, tmp_path / "s", display=spy)
    assert {name: state.state for name, state in states.items()} == dict.fromkeys(states, "done")
    assert not (tmp_path / "s" / "probe-memory" / "good_2-seed0" / "facts.json").exists()
    assert spy.messages[0] == "probe-memory/good-seed0: started"
    assert spy.messages[1].startswith("probe-memory/good-seed0: done, ")
    assert (spy.bars[-1].fraction, spy.bars[-1].status) == (1.0, "2 of 2 runs done, eta 0:00:00")
    assert spy.lines == [], "a line is due once a minute"
    again = Spy()
    assert run_study(study, tmp_path / "s", display=again) == states
    assert again.messages == []


def test_progress_lines_are_printed_regularly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LINE", 0.0)
    spy = Spy()
    run_study(study_with("good"), tmp_path / "s", display=spy)
    assert spy.lines[-1] == "1 of 1 runs done, eta 0:00:00"


def test_study_directory_has_file_state_and_logs(tmp_path: Path) -> None:
    study = study_with("good")
    run_study(study, tmp_path / "s")
    assert parse_study((tmp_path / "s" / "study.toml").read_text(), "") == study
    [(name, run)] = read_study_json(tmp_path / "s")["runs"].items()
    assert (name, run["state"], run["exit_code"], run["seconds"]) == ("probe-memory/good-seed0", "done", 0, 2.0)
    assert (tmp_path / "s" / "logs" / f"{name}.log").read_text().startswith("$ byol-explore train --preset grid ")
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"study.toml", "study.json", "logs", "probe-memory"}


def test_crash_does_not_stop_other_runs_and_is_tried_again(tmp_path: Path) -> None:
    study, spy = study_with("crash", "stop-short", "good"), Spy()
    states = run_study(study, tmp_path / "s", display=spy)
    crashed, short, good = states.values()
    assert (crashed.state, crashed.exit_code, crashed.message) == ("failed", 3, "it broke")
    assert (short.state, short.exit_code, short.message) == ("failed", 0, "ended before its last step")
    assert good.state == "done"
    assert "probe-memory/crash-seed0: failed (exit code 3): it broke" in spy.messages
    assert read_study_json(tmp_path / "s")["runs"]["probe-memory/crash-seed0"]["message"] == "it broke"
    again = run_study(study, tmp_path / "s")
    assert [state.state for state in again.values()] == ["done"] * 3
    assert [state.message for state in again.values()] == [None] * 3
    assert facts(tmp_path / "s", "crash-seed0")["resumed"]


def test_killed_run_is_reported_with_its_signal(tmp_path: Path) -> None:
    study, spy = study_with("stubborn"), Spy()
    pid, rows = (tmp_path / "s" / "probe-memory" / "stubborn-seed0" / name for name in ("pid", "metrics.jsonl"))
    call_when(rows.exists, lambda: os.kill(int(pid.read_text()), signal.SIGKILL))
    [state] = run_study(study, tmp_path / "s", display=spy).values()
    assert (state.state, state.exit_code) == ("failed", -9)
    assert spy.messages[-1] == "probe-memory/stubborn-seed0: failed (killed by signal 9): printed nothing"


def test_parallel_runs_have_their_own_cores(tmp_path: Path) -> None:
    run_study(study_with("long_1", "long_2", "long_3", "long_4"), tmp_path / "s", parallel=2)
    runs = [facts(tmp_path / "s", f"long_{i}-seed0") for i in (1, 2, 3, 4)]
    at_once = [sum(other["began"] <= run["began"] < other["ended"] for other in runs) for run in runs]
    assert max(at_once) == 2
    share = max(1, len(available_core_ids()) // 2)
    assert {run["threads"] for run in runs} == {str(share)}
    if hasattr(os, "sched_getaffinity"):
        assert {len(run["cores"]) for run in runs} == {share}


def test_interrupted_runs_save_and_continue_later(tmp_path: Path) -> None:
    study, directory = study_with("hang", "good"), tmp_path / "s"
    run_dir = directory / "probe-memory" / "hang-seed0"
    call_when((run_dir / "metrics.jsonl").exists, interrupt)
    spy = Spy()
    with pytest.raises(SignalGuard.StoppedBySignal) as stopped:
        run_study(study, directory, display=spy)
    assert stopped.value.exit_code == 130
    assert json.loads((run_dir / "summary.json").read_text())["interrupted"]
    runs = read_study_json(directory)["runs"]
    assert [run["state"] for run in runs.values()] == ["pending", "pending"]
    assert runs["probe-memory/hang-seed0"]["steps"] > 0
    assert not any("failed" in text or "good" in text for text in spy.messages)
    again = Spy()
    states = run_study(study, directory, display=again)
    assert [state.state for state in states.values()] == ["done", "done"]
    assert again.messages[0].startswith("probe-memory/hang-seed0: continues after ")


def test_second_interrupt_kills_the_runs(tmp_path: Path) -> None:
    run_dir = tmp_path / "s" / "probe-memory" / "stubborn-seed0"

    def twice() -> None:
        interrupt()
        time.sleep(0.3)
        interrupt()

    call_when((run_dir / "metrics.jsonl").exists, twice)
    with pytest.raises(KeyboardInterrupt):
        run_study(study_with("stubborn"), tmp_path / "s")
    assert not is_alive(int((run_dir / "pid").read_text()))
    assert read_study_json(tmp_path / "s")["runs"]["probe-memory/stubborn-seed0"]["state"] == "pending"


def test_run_locked_by_another_process_is_waited_for(tmp_path: Path) -> None:
    study, spy = study_with("good"), Spy()
    lock = DirectoryLock(tmp_path / "s" / "probe-memory" / "good-seed0")
    lock.acquire()
    (tmp_path / "s" / "study.toml").write_text(study.text)
    call_when(lambda: bool(spy.messages), lock.release)
    run_study(study, tmp_path / "s", display=spy)
    assert spy.messages[0].startswith("waiting for other processes that train in ")
    assert spy.messages[1] == "probe-memory/good-seed0: started"


def test_only_chosen_runs_are_run(tmp_path: Path) -> None:
    study = study_with("good", "hang")
    assert list(run_study(study, tmp_path / "s", only="good", seeds=2)) == [
        f"probe-memory/good-seed{i}" for i in (0, 1)
    ]
    states = {name: run["state"] for name, run in read_study_json(tmp_path / "s")["runs"].items()}
    assert states == {"probe-memory/good-seed0": "done", "probe-memory/hang-seed0": "pending",
                      "probe-memory/good-seed1": "done"}  # fmt: skip


def test_failure_is_remembered_until_it_is_tried_again(tmp_path: Path) -> None:
    study = study_with("crash", "good")
    run_study(study, tmp_path / "s", only="crash")
    run_study(study, tmp_path / "s", only="good")
    runs = read_study_json(tmp_path / "s")["runs"]
    assert [run["state"] for run in runs.values()] == ["failed", "done"]
    assert runs["probe-memory/crash-seed0"]["message"] == "it broke"


def test_directory_with_other_contents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "study.toml").write_text(study_of(steps="97").text)
    for name, message in (("s", "holds another study: steps was 97, now 96; choose another --study-dir"),
                          ("file", "is a file"), ("other", "is not empty and holds no study")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            run_study(study_of(), tmp_path / name)
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["study.toml"]


def test_second_study_process_in_a_directory_is_refused(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "s")
    lock.acquire()
    with pytest.raises(UserError, match=r"another process is running a study in .*s: choose another --study-dir"):
        run_study(study_with("good"), tmp_path / "s")
    lock.release()


def test_parallel_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--parallel is 0"):
        run_study(study_with("good"), tmp_path / "s", parallel=0)
    assert list(tmp_path.iterdir()) == []


def test_failed_runs_are_tried_again_after_all_others(tmp_path: Path) -> None:
    study, spy = study_with("crash", "hopeless", "good"), Spy()
    states = run_study(study, tmp_path / "s", retries=2, display=spy)
    assert [(state.state, state.message) for state in states.values()] == [
        ("done", None), ("failed", "it broke"), ("done", None)
    ]  # fmt: skip
    again = "failed (exit code 3): it broke; it will be tried again"
    told = [text for text in spy.messages if ": done, " not in text]
    assert told == [
        "probe-memory/crash-seed0: started", f"probe-memory/crash-seed0: {again}",
        "probe-memory/hopeless-seed0: started", f"probe-memory/hopeless-seed0: {again}",
        "probe-memory/good-seed0: started", "probe-memory/crash-seed0: started",
        "probe-memory/hopeless-seed0: started", f"probe-memory/hopeless-seed0: {again}",
        "probe-memory/hopeless-seed0: started", "probe-memory/hopeless-seed0: failed (exit code 3): it broke",
    ]  # fmt: skip
    assert read_study_json(tmp_path / "s")["runs"]["probe-memory/hopeless-seed0"]["state"] == "failed"


def test_negative_retries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--retries is -1: it must not be negative"):
        run_study(study_with("good"), tmp_path / "s", retries=-1)


def test_run_that_cannot_be_started_does_not_stop_others(tmp_path: Path) -> None:
    study, spy = study_with("good_1", "good_2"), Spy()
    (tmp_path / "s" / "logs" / "probe-memory").mkdir(parents=True)
    (tmp_path / "s" / "study.toml").write_text(study.text)
    os.mkfifo(tmp_path / "s" / "logs" / "probe-memory" / "good_1-seed0.log")
    first, second = run_study(study, tmp_path / "s", display=spy).values()
    assert (first.state, second.state) == ("failed", "done")
    assert spy.messages[0].startswith("probe-memory/good_1-seed0: failed (not started): ")
    assert spy.messages[0].endswith("good_1-seed0.log is no file")


def test_unwritable_study_json_stops_no_run(tmp_path: Path) -> None:
    study, spy = study_with("good"), Spy()
    (tmp_path / "s" / "study.json").mkdir(parents=True)
    (tmp_path / "s" / "study.toml").write_text(study.text)
    [state] = run_study(study, tmp_path / "s", display=spy).values()
    assert state.state == "done"
    assert spy.messages.count("study.json cannot be written: Is a directory") == 1


def test_study_directory_may_have_any_name(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"\xff it's\n")
    [state] = run_study(study_with("good"), directory).values()
    assert state.state == "done"
    assert b"\xff it" in (directory / "logs" / "probe-memory" / "good-seed0.log").read_bytes()
