"""Gymnasium's environments in worker processes that fail, exit or are stopped."""

import inspect
import multiprocessing
import os
import signal
import time
from importlib.metadata import version
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from byol_explore.envs import gymnasium_env
from byol_explore.envs.families import GymnasiumSettings
from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.watchdog import run_watched
from byol_explore.errors import EnvironmentFailure
from envs.scripted import number

PATIENCE = 60.0  # seconds, far more than anything here takes


def play(steps: int, limit: float = PATIENCE, stop: bool = False, **kwargs: Any) -> None:
    """Step two environments under a watchdog; with `stop` one is stopped before."""
    env = GymnasiumEnv("unruly:Unruly-v0", GymnasiumSettings(vectorization="async"), kwargs)

    def work(envs: list[Any]) -> None:
        batch = envs[0].make_vector_env(2, 0)
        try:
            batch.reset()
            if stop:
                os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGSTOP)
            for _ in range(steps):
                batch.step(number([0, 1]))
        finally:
            batch.close()

    run_watched([env], limit, work)


def no_process_is_left() -> bool:
    deadline = time.monotonic() + PATIENCE
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def test_worker_exception_keeps_its_traceback(recwarn: pytest.WarningsRecorder) -> None:
    words = "RuntimeError: environment [01] of the batch: ValueError: injected fault$"
    with pytest.raises(
        EnvironmentFailure, match=f"^environment 'gymnasium:unruly:Unruly-v0' failed in step 2: {words}"
    ) as raised:
        play(3, how="raise", at=2)
    assert "in _misbehave" in "".join(raised.value.__cause__.__notes__)
    assert not recwarn.list, "Gymnasium prints the error otherwise"
    assert no_process_is_left()


def test_exit_of_a_worker_is_a_failure(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(EnvironmentFailure, match=r"Unruly-v0' failed in step 2: (EOFError|ConnectionResetError)"):
        play(3, how="leave", at=2)
    assert not recwarn.list
    assert no_process_is_left()


def test_stopped_worker_is_a_failure_and_is_killed() -> None:
    with pytest.raises(EnvironmentFailure, match=r"Unruly-v0' hangs: step 1 has taken more than 2 s"):
        play(1, limit=2.0, stop=True)
    assert no_process_is_left()


def test_close_kills_a_stopped_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_env, "EXIT_SECONDS", 1.0)
    play(0, stop=True)
    assert no_process_is_left()


def test_the_private_worker_of_gymnasium_is_the_known_one() -> None:
    """`gymnasium_env.worker` passes its arguments to a private function: review it if this fails."""
    assert version("gymnasium").startswith("1.")
    known = ["index", "env_fn", "pipe", "parent_pipe", "shared_memory", "error_queue", "autoreset_mode"]
    assert list(inspect.signature(_async_worker).parameters)[: len(known)] == known
    vector = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")], context="spawn")
    try:
        assert hasattr(vector.error_queue, "get")
        assert [process.is_alive() for process in vector.processes] == [True]
        assert vector.closed is False
    finally:
        vector.close()
