"""Worker processes of Atari games: those that fail, those that are killed, and that none is left behind."""

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

from byol_explore.envs.adapters import atari, processes
from byol_explore.envs.adapters.atari import Atari, AtariBatch
from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.guarding import guarded
from byol_explore.envs.host_tasks import TaskBatch
from byol_explore.errors import EnvironmentFailure
from byol_explore.types import Action

PATIENCE = 30.0  # seconds, far more than anything here takes


def in_time(function: Callable[[], Any]) -> Any:
    """What a call returns or raises; a call that hangs fails the test instead."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def act(batch: AtariBatch, action: int = 0) -> Any:
    chosen = np.full((batch.num_envs, 1), action, np.int32)
    return batch.step(Action(chosen, np.zeros((batch.num_envs, 0), np.float32)))


class Started(list[subprocess.Popen[bytes]]):
    """All worker processes of a test; one may be made to fail at its start."""

    fail_at: int | None = None

    def start(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if len(self) == self.fail_at:
            raise OSError("too many processes")
        self.append(subprocess.Popen(*arguments, **options))
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
    """Whatever goes wrong, a test leaves no process behind either."""
    workers = Started()
    fake = type("Subprocess", (), {"Popen": staticmethod(workers.start), "PIPE": subprocess.PIPE})
    monkeypatch.setattr(atari, "subprocess", fake)
    yield workers
    for worker in workers:
        worker.kill()
        worker.wait()


def open_batch(num_envs: int = 2, workers: int = 2, **settings: Any) -> AtariBatch:
    return Atari("freeway", AtariSettings(noops=0, **settings), workers=workers).batch(num_envs, 0)


@pytest.mark.parametrize(("num_envs", "workers", "processes"), [(3, 1, 1), (3, 2, 2), (2, 5, 2)])
def test_close_ends_all_workers_and_twice_is_harmless(
    started: Started, num_envs: int, workers: int, processes: int
) -> None:
    batch = open_batch(num_envs, workers)
    in_time(batch.reset)
    assert len(started) == processes
    assert all(worker.poll() is None for worker in started)
    in_time(batch.close)
    assert [worker.poll() for worker in started] == [0] * processes
    in_time(batch.close)


def test_a_batch_that_was_never_used_closes(started: Started) -> None:
    in_time(open_batch().close)
    assert [worker.poll() for worker in started] == [0, 0]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_is_noticed(started: Started, victim: int) -> None:
    batch = open_batch()
    in_time(batch.reset)
    os.kill(started[victim].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: it ended with code -9$"):
        in_time(lambda: [act(batch) for _ in range(2)])
    with pytest.raises(RuntimeError, match="an Atari worker process failed"):
        in_time(lambda: act(batch))
    in_time(batch.close)
    assert started.all_ended()


def test_a_worker_killed_in_the_middle_of_its_work_is_noticed(started: Started) -> None:
    """It is stopped, told to go on, and killed while its parent waits for the answer."""
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


def test_a_worker_that_fails_says_why(started: Started) -> None:
    batch = open_batch(full_action_set=False)
    in_time(batch.reset)
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: IndexError: .*index"):
        in_time(lambda: act(batch, 99))
    with pytest.raises(RuntimeError, match="an Atari worker process failed"):
        in_time(lambda: act(batch))
    in_time(batch.close)
    assert started.all_ended()


def test_a_worker_that_cannot_begin_says_why(started: Started) -> None:
    batch = open_batch(1, 1, sticky="often")
    with pytest.raises(RuntimeError, match=r"^an Atari worker process failed: TypeError: setFloat"):
        in_time(batch.reset)
    in_time(batch.close)
    assert started.all_ended()


def test_no_worker_is_left_when_another_cannot_be_started(started: Started) -> None:
    """Nor does it live as long as the error does."""
    started.fail_at = 1
    with pytest.raises(OSError, match="too many processes") as caught:
        open_batch(3, 3)
    assert caught.traceback
    assert len(started) == 1
    assert started.all_ended()


def test_no_worker_is_left_when_another_task_cannot_be_started(started: Started) -> None:
    started.fail_at = 1
    envs = [Atari(game, workers=1) for game in ("freeway", "pong")]
    with pytest.raises(OSError, match="too many processes") as caught:
        TaskBatch(envs, 2, 0)
    assert caught.traceback
    assert len(started) == 1
    assert started.all_ended()


def test_a_stopped_worker_is_noticed_and_ended(started: Started) -> None:
    """It answers nothing, not even SIGTERM."""

    def work(envs: list[Any]) -> None:
        batch = envs[0].batch(2, 0)
        batch.reset()
        os.kill(started[1].pid, signal.SIGSTOP)
        act(batch)

    with pytest.raises(EnvironmentFailure, match=r"'atari:freeway' hangs: step 1 has taken more than 3 s"):
        in_time(lambda: guarded([Atari("freeway", AtariSettings(noops=0), workers=2)], 3.0, work))
    assert started.all_ended()
    assert started[1].poll() == -signal.SIGKILL


def test_a_stopped_worker_does_not_keep_a_batch_from_closing(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "OWN_END", 1.0)
    batch = open_batch()
    in_time(batch.reset)
    os.kill(started[0].pid, signal.SIGSTOP)
    in_time(batch.close)
    assert [worker.poll() for worker in started] == [-signal.SIGKILL, 0]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_workers_end_with_their_parent(is_stopped: bool) -> None:
    """However it ends. They have its stderr, which is at its end only when all of them have closed it."""
    script = (
        "import time\n"
        "from byol_explore.envs.adapters.atari import Atari\n"
        "batch = Atari('freeway', workers=2).batch(2, 0)\n"
        "batch.reset()\n"
        "print(*[worker.pid for worker in batch._workers], flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    workers = [int(pid) for pid in in_time(parent.stdout.readline).split()]
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGSTOP if is_stopped else 0)  # it is there
    try:
        parent.kill()
        parent.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        raise


def test_a_worker_starts_without_jax() -> None:
    """Which would take it seconds, and a good part of the memory."""
    script = "import byol_explore.envs.adapters.atari_emulator, sys; print('jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=PATIENCE)
    assert run.stdout.split() == [b"False"]
