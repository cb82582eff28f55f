"""Running what is missing, whatever happens meanwhile; fake runs play every part."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from byol_explore.errors import UserError
from byol_explore.interrupts import Interrupts
from byol_explore.run.locking import DirectoryLock
from byol_explore.study import runner
from byol_explore.study.display import NullStudyDisplay, StudyProgress
from byol_explore.study.file import parse_study
from byol_explore.study.plan import plan_runs
from byol_explore.study.processes import usable_cores
from study.helpers import fake_command, finish, study_of, study_with
from study.test_processes import is_alive

run_study = partial(runner.run_study, make_command=fake_command)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_POLL", 0.01)
    monkeypatch.setattr(runner, "_LOOK", 0.02)


class Spy(NullStudyDisplay):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.seen: list[StudyProgress] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, progress: StudyProgress) -> None:
        self.seen.append(progress)


def facts(directory: Path, name: str) -> dict[str, Any]:
    return json.loads((directory / "probe-memory" / name / "facts.json").read_text())


def written(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "study.json").read_text())


def soon(what: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    """Do something as soon as something is so."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not what() and time.monotonic() < deadline:
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_missing_is_run_and_then_nothing_is(tmp_path: Path) -> None:
    study, spy = study_with("good", "good_2"), Spy()
    finish(plan_runs(study, only="good_2")[0], tmp_path / "s")
    (tmp_path / "s" / "study.toml").write_text(study.text)
    states = run_study(study, tmp_path / "s", display=spy)
    assert {name: state.state for name, state in states.items()} == dict.fromkeys(states, "done")
    assert not (tmp_path / "s" / "probe-memory" / "good_2-seed0" / "facts.json").exists()
    assert spy.said[0] == "probe-memory/good-seed0: started"
    assert spy.said[1].startswith("probe-memory/good-seed0: done, ")
    assert (spy.seen[-1].done, spy.seen[-1].runs, spy.seen[-1].share) == (2, 2, 1.0)
    again = Spy()
    assert run_study(study, tmp_path / "s", display=again) == states
    assert again.said == []


def test_a_study_leaves_its_file_its_state_and_logs(tmp_path: Path) -> None:
    study = study_with("good")
    run_study(study, tmp_path / "s")
    assert parse_study((tmp_path / "s" / "study.toml").read_text(), "") == study
    [(name, run)] = written(tmp_path / "s")["runs"].items()
    assert (name, run["state"], run["exit_code"], run["seconds"]) == ("probe-memory/good-seed0", "done", 0, 2.0)
    assert (tmp_path / "s" / "logs" / f"{name}.log").read_text().startswith("$ byol-explore train --preset grid ")
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"study.toml", "study.json", "logs", "probe-memory"}


def test_a_crash_stops_nobody_else_and_is_tried_again(tmp_path: Path) -> None:
    study, spy = study_with("crash", "stop-short", "good"), Spy()
    states = run_study(study, tmp_path / "s", display=spy)
    crashed, short, good = states.values()
    assert (crashed.state, crashed.exit_code, crashed.message) == ("failed", 3, "it broke")
    assert (short.state, short.exit_code, short.message) == ("failed", 0, "ended before its last step")
    assert good.state == "done"
    assert "probe-memory/crash-seed0: failed (exit code 3): it broke" in spy.said
    assert written(tmp_path / "s")["runs"]["probe-memory/crash-seed0"]["message"] == "it broke"
    again = run_study(study, tmp_path / "s")
    assert [state.state for state in again.values()] == ["done"] * 3
    assert [state.message for state in again.values()] == [None] * 3
    assert facts(tmp_path / "s", "crash-seed0")["resumed"]


def test_a_killed_run_is_told_as_such(tmp_path: Path) -> None:
    study, spy = study_with("stubborn"), Spy()
    pid, rows = (tmp_path / "s" / "probe-memory" / "stubborn-seed0" / name for name in ("pid", "metrics.jsonl"))
    soon(rows.exists, lambda: os.kill(int(pid.read_text()), signal.SIGKILL))
    [state] = run_study(study, tmp_path / "s", display=spy).values()
    assert (state.state, state.exit_code) == ("failed", -9)
    assert spy.said[-1] == "probe-memory/stubborn-seed0: failed (killed by signal 9): printed nothing"


