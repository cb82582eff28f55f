"""Gymnasium's environments in worker processes that fail, exit or are stopped."""

import inspect
import multiprocessing
import os
import re
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from byol_explore.envs import gymnasium_env
from byol_explore.envs.families import GymnasiumSettings
from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.watchdog import run_watched
from byol_explore.errors import EnvironmentFailure
from byol_explore.types import TimeStep, numpy_tree_map
from envs.scripted import number

PATIENCE = 60.0  # seconds, far more than anything here takes


def play(steps: int, limit: float = PATIENCE, stop: bool = False, restarts: int = 0, **kwargs: Any) -> list[TimeStep]:
    """Step two environments under a watchdog; with `stop` one is stopped before. Returns the time steps."""
    env = GymnasiumEnv("unruly:Unruly-v0", GymnasiumSettings(vectorization="async"), kwargs)

    def work(envs: list[Any]) -> list[TimeStep]:
        batch = envs[0].make_vector_env(2, 0)
        try:
            batch.reset()
            if stop:
                os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGSTOP)
            return [numpy_tree_map(np.array, batch.step(number([0, 1]))) for _ in range(steps)]
        finally:
            batch.close()

    return run_watched([env], limit, work, max_restarts=restarts)


def no_process_is_left() -> bool:
    deadline = time.monotonic() + PATIENCE
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def test_worker_exception_keeps_its_traceback(recwarn: pytest.WarningsRecorder) -> None:
    words = "environment [01] of the batch: ValueError: injected fault"
    with pytest.raises(EnvironmentFailure) as raised:
        play(3, how="raise", at=2)
    assert re.fullmatch(f"environment 'gymnasium:unruly:Unruly-v0' failed in step 2: {words}", str(raised.value))
    assert "in _misbehave" in "".join(raised.value.__notes__)
    assert not recwarn.list, "Gymnasium prints the error otherwise"
    assert no_process_is_left()


def test_exit_of_a_worker_is_a_failure(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(EnvironmentFailure, match=r"Unruly-v0' failed in step 2: (EOFError|ConnectionResetError)"):
        play(3, how="leave", at=2)
    assert not recwarn.list
    assert no_process_is_left()


@pytest.mark.parametrize("how", ["raise", "nan", "shape", "exit"])
def test_a_fault_costs_one_environment_its_episode(tmp_path: Path, how: str) -> None:
    steps = play(14, how=how, at=3, once=str(tmp_path / "once"), restarts=1)
    first, last = (np.stack([getattr(step, name) for step in steps]) for name in ("is_first", "is_last"))
    faulty = int(np.argmax(first[2]))
    assert first[2].sum() == 1, "only one environment begins a new episode at step 3"
    assert not last[2].any()
    assert not steps[2].reward.any()
    assert np.flatnonzero(last[:, faulty]).tolist() == [12], "ten steps after the first observation"
    assert np.flatnonzero(last[:, 1 - faulty]).tolist() == [9]
    assert all(np.all(np.isfinite(step.observation)) for step in steps)
    assert no_process_is_left()


def test_the_death_of_a_process_costs_its_batch_the_episodes(tmp_path: Path) -> None:
    steps = play(5, how="leave", at=3, once=str(tmp_path / "once"), restarts=1)
    assert [step.is_first.tolist() for step in steps[1:4]] == [[False, False], [True, True], [False, False]]
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
