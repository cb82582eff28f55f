"""A study on Ray: fake runs begin, fail, are tried again and are interrupted as on one machine."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import ray

from byol_explore.errors import UserError
from byol_explore.interrupts import Interrupts
from byol_explore.study import ray_tasks
from byol_explore.study.processes import usable_cores
from byol_explore.study.ray_tasks import Host, RayTasks
from byol_explore.study.runner import run_study
from study.helpers import fake_command, study_with
from study.test_processes import is_alive
from study.test_runner import Spy, facts

PATIENCE = 300.0  # seconds that a loaded machine is given
run_with_ray = partial(run_study, make_command=fake_command, launch=RayTasks)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Of Ray, also when a test fails."""
    try:
        yield
    finally:
        was_left = ray.is_initialized()
        ray.shutdown()
    assert not was_left


def test_runs_are_run_and_those_that_fail_are_tried_again_and_resumed(tmp_path: Path) -> None:
    spy, study = Spy(), study_with("good", "crash", "hopeless")
    states = run_with_ray(study, tmp_path / "s", parallel=2, retries=1, display=spy)
    assert [state.state for state in states.values()] == ["done", "done", "failed"]
    assert states["probe-memory/hopeless-seed0"].exit_code == 3
    assert states["probe-memory/hopeless-seed0"].message == "it broke"
    assert facts(tmp_path / "s", "crash-seed0")["resumed"]
    assert facts(tmp_path / "s", "good-seed0")["threads"] == "1"
    log = (tmp_path / "s" / "logs" / "probe-memory" / "crash-seed0.log").read_text()
    assert log.count("$ byol-explore train") == 2
    assert "error: it broke" in log
    assert any("crash-seed0: failed (exit code 3): it broke; it will be tried again" in said for said in spy.said)


def test_an_interruption_stops_what_runs_and_what_waits_for_room(tmp_path: Path) -> None:
    """Only one has room: the other never begins."""
    study, directory = study_with("hang", "hang_2"), tmp_path / "s"
    pids = [directory / "probe-memory" / f"{name}-seed0" / "pid" for name in ("hang", "hang_2")]

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE
        while not any((path.parent / "metrics.jsonl").exists() for path in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Interrupts.Stopped):
        run_with_ray(study, directory, parallel=2, launch=partial(RayTasks, cpus=len(usable_cores())))
    begun = [path for path in pids if path.exists()]
    assert len(begun) == 1
    assert not is_alive(int(begun[0].read_text()))
    assert (begun[0].parent / "summary.json").exists(), "it has saved"


def test_a_lost_host_is_a_failure_in_words(tmp_path: Path) -> None:
    study, directory, spy = study_with("hang"), tmp_path / "s", Spy()
    path = directory / "probe-memory" / "hang-seed0" / "pid"

    def lose() -> None:
        deadline = time.monotonic() + PATIENCE
        while not (path.parent / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(_parent(int(path.read_text())), signal.SIGKILL)

    threading.Thread(target=lose, daemon=True).start()
    try:
        states = run_with_ray(study, directory, display=spy)
    finally:
        os.kill(
            int(path.read_text()), signal.SIGKILL
        )  # it plays a run, but does not end with Ray's process as one does
    assert states["probe-memory/hang-seed0"].message == "its host, or Ray's process beside it, is lost"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_what_no_host_can_give_is_refused() -> None:
    with pytest.raises(UserError, match=r"no host has --cpus 1000 and --gpus 0 for a run: they have \d+ and 0"):
        RayTasks(1, cpus=1000)


@pytest.mark.parametrize("settings", [{"cpus": 0}, {"cpus": float("nan")}, {"gpus": -1}])
def test_nonsense_is_refused_before_ray_begins(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="it must be at least"):
        RayTasks(1, **settings)


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"there is no Ray cluster at --address 127.0.0.1:1: .*refused"):
        RayTasks(1, address="127.0.0.1:1")
    with pytest.raises(UserError, match="--address is 'here': it must be host:port"):
        RayTasks(1, address="here")


def test_another_version_there_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_tasks, "versions", lambda: {"byol-explore": "9"})
    with pytest.raises(OSError, match=r"has byol-explore 9, not 1"):
        Host().run([], "log", "title", {"version": "1"})