def test_as_many_run_at_a_time_as_allowed_each_on_its_cores(tmp_path: Path) -> None:
    run_study(study_with("good_1", "good_2", "good_3", "good_4"), tmp_path / "s", parallel=2)
    runs = [facts(tmp_path / "s", f"good_{i}-seed0") for i in (1, 2, 3, 4)]
    at_once = [sum(other["began"] <= run["began"] < other["ended"] for other in runs) for run in runs]
    assert max(at_once) == 2
    share = max(1, len(usable_cores()) // 2)
    assert {run["threads"] for run in runs} == {str(share)}
    if hasattr(os, "sched_getaffinity"):
        assert {len(run["cores"]) for run in runs} == {share}


def test_after_an_interrupt_runs_save_and_the_study_goes_on_later(tmp_path: Path) -> None:
    study, directory = study_with("hang", "good"), tmp_path / "s"
    run_dir = directory / "probe-memory" / "hang-seed0"
    soon((run_dir / "metrics.jsonl").exists, interrupt)
    spy = Spy()
    with pytest.raises(Interrupts.Stopped) as stopped:
        run_study(study, directory, display=spy)
    assert stopped.value.exit_code == 130
    assert json.loads((run_dir / "summary.json").read_text())["interrupted"]
    runs = written(directory)["runs"]
    assert [run["state"] for run in runs.values()] == ["missing", "missing"]
    assert runs["probe-memory/hang-seed0"]["steps"] > 0
    assert not any("failed" in text or "good" in text for text in spy.said)
    again = Spy()
    states = run_study(study, directory, display=again)
    assert [state.state for state in states.values()] == ["done", "done"]
    assert again.said[0].startswith("probe-memory/hang-seed0: continues after ")


def test_a_second_interrupt_waits_for_nobody(tmp_path: Path) -> None:
    run_dir = tmp_path / "s" / "probe-memory" / "stubborn-seed0"

    def twice() -> None:
        interrupt()
        time.sleep(0.3)
        interrupt()

    soon((run_dir / "metrics.jsonl").exists, twice)
    with pytest.raises(KeyboardInterrupt):
        run_study(study_with("stubborn"), tmp_path / "s")
    assert not is_alive(int((run_dir / "pid").read_text()))
    assert written(tmp_path / "s")["runs"]["probe-memory/stubborn-seed0"]["state"] == "missing"


def test_a_run_that_another_process_is_at_work_on_is_waited_for(tmp_path: Path) -> None:
    study, spy = study_with("good"), Spy()
    lock = DirectoryLock(tmp_path / "s" / "probe-memory" / "good-seed0")
    lock.acquire()
    (tmp_path / "s" / "study.toml").write_text(study.text)
    soon(lambda: bool(spy.said), lock.release)
    run_study(study, tmp_path / "s", display=spy)
    assert spy.said[0].startswith("waiting for other processes that train in ")
    assert spy.said[1] == "probe-memory/good-seed0: started"


def test_only_what_was_chosen_is_run(tmp_path: Path) -> None:
    study = study_with("good", "hang")
    assert list(run_study(study, tmp_path / "s", only="good", seeds=2)) == [
        f"probe-memory/good-seed{i}" for i in (0, 1)
    ]
    states = {name: run["state"] for name, run in written(tmp_path / "s")["runs"].items()}
    assert states == {"probe-memory/good-seed0": "done", "probe-memory/hang-seed0": "missing",
                      "probe-memory/good-seed1": "done"}  # fmt: skip


def test_a_failure_is_remembered_until_it_is_tried_again(tmp_path: Path) -> None:
    study = study_with("crash", "good")
    run_study(study, tmp_path / "s", only="crash")
    run_study(study, tmp_path / "s", only="good")
    runs = written(tmp_path / "s")["runs"]
    assert [run["state"] for run in runs.values()] == ["failed", "done"]
    assert runs["probe-memory/crash-seed0"]["message"] == "it broke"


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "study.toml").write_text(study_of(steps="97").text)
    for name, message in (("s", "holds another study: steps was 97, now 96; choose another --dir"),
                          ("file", "is a file"), ("other", "is not empty and holds no study")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            run_study(study_of(), tmp_path / name)
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["study.toml"]


def test_a_directory_has_one_study_process(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "s")
    lock.acquire()
    with pytest.raises(UserError, match=r"another process is running a study in .*s: choose another --dir"):
        run_study(study_with("good"), tmp_path / "s")
    lock.release()


def test_no_run_at_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--parallel is 0"):
        run_study(study_with("good"), tmp_path / "s", parallel=0)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_tried_again_behind_all_others(tmp_path: Path) -> None:
    study, spy = study_with("crash", "hopeless", "good"), Spy()
    states = run_study(study, tmp_path / "s", retries=2, display=spy)
    assert [(state.state, state.message) for state in states.values()] == [
        ("done", None), ("failed", "it broke"), ("done", None)
    ]  # fmt: skip
    again = "failed (exit code 3): it broke; it will be tried again"
    told = [text for text in spy.said if ": done, " not in text]
    assert told == [
        "probe-memory/crash-seed0: started", f"probe-memory/crash-seed0: {again}",
        "probe-memory/hopeless-seed0: started", f"probe-memory/hopeless-seed0: {again}",
        "probe-memory/good-seed0: started", "probe-memory/crash-seed0: started",
        "probe-memory/hopeless-seed0: started", f"probe-memory/hopeless-seed0: {again}",
        "probe-memory/hopeless-seed0: started", "probe-memory/hopeless-seed0: failed (exit code 3): it broke",
    ]  # fmt: skip
    assert written(tmp_path / "s")["runs"]["probe-memory/hopeless-seed0"]["state"] == "failed"


def test_retries_are_not_negative(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--retries is -1: it must not be negative"):
        run_study(study_with("good"), tmp_path / "s", retries=-1)


def test_a_run_that_cannot_be_started_stops_nobody_else(tmp_path: Path) -> None:
    study, spy = study_with("good_1", "good_2"), Spy()
    (tmp_path / "s" / "logs" / "probe-memory").mkdir(parents=True)
    (tmp_path / "s" / "study.toml").write_text(study.text)
    os.mkfifo(tmp_path / "s" / "logs" / "probe-memory" / "good_1-seed0.log")
    first, second = run_study(study, tmp_path / "s", display=spy).values()
    assert (first.state, second.state) == ("failed", "done")
    assert spy.said[0].startswith("probe-memory/good_1-seed0: failed (not started): ")
    assert spy.said[0].endswith("good_1-seed0.log is no file")


def test_a_state_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    study, spy = study_with("good"), Spy()
    (tmp_path / "s" / "study.json").mkdir(parents=True)
    (tmp_path / "s" / "study.toml").write_text(study.text)
    [state] = run_study(study, tmp_path / "s", display=spy).values()
    assert state.state == "done"
    assert spy.said.count("study.json cannot be written: Is a directory") == 1


def test_the_directory_may_be_called_anything(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"\xff it's\n")
    [state] = run_study(study_with("good"), directory).values()
    assert state.state == "done"
    assert b"\xff it" in (directory / "logs" / "probe-memory" / "good-seed0.log").read_bytes()
