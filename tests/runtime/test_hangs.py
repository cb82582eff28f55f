"""Environments outside jit that hang: the run notices, keeps what it has learned, and ends."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.sebulba import Sebulba
from host_worlds import ENVS, PATIENCE, STEPS, UPDATES, QuickSebulba, Scripted, host_config

LIMIT = 0.6  # seconds


def start(world: Scripted, **runtime: Any) -> Sebulba:
    return QuickSebulba(host_config(**{"step_timeout": LIMIT, **runtime}), [world])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def actors_alive() -> int:
    return sum(thread.name == "actor" for thread in threading.enumerate())


def hang_at(step: int, event: str = "step") -> tuple[Callable[[str, int], None], threading.Event, threading.Event]:
    """A hook that does not return from a step before the first event is set; the second is set when it hangs."""
    release, hung = threading.Event(), threading.Event()

    def hook(happening: str, count: int) -> None:
        if (happening, count) == (event, step):
            hung.set()
            release.wait(PATIENCE)

    return hook, release, hung


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_environment_that_hangs_is_named_and_nothing_learned_is_lost(deterministic: bool) -> None:
    """It hangs in the second of three rollouts: the dispatch ends after the first, with a state that can be saved."""
    hook, release, _ = hang_at(STEPS + 1)
    world = Scripted(hook)
    runtime = start(world, deterministic=deterministic, rollouts_per_dispatch=3)
    state, output = runtime.dispatch(runtime.init(0))
    assert (int(state.learner.step), int(state.rounds)) == (UPDATES, 1)
    assert [steps.task.shape for steps in output.steps] == [(STEPS, ENVS)]
    with pytest.raises(EnvironmentFailure) as raised:
        runtime.dispatch(state)
    assert str(raised.value).startswith(f"environment 'scripted' hangs: step {STEPS + 2} has taken more than 0.6 s")
    assert "release.wait" in "".join(raised.value.__notes__), "the place where it hangs"
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 5.0
    assert all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree.leaves(state.learner.online)), "not donated"
    release.set()
    until(lambda: actors_alive() == 0)
    assert world.still_open == 0, "closed as soon as it came back"


@pytest.mark.parametrize("event", ["batch", "reset"])
def test_starts_and_resets_are_given_ten_times_as_long(event: str) -> None:
    hook, release, _ = hang_at(0, event)
    threading.Timer(4 * 0.2, release.set).start()
    runtime = start(Scripted(hook), step_timeout=0.2)
    state, _ = runtime.dispatch(runtime.init(0))
    runtime.close()
    assert release.is_set(), "it waited longer than a step may take"
    assert int(state.learner.step) == UPDATES, "and learned from what came"


def test_a_hang_that_nobody_waits_for_does_not_keep_a_run_from_ending() -> None:
    last = 3 * STEPS - 1  # of the rollout that waits for a place in the queue: none is begun after it
    hook, release, hung = hang_at(last)
    world = Scripted(hook)
    runtime = start(world)
    runtime.dispatch(runtime.init(0))
    until(hung.is_set)
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 5.0
    assert actors_alive() == 1, "it still hangs"
    release.set()
    until(lambda: actors_alive() == 0)
    assert world.still_open == 0, "closed as soon as it came back"


# What is doubtful


class Doubtful(Scripted):
    """Says after each step that something is odd."""

    def batch(self, num_envs: int, seed: int) -> Any:
        batch: Any = super().batch(num_envs, seed)
        batch.doubts = lambda: ["its observation is odd"]
        return batch


def test_what_is_doubtful_reaches_the_learner_once_however_many_actors_there_are() -> None:
    runtime = start(Doubtful(), actors=2, deterministic=True)
    state, first = runtime.dispatch(runtime.init(0))
    _, second = runtime.dispatch(state)
    runtime.close()
    assert first.remarks == ("environment 'scripted': its observation is odd (its reset)",)
    assert second.remarks == ()
