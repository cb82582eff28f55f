"""Gymnasium's environments in processes of their own: those that fail, leave, or are stopped."""

import multiprocessing
import os
import signal
import time
from typing import Any

import pytest

from byol_explore.envs.adapters import gymnasium_processes
from byol_explore.envs.adapters.gymnasium import Gymnasium
from byol_explore.envs.adapters.gymnasium_settings import GymnasiumSettings
from byol_explore.envs.guarding import guarded
from byol_explore.errors import EnvironmentFailure
from envs.scripted import number

PATIENCE = 60.0  # seconds, far more than anything here takes


def play(steps: int, limit: float = PATIENCE, stop: bool = False, **kwargs: Any) -> None:
    """So many steps of two environments, under guard; one is stopped before."""
    env = Gymnasium("unruly:Unruly-v0", GymnasiumSettings(kwargs=kwargs, vectorization="async"))

    def work(envs: list[Any]) -> None:
        batch = envs[0].batch(2, 0)
        try:
            batch.reset()
            if stop:
                os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGSTOP)
            for _ in range(steps):
                batch.step(number([0, 1]))
        finally:
            batch.close()

    guarded([env], limit, work)


def none_is_left() -> bool:
    deadline = time.monotonic() + PATIENCE
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def test_one_that_raises_says_so_with_its_own_traceback(recwarn: pytest.WarningsRecorder) -> None:
    words = "RuntimeError: environment [01] of the batch: ValueError: it was told to$"
    with pytest.raises(
        EnvironmentFailure, match=f"^environment 'gymnasium:unruly:Unruly-v0' failed in step 2: {words}"
    ) as raised:
        play(3, how="raise", at=2)
    assert "in _misbehave" in "".join(raised.value.__cause__.__notes__)
    assert not recwarn.list, "Gymnasium prints it otherwise"
    assert none_is_left()


def test_one_that_leaves_is_noticed(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(EnvironmentFailure, match=r"Unruly-v0' failed in step 2: (EOFError|ConnectionResetError)"):
        play(3, how="leave", at=2)
    assert not recwarn.list
    assert none_is_left()


def test_one_that_is_stopped_is_noticed_and_ended() -> None:
    with pytest.raises(EnvironmentFailure, match=r"Unruly-v0' hangs: step 1 has taken more than 2 s"):
        play(1, limit=2.0, stop=True)
    assert none_is_left()


def test_one_that_is_stopped_does_not_keep_the_others_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_processes, "OWN_END", 1.0)
    play(0, stop=True)
    assert none_is_left()
