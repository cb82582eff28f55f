"""Tests of environments outside jit that hang: the run names them, keeps what it has learned, and ends."""

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


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)


def actors_alive() -> int:
    return sum(thread.name == "actor" for thread in threading.enumerate())


def hang_at(step: int, event: str = "step") -> tuple[Callable[[str, int], None], threading.Event, threading.Event]:
    """Return a hook that hangs in a step, an event that releases it, and one that is set while it hangs."""
    release, hung = threading.Event(), threading.Event()

    def hook(name: str, count: int) -> None:
        if (name, count) == (event, step):
            hung.set()
            release.wait(PATIENCE)

    return hook, release, hung


@pytest.mark.parametrize("synchronous", [False, True])
def test_hanging_environment_is_named_and_learning_is_kept(synchronous: bool) -> None:
    """In the second of three rollouts: the dispatch ends after the first, with a state that can be saved."""
    hook, release, _ = hang_at(STEPS + 1)
    world = Scripted(hook)
    runtime = start(world, synchronous=synchronous, rounds_per_dispatch=3)
    state, output = runtime.dispatch(runtime.init(0))
    assert (int(state.learner.step), int(state.rollouts_per_env)) == (UPDATES, 1)
    assert [steps.task_ids.shape for steps in output.rollouts] == [(STEPS, ENVS)]
    with pytest.raises(EnvironmentFailure) as raised:
        runtime.dispatch(state)
    assert str(raised.value).startswith(f"environment 'scripted' hangs: step {STEPS + 2} has taken more than 0.6 s")
    assert "release.wait" in "".join(raised.value.__notes__), "the stack of the hanging call is missing"
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 5.0
    assert all(bool(np.all(np.isfinite(leaf))) for leaf in jax.tree.leaves(state.learner.online)), (
        "the state was donated"
    )
    release.set()
    wait_until(lambda: actors_alive() == 0)
    assert world.still_open == 0, "not closed when the call returned"


@pytest.mark.parametrize("event", ["batch", "reset"])
def test_start_and_reset_may_take_ten_times_the_step_timeout(event: str) -> None:
    hook, release, _ = hang_at(0, event)
    threading.Timer(4 * 0.2, release.set).start()
    runtime = start(Scripted(hook), step_timeout=0.2)
    state, _ = runtime.dispatch(runtime.init(0))
    runtime.close()
    assert release.is_set(), "the step timeout applied"
    assert int(state.learner.step) == UPDATES


def test_run_ends_while_an_environment_hangs_in_an_unneeded_rollout() -> None:
    last = 3 * STEPS - 1  # of the rollout that waits for a place in the queue: none is begun after it
    hook, release, hung = hang_at(last)
    world = Scripted(hook)
    runtime = start(world)
    runtime.dispatch(runtime.init(0))
    wait_until(hung.is_set)
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 5.0
    assert actors_alive() == 1, "the thread has ended"
    release.set()
    wait_until(lambda: actors_alive() == 0)
    assert world.still_open == 0, "not closed when the call returned"


# Warnings


class WarningWorld(Scripted):
    """Warns after each step."""

    def make_vector_env(self, num_envs: int, seed: int) -> Any:
        batch: Any = super().make_vector_env(num_envs, seed)
        batch.warnings = lambda: ["its observation is odd"]
        return batch


def test_warnings_are_deduplicated_across_actors() -> None:
    runtime = start(WarningWorld(), num_actors=2, synchronous=True)
    state, first = runtime.dispatch(runtime.init(0))
    _, second = runtime.dispatch(state)
    runtime.close()
    assert first.warnings == ("environment 'scripted': its observation is odd (its reset)",)
    assert second.warnings == ()
