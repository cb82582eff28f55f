"""Tests with a full object store and no disk to spill to: runs continue with the parameters they have, or fail."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import OutOfDiskError

from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.cluster import ray_client
from byol_explore.runtime.cluster.ray_client import MAX_REFUSALS, RETRY_SECONDS, PublishedParameters
from byol_explore.runtime.cluster.ray_sources import COUNTERS
from byol_explore.runtime.sebulba import SebulbaState
from cluster.ray_runs import RayRun, counts, play, play_until, start

WIDE = "gymnasium:cluster.wide:Wide-v0"
SIZES = [1 << power for power in (25, 22, 20, 17, 14, 10)]  # bytes of objects that fill a store
NO_FAULTS = dict.fromkeys(COUNTERS, 0)


# Parameters, with a fake store and clock


class Store:
    def __init__(self) -> None:
        self.now, self.is_full, self.puts = 0.0, False, 0

    def put(self, parameters: Any) -> Any:
        self.puts += 1
        if self.is_full:
            raise OutOfDiskError("Local disk is full")
        return f"reference to {parameters}"


def test_refused_parameters_are_retried_and_get_the_step_of_their_storing() -> None:
    store = Store()
    published = PublishedParameters(store.put, lambda: store.now)
    assert published.publish("first", 0)
    assert not published.publish(None, 3)
    assert (published.references, published.version, published.step) == (["reference to first"], 1, 3)
    store.is_full = True
    assert not published.publish("second", 4)
    assert not published.publish(None, 7)
    assert not published.publish("third", 8)
    assert (published.references, published.version, published.step) == (["reference to first"], 1, 3)
    assert (store.puts, published.counts["publish_failures"], published.is_current) == (2, 1, False)
    store.is_full, store.now = False, RETRY_SECONDS
    assert published.retry()
    assert (published.references, published.version, published.step) == (["reference to third"], 2, 8)
    assert published.is_current
    published.check()


def test_too_many_refusals_end_a_run_with_one_line() -> None:
    store = Store()
    published = PublishedParameters(store.put, lambda: store.now)
    store.is_full = True
    published.publish("first", 0)
    for _ in range(MAX_REFUSALS - 1):
        published.check()
        store.now += RETRY_SECONDS
        assert not published.retry()
    with pytest.raises(EnvironmentFailure) as raised:
        published.check()
    assert str(raised.value) == (
        f"Ray has refused to take the policy's parameters {MAX_REFUSALS} times in a row "
        "(OutOfDiskError: Local disk is full): start it with a larger --object-store-memory, or make room on the disk "
        "that it spills to"
    )


# With Ray


@pytest.fixture(scope="module")
def no_disk() -> Iterator[None]:
    """Refuse objects that would go to disk, as if it were full; Ray spills stored objects, but not at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_local_fs_capacity_threshold", "0")
        patch.setenv("RAY_automatic_object_spilling_enabled", "0")
        yield


def fill() -> list[Any]:
    """Return references that keep the store full while they are held, or until Ray has spilled some."""
    held = []
    for size in SIZES:
        with contextlib.suppress(OutOfDiskError):
            for _ in range(8):
                held.append(ray.put(np.zeros(size, np.uint8)))
    return held


def dispatch(runtime: RayRun, state: SebulbaState, times: int) -> None:
    for _ in range(times):
        state, _ = runtime.dispatch(state)


@pytest.mark.usefixtures("no_disk", "cluster")
class TestFullStore:
    # On a busy machine it may fail: an actor frees older parameters while the next ones wait for room, and they fit.
    @pytest.mark.slow
    def test_run_continues_with_old_parameters_and_publishes_when_there_is_room(self) -> None:
        runtime = start(num_actors=2, num_envs=4)
        state, outputs = play(runtime, 2)
        held = fill()
        for _ in range(100):
            # An actor may have held older parameters during the first fill: their room is free once it lets go of them.
            held += fill()
            state, output = runtime.dispatch(state)
            outputs.append(output)
            if counts(outputs)["publish_failures"]:
                break
        assert counts(outputs)["publish_failures"] == 1
        held.clear()
        before = runtime.source._published.version
        while runtime.source._published.version == before:
            state, output = runtime.dispatch(state)
            outputs.append(output)
        assert counts(outputs)["actor_faults"] == 0
        assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"

    def test_run_ends_with_one_line_if_the_store_stays_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_client, "MAX_REFUSALS", 2)
        runtime = start(num_actors=2, num_envs=4, max_policy_lag=4)
        state, _ = play(runtime, 1)
        store = Store()
        store.is_full, runtime.source._published._put = True, store.put
        with pytest.raises(EnvironmentFailure, match="refused to take the policy's parameters 2 times in a row"):
            dispatch(runtime, state, 20)

    def test_actors_without_room_for_rollouts_restart_until_there_is_some(self) -> None:
        runtime = start(WIDE, num_actors=2, num_envs=4)
        state, outputs = play(runtime, 1)
        held = fill()
        pool = runtime.source._pool
        assert pool is not None
        for _ in range(200):
            held += fill()
            list(pool.poll(0.1))
            runtime.source._request()
            if pool.counts["actor_faults"]:
                break
        assert "OutOfDiskError: Local disk is full" in pool.last_failure
        held.clear()
        state = play_until(runtime, state, "actor_restarts", outputs)
        state, output = runtime.dispatch(state)
        assert counts(outputs)["actors_abandoned"] == 0
        assert output.actor_counters["actors_abandoned"] == 0
