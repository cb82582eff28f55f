"""Observations of Gymnasium's environments that lie outside of their spaces."""

from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces

from byol_explore.envs.adapters.gymnasium import Gymnasium
from byol_explore.envs.adapters.gymnasium_doubts import doubts_of
from byol_explore.envs.adapters.gymnasium_settings import GymnasiumSettings
from byol_explore.envs.guarding import Guard
from envs.scripted import number


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (spaces.Box(-1.0, 1.0, (2,)), [[-1.0, 1.0]], [[0.0, 1.5]]),
        (spaces.Box(np.float32([0.0, -np.inf]), np.float32([1.0, np.inf])), [[0, -1e30]], [[-1, 0]]),
        (spaces.Box(0, 9, (2,), np.uint8), [[0, 9]], [[10, 0]]),
        (spaces.Discrete(3, start=5), [5, 7], [8]),
        (spaces.Discrete(3, start=5), [6], [4]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[2, 0]]),
        (spaces.MultiBinary(2), [[0, 1]], [[2, 0]]),
        (spaces.Tuple([spaces.Discrete(9), spaces.Box(0, 1, (1,))]), (np.array([1]), np.array([[0.5]])),
         (np.array([1]), np.array([[2.0]]))),
    ],
)  # fmt: skip
def test_what_lies_outside_is_said(space: Space[Any], inside: Any, outside: Any) -> None:
    doubts = doubts_of(space, "talking")
    as_batch = (lambda x: x) if isinstance(space, spaces.Tuple) else np.asarray
    assert doubts(as_batch(inside)) == []
    [doubt] = doubts(as_batch(outside))
    if isinstance(space, spaces.Tuple):
        assert doubt == "entry '1' of its observation lies outside of Box(0.0, 1.0, (1,), float32)"
    else:
        assert doubt.startswith(f"its observation lies outside of {type(space).__name__}(")


def test_where_everything_is_inside_nobody_looks() -> None:
    assert doubts_of(spaces.Box(0, 255, (2,), np.uint8), "image")(None) == []
    assert doubts_of(spaces.Box(-np.inf, np.inf, (2,)), "vector")(None) == []
    assert doubts_of(spaces.Text(8), "text")(None) == []


def test_a_guard_hears_of_it() -> None:
    guard = Guard(60.0)
    settings = GymnasiumSettings(kwargs={"how": "outside", "at": 2})
    [world] = guard.protect([Gymnasium("unruly:Unruly-v0", settings)])
    batch = world.batch(2, 0)
    batch.reset()
    for _ in range(9):
        batch.step(number([0, 1]))
    batch.close()
    words = "its observation lies outside of Box(-1.0, 1.0, (4,), float32)"
    assert guard.new_remarks() == (f"environment 'gymnasium:unruly:Unruly-v0': {words} (step 2)",)
