"""Ray's object store is full, and so is the disk that it would spill to: runs go on with what they have, or say so."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import OutOfDiskError

from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.cluster import published
from byol_explore.runtime.cluster.published import PATIENCE, PAUSE, Published
from byol_explore.runtime.cluster.source import COUNTS
from byol_explore.runtime.sebulba import SebulbaState
from cluster.crews import Quick, counts, play, play_until, start

WIDE = "gymnasium:cluster.wide:Wide-v0"
SIZES = [1 << power for power in (25, 22, 20, 17, 14, 10)]  # bytes of what fills a store to the brim
NOTHING = dict.fromkeys(COUNTS, 0)


# Parameters, with a store and a clock of the tests' own


class Store:
    def __init__(self) -> None:
        self.now, self.is_full, self.asked = 0.0, False, 0

    def put(self, parameters: Any) -> Any:
        self.asked += 1
        if self.is_full:
            raise OutOfDiskError("Local disk is full")
        return f"reference to {parameters}"


def test_parameters_that_were_refused_are_tried_again_and_are_of_the_step_at_which_they_are_taken() -> None:
    store = Store()
    kept = Published(store.put, lambda: store.now)
    assert kept.offer("first", 0)
    assert not kept.offer(None, 3)
    assert (kept.references, kept.version, kept.step) == (["reference to first"], 1, 3)
    store.is_full = True
    assert not kept.offer("second", 4)
    assert not kept.offer(None, 7)
    assert not kept.offer("third", 8)
    assert (kept.references, kept.version, kept.step) == (["reference to first"], 1, 3), "no newer than it is"
    assert (store.asked, kept.counts["parameters_refused"], kept.are_newest) == (2, 1, False)
    store.is_full, store.now = False, PAUSE
    assert kept.try_again()
    assert (kept.references, kept.version, kept.step) == (["reference to third"], 2, 8)
    assert kept.are_newest
    kept.check()


def test_parameters_that_are_refused_for_too_long_end_a_run_with_one_line() -> None:
    store = Store()
    kept = Published(store.put, lambda: store.now)
    store.is_full = True
    kept.offer("first", 0)
    for _ in range(PATIENCE - 1):
        kept.check()
        store.now += PAUSE
        assert not kept.try_again()
    with pytest.raises(EnvironmentFailure) as raised:
        kept.check()
    assert str(raised.value) == (
        f"Ray has refused to take the policy's parameters {PATIENCE} times in a row "
        "(OutOfDiskError: Local disk is full): start it with a larger --object-store-memory, or make room on the disk "
        "that it spills to"
    )


# With Ray


@pytest.fixture(scope="module")
def no_disk() -> Iterator[None]:
    """Nothing is put on a disk instead of the store, as if it were full; Ray spills what it has, but not at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_local_fs_capacity_threshold", "0")
        patch.setenv("RAY_automatic_object_spilling_enabled", "0")
        yield


def fill() -> list[Any]:
    """What keeps the store full as long as it is held, or until Ray has spilled some of it."""
    held = []
    for size in SIZES:
        with contextlib.suppress(OutOfDiskError):
            for _ in range(8):
                held.append(ray.put(np.zeros(size, np.uint8)))
    return held


def dispatch(runtime: Quick, state: SebulbaState, times: int) -> None:
    for _ in range(times):
        state, _ = runtime.dispatch(state)


@pytest.mark.usefixtures("no_disk", "cluster")
class TestAFullStore:
    def test_a_run_goes_on_with_the_policy_that_it_has_and_publishes_when_there_is_room(self) -> None:
        runtime = start(actors=2, num_envs=4)
        state, outputs = play(runtime, 2)
        held = fill()
        state = play_until(runtime, state, "parameters_refused", outputs)
        held.clear()
        before = runtime.source._published.version
        while runtime.source._published.version == before:
            state, output = runtime.dispatch(state)
            outputs.append(output)
        assert counts(outputs)["actor_faults"] == 0
        assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"

    def test_it_ends_with_one_line_when_there_is_never_any(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(published, "PATIENCE", 2)
        runtime = start(actors=2, num_envs=4, max_lag=4)
        state, _ = play(runtime, 1)
        store = Store()
        store.is_full, runtime.source._published._put = True, store.put
        with pytest.raises(EnvironmentFailure, match="refused to take the policy's parameters 2 times in a row"):
            dispatch(runtime, state, 20)

    def test_sequences_that_find_no_room_cost_their_actors_until_there_is_some(self) -> None:
        runtime = start(WIDE, actors=2, num_envs=4)
        state, outputs = play(runtime, 1)
        held = fill()
        crew = runtime.source._crew
        assert crew is not None
        for _ in range(200):
            held += fill()
            list(crew.look(0.1))
            runtime.source._ask()
            if crew.counts["actor_faults"]:
                break
        assert "OutOfDiskError: Local disk is full" in crew.last_failure
        held.clear()
        state = play_until(runtime, state, "actor_restarts", outputs)
        state, output = runtime.dispatch(state)
        assert counts(outputs)["actors_given_up"] == 0
        assert output.counts["actors_given_up"] == 0
