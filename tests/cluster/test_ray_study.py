"""Tests of a study on Ray with fake runs: failures, retries and interruptions."""

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
from byol_explore.study import ray_launcher, runner
from byol_explore.study.ray_launcher import RayLauncher, RayRunHost
from byol_explore.study.runner import run_study
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.processes import available_core_ids
from study.helpers import fake_command, study_with
from study.test_launchers import is_alive
from study.test_runner import Spy, facts

PATIENCE = 300.0  # seconds that a loaded machine is given
run_with_ray = partial(run_study, launch=RayLauncher)


@pytest.fixture(autouse=True)
def fake_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "child_command", fake_command)


@pytest.fixture(autouse=True)
def ray_is_shut_down() -> Iterator[None]:
    """Fail a test that leaves Ray initialized, and shut it down."""
    try:
        yield
    finally:
        is_left = ray.is_initialized()
        ray.shutdown()
    assert not is_left


def test_failed_runs_are_retried_and_resumed(tmp_path: Path) -> None:
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
    assert any("crash-seed0: failed (exit code 3): it broke; it will be tried again" in text for text in spy.messages)


def test_interruption_stops_running_and_waiting_runs(tmp_path: Path) -> None:
    """The cluster has room for one run: the other never begins."""
    study, directory = study_with("hang", "hang_2"), tmp_path / "s"
    pids = [directory / "probe-memory" / f"{name}-seed0" / "pid" for name in ("hang", "hang_2")]

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE
        while not any((path.parent / "metrics.jsonl").exists() for path in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(SignalGuard.StoppedBySignal):
        run_with_ray(study, directory, parallel=2, launch=partial(RayLauncher, cpus=len(available_core_ids())))
    started = [path for path in pids if path.exists()]
    assert len(started) == 1
    assert not is_alive(int(started[0].read_text()))
    assert (started[0].parent / "summary.json").exists(), "it has not saved"


def test_lost_host_fails_its_run_with_a_message(tmp_path: Path) -> None:
    study, directory, spy = study_with("hang"), tmp_path / "s", Spy()
    path = directory / "probe-memory" / "hang-seed0" / "pid"

    def kill_host() -> None:
        deadline = time.monotonic() + PATIENCE
        while not (path.parent / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(_parent(int(path.read_text())), signal.SIGKILL)

    threading.Thread(target=kill_host, daemon=True).start()
    try:
        states = run_with_ray(study, directory, display=spy)
    finally:
        os.kill(
            int(path.read_text()), signal.SIGKILL
        )  # unlike a real run, the fake one does not end with Ray's process
    assert states["probe-memory/hang-seed0"].message == "its host, or Ray's process beside it, is lost"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_more_resources_than_any_host_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"no host has --cpus 1000 and --gpus 0 for a run: they have \d+ and 0"):
        RayLauncher(1, cpus=1000)


@pytest.mark.parametrize("settings", [{"cpus": 0}, {"cpus": float("nan")}, {"gpus": -1}])
def test_invalid_resources_are_refused_before_ray_starts(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="it must be at least"):
        RayLauncher(1, **settings)


def test_unreachable_cluster_is_named() -> None:
    with pytest.raises(UserError, match=r"--address '127.0.0.1:1': no cluster listens there .*refused"):
        RayLauncher(1, address="127.0.0.1:1")
    with pytest.raises(UserError, match="--address is 'here': it must be host:port"):
        RayLauncher(1, address="here")


def test_run_does_not_start_on_a_host_with_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_launcher, "versions", lambda: {"byol-explore": "9"})
    with pytest.raises(OSError, match=r"has byol-explore 9, not 1"):
        RayRunHost().run([], "log", "title", {"version": "1"})
