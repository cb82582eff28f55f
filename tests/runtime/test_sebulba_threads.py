"""Actor threads and their queues: back-pressure without loss, bounded lag, and ends that are never silent."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from host_worlds import (
    BATCH,
    ENVS,
    PATIENCE,
    STEPS,
    UPDATES,
    Gate,
    QuickSebulba,
    Scripted,
    crash,
    host_config,
    seen,
)

PAUSE = 0.3  # seconds in which an actor that does not wait would be seen


_started: list[Sebulba] = []


def start(world: Scripted, **runtime: Any) -> Sebulba:
    _started.append(QuickSebulba(host_config(**runtime), [world]))
    return _started[-1]


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """No test leaves an actor behind, and one that fails does not disturb the next."""
    yield
    left = actors_alive()
    while _started:
        _started.pop().close()
    assert left == actors_alive() == 0


def actors_alive() -> int:
    return sum(thread.name == "actor" for thread in threading.enumerate())


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def spy(runtime: Sebulba, before: Callable[[int], None] = lambda number: None) -> list[Any]:
    """Batches that the learner gets, from now on; `before` is told the number of each and may take its time."""
    batches: list[Any] = []
    update = runtime._update

    def watched(state: Any, batch: Any) -> Any:
        before(len(batches))
        batches.append(batch)
        return update(state, batch)

    runtime._update = watched
    return batches


def counts(batches: list[Any]) -> np.ndarray:
    """[batches, T] the steps that each batch was taken at; the same for all its environments."""
    shown = np.stack([seen(batch.trajectory.observation)[..., 3] for batch in batches])
    assert np.all(shown == shown[..., :1])
    return shown[..., 0]


def dispatch(runtime: Sebulba, state: SebulbaState) -> tuple[SebulbaState, DispatchOutput, float]:
    """And the seconds it took."""
    began = time.perf_counter()
    state, output = runtime.dispatch(state)
    return state, output, time.perf_counter() - began


@pytest.mark.parametrize("queue_size", [1, 2])
def test_a_slow_learner_makes_the_actor_wait_and_loses_nothing(queue_size: int) -> None:
    """It stops at its first update until the actor can do no more: all that waits was acted at step 0."""
    world = Scripted()
    rollouts = queue_size + 4
    runtime = start(world, queue_size=queue_size, rollouts_per_dispatch=rollouts)
    full = (queue_size + 2) * STEPS  # one with the learner, the queue, and one in the actor's hand

    def slow(number: int) -> None:
        if number == 0:
            until(lambda: world.batches[0].count == full)
            time.sleep(PAUSE)
            assert world.batches[0].count == full

    batches = spy(runtime, slow)
    state, output, seconds = dispatch(runtime, runtime.init(0))
    runtime.close()
    expected = np.arange(rollouts)[:, None] * STEPS + np.arange(STEPS + 1)
    np.testing.assert_array_equal(counts(batches), np.repeat(expected, UPDATES, axis=0))
    lag = output.metrics["policy_lag"].reshape(rollouts, UPDATES)[:, 0]
    np.testing.assert_array_equal(lag[: queue_size + 2], UPDATES * np.arange(queue_size + 2))
    assert lag.max() == (queue_size + 1) * UPDATES
    assert output.metrics["actor_wait"][0] * seconds >= PAUSE
    assert int(state.learner.step) == rollouts * UPDATES


def test_a_slow_actor_makes_the_learner_wait() -> None:
    gate = Gate(STEPS)
    runtime = start(Scripted(gate))
    state, _, _ = dispatch(runtime, runtime.init(0))
    for _ in range(2):
        opening = threading.Timer(PAUSE, gate.allow, [STEPS])
        opening.start()
        state, output, seconds = dispatch(runtime, state)
        assert 0.9 * PAUSE <= output.metrics["learner_wait"][0] * seconds <= seconds
        np.testing.assert_array_equal(output.metrics["policy_lag"] <= UPDATES, True)
    gate.allow(10**6)
    runtime.close()


@pytest.mark.parametrize(("actors", "queue_size"), [(1, 1), (2, 1), (2, 3)])
def test_every_rollout_of_every_actor_is_learned_once_and_in_order(actors: int, queue_size: int) -> None:
    """However the threads are scheduled; and none acted with parameters older than the queue allows."""
    world, rounds = Scripted(), 12
    runtime = start(world, actors=actors, queue_size=queue_size, rollouts_per_dispatch=4)
    batches = spy(runtime)
    state, lags = runtime.init(0), []
    for _ in range(rounds // 4):
        state, output = runtime.dispatch(state)
        lags.append(output.metrics["policy_lag"])
        assert {name: len(values) for name, values in output.metrics.items() if name.endswith("_wait")} == {
            "learner_wait": 1, "actor_wait": 1,
        }  # fmt: skip
    runtime.close()
    expected = np.arange(rounds)[:, None] * STEPS + np.arange(STEPS + 1)
    np.testing.assert_array_equal(counts(batches), np.repeat(expected, UPDATES, axis=0))
    share = ENVS // actors // BATCH
    envs = [seen(batch.trajectory.observation)[0, :, 0].tolist() for batch in batches]
    assert envs == [[part * BATCH, part * BATCH + 1] for part in range(share)] * actors * rounds
    assert len(world.batches) == actors
    assert 0 <= np.min(lags) <= np.max(lags) <= (queue_size + 1) * UPDATES
    assert world.still_open == 0


# Failures


def keep_dispatching(runtime: Sebulba) -> None:
    state = runtime.init(0)
    for _ in range(10):
        state, _ = runtime.dispatch(state)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("event", "count"), [("reset", 0), ("step", 0), ("step", 2 * STEPS + 1)])
def test_what_stops_an_environment_stops_the_run(event: str, count: int, deterministic: bool) -> None:
    """With a line that names it, and that very exception as its cause; rollouts from before it are learned from."""
    error = RuntimeError("the emulator\nfell over")
    world = Scripted(crash(event, count, error))
    runtime = start(world, actors=2, deterministic=deterministic)
    batches = spy(runtime)
    with pytest.raises(EnvironmentFailure) as raised:
        keep_dispatching(runtime)
    asked = f"step {count + 1}" if event == "step" else "its reset"
    assert str(raised.value) == f"environment 'scripted' failed in {asked}: RuntimeError: the emulator fell over"
    assert raised.value.__cause__ is error
    assert len(batches) == count // STEPS * UPDATES
    runtime.close()
    assert (len(world.batches), world.still_open) == (2, 0)


def test_one_actor_of_two_that_fails_is_enough() -> None:
    """Also while the other one waits for the learner."""
    error = ValueError("only one of them")
    told = threading.Lock()

    def hook(event: str, count: int) -> None:
        if (event, count) == ("step", STEPS) and told.acquire(blocking=False):
            raise error

    world = Scripted(hook)
    runtime = start(world, actors=2)
    with pytest.raises(EnvironmentFailure, match="only one") as raised:
        keep_dispatching(runtime)
    assert raised.value.__cause__ is error
    runtime.close()
    assert world.still_open == 0


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_when_an_actor_cannot_start_the_others_end(failing: int, deterministic: bool) -> None:
    error = OSError("no memory")
    world = Scripted(crash("batch", failing, error))
    runtime = start(world, actors=2, deterministic=deterministic)
    with pytest.raises(EnvironmentFailure, match="'scripted' failed in its start: OSError: no memory") as raised:
        runtime.dispatch(runtime.init(0))
    assert raised.value.__cause__ is error
    runtime.close()
    assert (len(world.batches), world.still_open) == (failing, 0)


# Ends


def test_closing_does_not_wait_for_a_place_in_the_queue() -> None:
    world = Scripted()
    runtime = start(world)
    runtime.dispatch(runtime.init(0))
    until(lambda: world.batches[0].count == 3 * STEPS)
    closing = threading.Thread(target=runtime.close)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert actors_alive() == 0
    assert [batch.closed for batch in world.batches] == [1]
    runtime.close()
    assert [batch.closed for batch in world.batches] == [1]


def test_closing_what_never_started_is_harmless() -> None:
    world = Scripted()
    runtime = start(world)
    runtime.close()
    runtime.init(0)
    runtime.close()
    assert world.batches == []


def test_lock_step_acts_only_when_it_is_asked_and_closes_its_environments() -> None:
    world = Scripted()
    runtime = start(world, actors=2, deterministic=True)
    state, output = runtime.dispatch(runtime.init(0))
    time.sleep(PAUSE)
    assert [batch.count for batch in world.batches] == [STEPS, STEPS]
    assert output.metrics["actor_wait"] == 0
    runtime.dispatch(state)
    runtime.close()
    runtime.close()
    assert [batch.closed for batch in world.batches] == [1, 1]
    assert [batch.count for batch in world.batches] == [2 * STEPS, 2 * STEPS]
