"""Visit maps against counts of one cell at a time."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from builders import steps_of
from byol_explore.training.coverage import MAX_SLICES, VisitMaps
from host_worlds import Scripted

TASKS = ["wide", "tall"]


class Floor:
    def __init__(self, height: int, width: int) -> None:
        self.floor_shape = (height, width)
        self.drawn = 0

    def position(self, state: Any) -> Any: ...

    def floor_plan(self) -> list[str]:
        self.drawn += 1
        return ["." * self.floor_shape[1]] * self.floor_shape[0]


def floors() -> list[Floor]:
    return [Floor(2, 5), Floor(4, 3)]


SHAPE = (25, 4)  # steps and environments of a rollout, which has 100 steps
TASK = np.broadcast_to(np.arange(4) % 2, SHAPE)


def rollout(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions [T, 4, 2] and rewards [T, 4]; even environments have the wide floor, odd ones the tall one."""
    random = np.random.default_rng(seed)
    places = np.zeros((*SHAPE, 2), np.uint8)
    for env in range(4):
        places[:, env] = random.integers(0, floors()[env % 2].floor_shape, (SHAPE[0], 2))
    return places, random.random(SHAPE).astype(np.float32)


def maps_after(dispatches: int) -> VisitMaps:
    maps = VisitMaps(TASKS, floors())
    for index in range(dispatches):
        maps.on_rollout(steps_of(*rollout(index), TASK), 100 * index)
    return maps


def expected(task: int, dispatches: range) -> tuple[np.ndarray, np.ndarray]:
    visits, rewards_of = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for seed in dispatches:
        places, rewards = rollout(seed)
        for index in np.ndindex(SHAPE):
            if index[-1] % 2 == task:
                cell = tuple(places[index].tolist())
                visits[cell] += 1
                rewards_of[cell] += float(rewards[index])
    shape = floors()[task].floor_shape
    return tuple(
        np.array([[table[r, c] for c in range(shape[1])] for r in range(shape[0])]) for table in (visits, rewards_of)
    )


@pytest.mark.parametrize(("dispatches", "slices"), [
    (1, [1]), (8, [1] * 8), (9, [2] * 4 + [1]), (16, [2] * 8), (17, [4] * 4 + [1]), (23, [4] * 5 + [3]),
])  # fmt: skip
def test_slices_are_equally_long_and_hold_all_visits_and_rewards(dispatches: int, slices: list[int]) -> None:
    assert len(slices) <= MAX_SLICES
    written = maps_after(dispatches).to_file()["tasks"]
    for task, name in enumerate(TASKS):
        begin = 0
        for count, part in zip(slices, written[name]["slices"], strict=True):
            visits, rewards_of = expected(task, range(begin, begin + count))
            assert (part["from"], part["to"]) == (100 * begin, 100 * (begin + count))
            np.testing.assert_array_equal(part["visits"], visits)
            np.testing.assert_allclose(part["intrinsic_reward"], rewards_of, atol=1e-3)
            begin += count


@pytest.mark.parametrize("half", [3, 8, 11])
def test_maps_are_restored_from_a_checkpoint(half: int) -> None:
    resumed = VisitMaps(TASKS, floors())
    resumed.load_state_dict(maps_after(half).state_dict())
    for index in range(half, 20):
        resumed.on_rollout(steps_of(*rollout(index), TASK), 100 * index)
    assert resumed.to_file() == maps_after(20).to_file()


def test_a_floor_plan_is_drawn_once() -> None:
    envs = floors()
    maps = VisitMaps(TASKS, envs)
    assert maps.to_file() == maps.to_file() == {
        "tasks": {"wide": {"floor": ["....."] * 2, "slices": []}, "tall": {"floor": ["..."] * 4, "slices": []}}
    }  # fmt: skip
    assert [env.drawn for env in envs] == [1, 1]


def test_without_floor_plans_there_are_no_maps() -> None:
    maps = VisitMaps(["floor", "none"], [Floor(2, 2), Scripted()])
    maps.on_rollout(steps_of(np.zeros((1, 2, 0), np.uint8)), 0)
    assert maps.to_file() == {"tasks": {}}
