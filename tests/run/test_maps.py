"""Maps against counting cell by cell."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from builders import steps_of
from byol_explore.run.maps import MOST_SLICES, CuriosityMaps

TASKS = ["wide", "tall"]


class Floor:
    def __init__(self, height: int, width: int) -> None:
        self.floor = (height, width)
        self.drawn = 0

    def place(self, state: Any) -> Any: ...

    def floor_plan(self) -> list[str]:
        self.drawn += 1
        return ["." * self.floor[1]] * self.floor[0]


def floors() -> list[Floor]:
    return [Floor(2, 5), Floor(4, 3)]


SHAPE = (25, 4)  # steps and environments of a rollout: 100 steps
TASK = np.broadcast_to(np.arange(4) % 2, SHAPE)


def rollout(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places [T, 4, 2] and rewards of four environments: even ones are on the wide floor, odd ones on the tall."""
    random = np.random.default_rng(seed)
    places = np.zeros((*SHAPE, 2), np.uint8)
    for env in range(4):
        places[:, env] = random.integers(0, floors()[env % 2].floor, (SHAPE[0], 2))
    return places, random.random(SHAPE).astype(np.float32)


def filled(dispatches: int) -> CuriosityMaps:
    maps = CuriosityMaps(TASKS, floors())
    for index in range(dispatches):
        maps.add(steps_of(*rollout(index), TASK), 100 * index)
    return maps


def expected(task: int, dispatches: range) -> tuple[np.ndarray, np.ndarray]:
    visits, worth = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for seed in dispatches:
        places, rewards = rollout(seed)
        for index in np.ndindex(SHAPE):
            if index[-1] % 2 == task:
                cell = tuple(places[index].tolist())
                visits[cell] += 1
                worth[cell] += float(rewards[index])
    shape = floors()[task].floor
    return tuple(
        np.array([[table[r, c] for c in range(shape[1])] for r in range(shape[0])]) for table in (visits, worth)
    )


@pytest.mark.parametrize(("dispatches", "slices"), [
    (1, [1]), (8, [1] * 8), (9, [2] * 4 + [1]), (16, [2] * 8), (17, [4] * 4 + [1]), (23, [4] * 5 + [3]),
])  # fmt: skip
def test_slices_are_of_equal_length_and_together_hold_everything(dispatches: int, slices: list[int]) -> None:
    assert len(slices) <= MOST_SLICES
    written = filled(dispatches).to_file()["tasks"]
    for task, name in enumerate(TASKS):
        begin = 0
        for count, part in zip(slices, written[name]["slices"], strict=True):
            visits, worth = expected(task, range(begin, begin + count))
            assert (part["from"], part["to"]) == (100 * begin, 100 * (begin + count))
            np.testing.assert_array_equal(part["visits"], visits)
            np.testing.assert_allclose(part["intrinsic_reward"], worth, atol=1e-3)
            begin += count


@pytest.mark.parametrize("half", [3, 8, 11])
def test_maps_continue_from_a_checkpoint(half: int) -> None:
    resumed = CuriosityMaps(TASKS, floors())
    resumed.load_meta(filled(half).to_meta())
    for index in range(half, 20):
        resumed.add(steps_of(*rollout(index), TASK), 100 * index)
    assert resumed.to_file() == filled(20).to_file()


def test_a_floor_is_drawn_once() -> None:
    envs = floors()
    maps = CuriosityMaps(TASKS, envs)
    assert maps.to_file() == maps.to_file() == {
        "tasks": {"wide": {"floor": ["....."] * 2, "slices": []}, "tall": {"floor": ["..."] * 4, "slices": []}}
    }  # fmt: skip
    assert [env.drawn for env in envs] == [1, 1]


def test_worlds_without_a_floor_have_no_maps() -> None:
    maps = CuriosityMaps(["floor", "none"], [Floor(2, 2), object()])
    maps.add(steps_of(np.zeros((1, 2, 0), np.uint8)), 0)
    assert maps.to_file() == {"tasks": {}}
