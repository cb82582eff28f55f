"""Room coverage against a slow_coverage loop over dictionaries."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import steps_of
from byol_explore.config.config import Config
from byol_explore.envs.interface import EnvSpec
from byol_explore.envs.registry import make_envs
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.training.coverage import CELL_PIXELS, RoomCoverage
from byol_explore.training.train import default_callbacks


def make_spec(rooms: int, position: int) -> EnvSpec:
    names = "abcdefg"
    observation = Vector(1)
    return EnvSpec(
        "test",
        observation,
        ActionSpec((2,)),
        10,
        room_fields=tuple(names[:rooms]),
        position_fields=tuple(names[::-1][:position]),
    )


def slow_coverage(rooms: int, parts: list[tuple[np.ndarray, int]]) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return first steps of rooms and visits of cells, counted one step at a time."""
    found: dict[Any, int] = {}
    visits: dict[Any, int] = {}
    for places, steps in parts:
        for step, numbers in enumerate(places.reshape(-1, places.shape[-1]).tolist(), start=steps):
            room = tuple(numbers[:rooms])
            if room not in found:
                found[room] = step
            cell = (*room, *(number // CELL_PIXELS for number in numbers[rooms:]))
            visits[cell] = visits.get(cell, 0) + 1
    return found, visits


@st.composite
def walks(draw: st.DrawFn) -> tuple[int, int, list[tuple[np.ndarray, int]]]:
    """Draw the numbers of room and position fields, and rollouts [T, E, P] with the steps before each."""
    rooms = draw(st.integers(0, 3))
    position = draw(st.integers(0 if rooms else 1, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(2)]
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    values = np.asarray(draw(st.sampled_from([[0, 1], [0, 7, 8, 255], list(range(256))])))
    parts, steps = [], draw(st.integers(0, 10**9))
    for _ in range(draw(st.integers(0, 3))):
        places = rng.choice(values, (*shape, rooms + position)).astype(draw(st.sampled_from([np.uint8, np.int32])))
        parts.append((places, steps))
        steps += places[..., 0].size
    return rooms, position, parts


@settings(max_examples=60, deadline=None)
@given(walks())
def test_coverage_equals_a_slow_loop(walk: tuple[int, int, list[tuple[np.ndarray, int]]]) -> None:
    rooms, position, parts = walk
    coverage = RoomCoverage(make_spec(rooms, position))
    for places, steps in parts:
        before = places.copy()
        coverage.on_rollout(steps_of(places), steps)
        np.testing.assert_array_equal(places, before)
    found, visits = slow_coverage(rooms, parts)
    assert list(coverage.rooms.items()) == list(found.items()), "ordered by first visit"
    assert coverage.visits == visits
    expected = ({"rooms_visited": len(found)} if rooms else {}) | ({"cells_visited": len(visits)} if position else {})
    assert coverage.metrics() == expected


@settings(max_examples=20, deadline=None)
@given(walks())
def test_coverage_survives_a_checkpoint(walk: tuple[int, int, list[tuple[np.ndarray, int]]]) -> None:
    rooms, position, parts = walk
    whole, first = RoomCoverage(make_spec(rooms, position)), RoomCoverage(make_spec(rooms, position))
    for places, steps in parts:
        whole.on_rollout(steps_of(places), steps)
    for places, steps in parts[:1]:
        first.on_rollout(steps_of(places), steps)
    resumed = RoomCoverage(make_spec(rooms, position))
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for places, steps in parts[1:]:
        resumed.on_rollout(steps_of(places), steps)
    assert (resumed.rooms, resumed.visits) == (whole.rooms, whole.visits)
    assert resumed.state_dict() == whole.state_dict()


def test_rooms_and_cells_counted_by_hand() -> None:
    """Two environments; the second is in room 5 in its first step, both in room 9 in the third."""
    coverage = RoomCoverage(make_spec(1, 1))
    coverage.on_rollout(steps_of(np.asarray([[[1, 0], [5, 0]], [[1, 7], [1, 8]], [[9, 0], [9, 255]]])), 100)
    coverage.on_rollout(steps_of(np.asarray([[[5, 3], [7, 0]]])), 106)
    assert coverage.rooms == {(1,): 100, (5,): 101, (9,): 104, (7,): 107}
    assert coverage.visits == {(1, 0): 2, (5, 0): 2, (1, 1): 1, (9, 0): 1, (9, 31): 1, (7, 0): 1}
    assert coverage.metrics() == {"rooms_visited": 4, "cells_visited": 6}
    meta = coverage.state_dict()
    assert (meta["room_names"], meta["position_names"], meta["cell"]) == (["a"], ["g"], 8)
    assert meta["rooms"][0] == [1, 100]


@pytest.mark.parametrize("width", [0, 2])
def test_without_room_fields_nothing_is_counted(width: int) -> None:
    coverage = RoomCoverage(make_spec(0, 0))
    coverage.on_rollout(steps_of(np.zeros((3, 2, width), np.int32)), 0)
    assert coverage.metrics() == {}
    assert coverage.state_dict()["rooms"] == coverage.state_dict()["visits"] == []


@pytest.mark.parametrize(("game", "is_drawn"), [("montezuma_revenge", True), ("private_eye", False)])
def test_rooms_with_a_layout_are_drawn(tmp_path: Path, game: str, is_drawn: bool) -> None:
    config = Config(env=f"atari:{game}")
    callbacks = default_callbacks(config, make_envs(config.env_ids))
    [rooms] = [callback for callback in callbacks if isinstance(callback, RoomCoverage)]
    rooms.rooms[(0,) * len(rooms.room_names)] = 0
    for callback in callbacks:
        callback.on_checkpoint(tmp_path)
    assert (tmp_path / "room_coverage.json").exists()
    assert (tmp_path / "rooms.png").exists() == is_drawn
