"""Worker processes of Atari games: failures, kills, and the end of all processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from byol_explore.envs import atari
from byol_explore.envs.atari import Atari, AtariVectorEnv
from byol_explore.envs.families import AtariSettings
from byol_explore.envs.host_vector import FixedTaskBatch
from byol_explore.envs.watchdog import run_watched
from byol_explore.errors import EnvironmentFailure
from byol_explore.types import Action
from byol_explore.utils import processes as processes_module

PATIENCE = 30.0  # seconds, far more than anything here takes


def in_time(function: Callable[[], Any]) -> Any:
    """Return or raise the result of a call; a call that hangs fails the test."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the call hangs"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def act(batch: AtariVectorEnv, action: int = 0) -> Any:
    chosen = np.full((batch.num_envs, 1), action, np.int32)
    return batch.step(Action(chosen, np.zeros((batch.num_envs, 0), np.float32)))


class Started(list[subprocess.Popen[bytes]]):
    """All worker processes of a test; the start of one may fail."""

    fail_at: int | None = None

    def start(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if len(self) == self.fail_at:
            raise OSError("too many processes")
        self.append(processes_module.spawn_child(*arguments, **options))
        return self[-1]

    def all_ended(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if all(worker.poll() is not None for worker in self):
                return True
            time.sleep(0.01)
        return False


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Record the worker processes, and kill those that a failed test leaves."""
    workers = Started()
    monkeypatch.setattr(atari, "spawn_child", workers.start)
    yield workers
    for worker in workers:
        worker.kill()
        worker.wait()


def open_batch(num_envs: int = 2, workers: int = 2, **settings: Any) -> AtariVectorEnv:
    return Atari("freeway", AtariSettings(max_noops=0, num_workers=workers, **settings)).make_vector_env(num_envs, 0)


@pytest.mark.parametrize(("num_envs", "workers", "processes"), [(3, 1, 1), (3, 2, 2), (2, 5, 2)])
def test_close_ends_all_workers_and_may_be_repeated(
    started: Started, num_envs: int, workers: int, processes: int
) -> None:
    batch = open_batch(num_envs, workers)
    in_time(batch.reset)
    assert len(started) == processes
    assert all(worker.poll() is None for worker in started)
    in_time(batch.close)
    assert [worker.poll() for worker in started] == [0] * processes
    in_time(batch.close)


def test_an_unused_batch_closes(started: Started) -> None:
    in_time(open_batch().close)
    assert [worker.poll() for worker in started] == [0, 0]


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_worker_raises(started: Started, victim: int) -> None:
    batch = open_batch()
    in_time(batch.reset)
    os.kill(started[victim].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: it ended with code -9$"):
        in_time(lambda: [act(batch) for _ in range(2)])
    with pytest.raises(RuntimeError, match="an Atari worker process failed"):
        in_time(lambda: act(batch))
    in_time(batch.close)
    assert started.all_ended()


def test_worker_killed_during_a_step_raises(started: Started) -> None:
    """It is stopped, gets a command, and is killed while its parent waits for the reply."""
    batch = open_batch()
    in_time(batch.reset)
    os.kill(started[1].pid, signal.SIGSTOP)
    killer = threading.Timer(0.5, lambda: os.kill(started[1].pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(RuntimeError, match="it ended with code -9"):
        in_time(lambda: act(batch))
    killer.join()
    in_time(batch.close)
    assert started.all_ended()


def test_worker_failure_has_its_reason(started: Started) -> None:
    batch = open_batch(full_action_set=False)
    in_time(batch.reset)
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: IndexError: .*index"):
        in_time(lambda: act(batch, 99))
    with pytest.raises(RuntimeError, match="an Atari worker process failed"):
        in_time(lambda: act(batch))
    in_time(batch.close)
    assert started.all_ended()


def test_worker_start_failure_has_its_reason(started: Started) -> None:
    batch = open_batch(1, 1, sticky_action_prob="often")
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: TypeError: setFloat"):
        in_time(batch.reset)
    in_time(batch.close)
    assert started.all_ended()


def test_failed_start_of_a_worker_ends_the_others(started: Started) -> None:
    """They end although the error is kept."""
    started.fail_at = 1
    with pytest.raises(OSError, match="too many processes") as caught:
        open_batch(3, 3)
    assert caught.traceback
    assert len(started) == 1
    assert started.all_ended()


def test_failed_start_of_a_task_ends_the_workers_of_others(started: Started) -> None:
    started.fail_at = 1
    envs = [Atari(game, AtariSettings(num_workers=1)) for game in ("freeway", "pong")]
    with pytest.raises(OSError, match="too many processes") as caught:
        FixedTaskBatch(envs, 2, 0)
    assert caught.traceback
    assert len(started) == 1
    assert started.all_ended()


def test_stopped_worker_is_a_failure_and_is_killed(started: Started) -> None:
    """It does not react to SIGTERM either."""

    def work(envs: list[Any]) -> None:
        batch = envs[0].make_vector_env(2, 0)
        batch.reset()
        os.kill(started[1].pid, signal.SIGSTOP)
        act(batch)

    with pytest.raises(EnvironmentFailure, match=r"'atari:freeway' hangs: step 1 has taken more than 3 s"):
        in_time(lambda: run_watched([Atari("freeway", AtariSettings(max_noops=0, num_workers=2))], 3.0, work))
    assert started.all_ended()
    assert started[1].poll() == -signal.SIGKILL


def test_close_kills_a_stopped_worker(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "EXIT_SECONDS", 1.0)
    batch = open_batch()
    in_time(batch.reset)
    os.kill(started[0].pid, signal.SIGSTOP)
    in_time(batch.close)
    assert [worker.poll() for worker in started] == [-signal.SIGKILL, 0]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_workers_end_with_their_parent(is_stopped: bool) -> None:
    """The parent is killed. Its stderr ends only when all workers, which inherit it, have ended."""
    script = (
        "import time\n"
        "from byol_explore.envs.registry import make_env\n"
        "batch = make_env('atari:freeway', num_workers=2).make_vector_env(2, 0)\n"
        "batch.reset()\n"
        "print(*[worker.pid for worker in batch._workers], flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    workers = [int(pid) for pid in in_time(parent.stdout.readline).split()]
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGSTOP if is_stopped else 0)  # signal 0 checks that the process exists
    try:
        parent.kill()
        parent.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        raise
