"""Warnings about observations outside their Gymnasium spaces."""

from typing import Any

import numpy as np
import pytest
from gymnasium import Space, spaces

from byol_explore.envs.gymnasium_env import GymnasiumEnv, bounds_checker
from byol_explore.envs.watchdog import Watchdog
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
def test_observations_out_of_bounds_give_a_warning(space: Space[Any], inside: Any, outside: Any) -> None:
    warnings = bounds_checker(space, "mine")
    as_batch = (lambda x: x) if isinstance(space, spaces.Tuple) else np.asarray
    assert warnings(as_batch(inside)) == []
    [text] = warnings(as_batch(outside))
    if isinstance(space, spaces.Tuple):
        assert text == "entry '1' of its observation lies outside of Box(0.0, 1.0, (1,), float32)"
    else:
        assert text.startswith(f"its observation lies outside of {type(space).__name__}(")


def test_spaces_without_bounds_are_not_checked() -> None:
    assert bounds_checker(spaces.Box(0, 255, (2,), np.uint8), "image")(None) == []
    assert bounds_checker(spaces.Box(-np.inf, np.inf, (2,)), "vector")(None) == []
    assert bounds_checker(spaces.Text(8), "text")(None) == []


def test_the_watchdog_gets_the_warning() -> None:
    watchdog = Watchdog(60.0)
    kwargs = {"how": "outside", "at": 2}
    [world] = watchdog.wrap([GymnasiumEnv("unruly:Unruly-v0", kwargs=kwargs)])
    batch = world.make_vector_env(2, 0)
    batch.reset()
    for _ in range(9):
        batch.step(number([0, 1]))
    batch.close()
    words = "its observation lies outside of Box(-1.0, 1.0, (4,), float32)"
    assert watchdog.pop_warnings() == (f"environment 'gymnasium:unruly:Unruly-v0': {words} (step 2)",)
