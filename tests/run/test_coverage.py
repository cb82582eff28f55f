"""Rooms and visits against a slow loop over dictionaries."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import steps_of
from byol_explore.envs.base import EnvSpec
from byol_explore.run.coverage import CELL, Coverage
from byol_explore.spaces import ActionSpec, Vector


def make_spec(rooms: int, position: int) -> EnvSpec:
    names = "abcdefg"
    observation = Vector(1)
    return EnvSpec(
        "test", observation, ActionSpec((2,)), 10, rooms=tuple(names[:rooms]), position=tuple(names[::-1][:position])
    )


def slow(rooms: int, parts: list[tuple[np.ndarray, int]]) -> tuple[dict[Any, int], dict[Any, int]]:
    """One place after the other."""
    found: dict[Any, int] = {}
    visits: dict[Any, int] = {}
    for places, steps in parts:
        for step, numbers in enumerate(places.reshape(-1, places.shape[-1]).tolist(), start=steps):
            room = tuple(numbers[:rooms])
            if room not in found:
                found[room] = step
            cell = (*room, *(number // CELL for number in numbers[rooms:]))
            visits[cell] = visits.get(cell, 0) + 1
    return found, visits


@st.composite
def walks(draw: st.DrawFn) -> tuple[int, int, list[tuple[np.ndarray, int]]]:
    """Numbers of room and position bytes, and rollouts [T, E, P] with the steps before them."""
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
def test_coverage_is_that_of_a_slow_loop(walk: tuple[int, int, list[tuple[np.ndarray, int]]]) -> None:
    rooms, position, parts = walk
    coverage = Coverage(make_spec(rooms, position))
    for places, steps in parts:
        before = places.copy()
        coverage.add(steps_of(places), steps)
        np.testing.assert_array_equal(places, before)
    found, visits = slow(rooms, parts)
    assert list(coverage.rooms.items()) == list(found.items()), "in the order of discovery"
    assert coverage.visits == visits
    expected = ({"rooms_found": len(found)} if rooms else {}) | ({"cells_found": len(visits)} if position else {})
    assert coverage.summary() == expected


@settings(max_examples=20, deadline=None)
@given(walks())
def test_coverage_survives_a_checkpoint(walk: tuple[int, int, list[tuple[np.ndarray, int]]]) -> None:
    rooms, position, parts = walk
    whole, first = Coverage(make_spec(rooms, position)), Coverage(make_spec(rooms, position))
    for places, steps in parts:
        whole.add(steps_of(places), steps)
    for places, steps in parts[:1]:
        first.add(steps_of(places), steps)
    resumed = Coverage(make_spec(rooms, position))
    resumed.load_meta(json.loads(json.dumps(first.to_meta())))
    for places, steps in parts[1:]:
        resumed.add(steps_of(places), steps)
    assert (resumed.rooms, resumed.visits) == (whole.rooms, whole.visits)
    assert resumed.to_meta() == whole.to_meta()


def test_the_step_at_which_a_room_was_entered_by_hand() -> None:
    """Two environments; the second is in room 5 in its first step, both in room 9 in the third."""
    coverage = Coverage(make_spec(1, 1))
    coverage.add(steps_of(np.asarray([[[1, 0], [5, 0]], [[1, 7], [1, 8]], [[9, 0], [9, 255]]])), 100)
    coverage.add(steps_of(np.asarray([[[5, 3], [7, 0]]])), 106)
    assert coverage.rooms == {(1,): 100, (5,): 101, (9,): 104, (7,): 107}
    assert coverage.visits == {(1, 0): 2, (5, 0): 2, (1, 1): 1, (9, 0): 1, (9, 31): 1, (7, 0): 1}
    assert coverage.summary() == {"rooms_found": 4, "cells_found": 6}
    meta = coverage.to_meta()
    assert (meta["room_names"], meta["position_names"], meta["cell"]) == (["a"], ["g"], 8)
    assert meta["rooms"][0] == [1, 100]


@pytest.mark.parametrize("width", [0, 2])
def test_an_environment_without_rooms_covers_nothing(width: int) -> None:
    coverage = Coverage(make_spec(0, 0))
    coverage.add(steps_of(np.zeros((3, 2, width), np.int32)), 0)
    assert coverage.summary() == {}
    assert coverage.to_meta()["rooms"] == coverage.to_meta()["visits"] == []
