"""Tests of actor threads and their queues: back-pressure without loss, bounded lag, failures and shutdown."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from byol_explore.envs.watchdog import Watchdog
from byol_explore.errors import EnvironmentFailure
from byol_explore.runtime.actor_threads import ActorThread, ParameterStore
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

PAUSE = 0.3  # seconds in which an actor that does not wait would take further steps


_started: list[Sebulba] = []


def start(world: Scripted, **runtime: Any) -> Sebulba:
    _started.append(QuickSebulba(host_config(**runtime), [world]))
    return _started[-1]


@pytest.fixture(autouse=True)
def no_actor_left() -> Iterator[None]:
    """Fail a test that leaves an actor behind, and close its runtimes."""
    yield
    alive = actors_alive()
    while _started:
        _started.pop().close()
    assert alive == actors_alive() == 0


def actors_alive() -> int:
    return sum(thread.name == "actor" for thread in threading.enumerate())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)


def record_batches(runtime: Sebulba, before: Callable[[int], None] = lambda number: None) -> list[Any]:
    """Return the list to which all later batches of the learner are added; `before(number)` is called before each."""
    batches: list[Any] = []
    update = runtime._update

    def watched(state: Any, batch: Any) -> Any:
        before(len(batches))
        batches.append(batch)
        return update(state, batch)

    runtime._update = watched
    return batches


def counts(batches: list[Any]) -> np.ndarray:
    """Return [batches, T]: the step counts at which each batch was acted, equal in all its environments."""
    shown = np.stack([seen(batch.trajectory.observation)[..., 3] for batch in batches])
    assert np.all(shown == shown[..., :1])
    return shown[..., 0]


def dispatch(runtime: Sebulba, state: SebulbaState) -> tuple[SebulbaState, DispatchOutput, float]:
    """Dispatch once; return also the seconds that it took."""
    began = time.perf_counter()
    state, output = runtime.dispatch(state)
    return state, output, time.perf_counter() - began


@pytest.mark.parametrize("queue_size", [1, 2])
def test_slow_learner_blocks_the_actor_and_loses_no_rollout(queue_size: int) -> None:
    """The learner stops in its first update until the actor is blocked: all queued rollouts were acted at step 0."""
    world = Scripted()
    rollouts = queue_size + 4
    runtime = start(world, queue_size=queue_size, rounds_per_dispatch=rollouts)
    full = (queue_size + 2) * STEPS  # one rollout in the learner, a full queue, and one that the actor cannot push

    def slow(number: int) -> None:
        if number == 0:
            wait_until(lambda: world.batches[0].count == full)
            time.sleep(PAUSE)
            assert world.batches[0].count == full

    batches = record_batches(runtime, slow)
    state, output, seconds = dispatch(runtime, runtime.init(0))
    runtime.close()
    expected = np.arange(rollouts)[:, None] * STEPS + np.arange(STEPS + 1)
    np.testing.assert_array_equal(counts(batches), np.repeat(expected, UPDATES, axis=0))
    lag = output.metrics["policy_lag"].reshape(rollouts, UPDATES)[:, 0]
    np.testing.assert_array_equal(lag[: queue_size + 2], UPDATES * np.arange(queue_size + 2))
    assert lag.max() == (queue_size + 1) * UPDATES
    assert output.metrics["actor_idle_fraction"][0] * seconds >= PAUSE
    assert int(state.learner.step) == rollouts * UPDATES


def test_slow_actor_makes_the_learner_wait() -> None:
    gate = Gate(STEPS)
    runtime = start(Scripted(gate))
    state, _, _ = dispatch(runtime, runtime.init(0))
    for _ in range(2):
        opening = threading.Timer(PAUSE, gate.allow, [STEPS])
        opening.start()
        state, output, seconds = dispatch(runtime, state)
        assert 0.9 * PAUSE <= output.metrics["learner_idle_fraction"][0] * seconds <= seconds
        np.testing.assert_array_equal(output.metrics["policy_lag"] <= UPDATES, True)
    gate.allow(10**6)
    runtime.close()


@pytest.mark.parametrize(("actors", "queue_size"), [(1, 1), (2, 1), (2, 3)])
def test_each_rollout_is_learned_once_in_order_with_bounded_lag(actors: int, queue_size: int) -> None:
    world, rounds = Scripted(), 12
    runtime = start(world, num_actors=actors, queue_size=queue_size, rounds_per_dispatch=4)
    batches = record_batches(runtime)
    state, lags = runtime.init(0), []
    for _ in range(rounds // 4):
        state, output = runtime.dispatch(state)
        lags.append(output.metrics["policy_lag"])
        assert {name: len(values) for name, values in output.metrics.items() if name.endswith("_idle_fraction")} == {
            "learner_idle_fraction": 1, "actor_idle_fraction": 1,
        }  # fmt: skip
    runtime.close()
    expected = np.arange(rounds)[:, None] * STEPS + np.arange(STEPS + 1)
    np.testing.assert_array_equal(counts(batches), np.repeat(expected, UPDATES, axis=0))
    share = ENVS // actors // BATCH
    envs = [seen(batch.trajectory.observation)[0, :, 0].tolist() for batch in batches]
    assert envs == [list(range(part, ENVS // actors, share)) for part in range(share)] * actors * rounds
    assert len(world.batches) == actors
    assert 0 <= np.min(lags) <= np.max(lags) <= (queue_size + 1) * UPDATES
    assert world.still_open == 0


# Failures


def keep_dispatching(runtime: Sebulba) -> None:
    state = runtime.init(0)
    for _ in range(10):
        state, _ = runtime.dispatch(state)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize(("event", "count"), [("reset", 0), ("step", 0), ("step", 2 * STEPS + 1)])
def test_environment_failure_ends_the_run_after_earlier_rollouts(event: str, count: int, synchronous: bool) -> None:
    """The message names the environment, and the exception is its cause."""
    error = RuntimeError("the emulator\nfell over")
    world = Scripted(crash(event, count, error))
    runtime = start(world, num_actors=2, synchronous=synchronous)
    batches = record_batches(runtime)
    with pytest.raises(EnvironmentFailure) as raised:
        keep_dispatching(runtime)
    operation = f"step {count + 1}" if event == "step" else "its reset"
    assert str(raised.value) == f"environment 'scripted' failed in {operation}: RuntimeError: the emulator fell over"
    assert raised.value.__cause__ is error
    assert len(batches) == count // STEPS * UPDATES
    runtime.close()
    assert (len(world.batches), world.still_open) == (2, 0)


def test_failure_of_one_of_two_actors_ends_the_run() -> None:
    """The run ends although the other actor waits for the learner."""
    error = ValueError("only one of them")
    first = threading.Lock()

    def hook(event: str, count: int) -> None:
        if (event, count) == ("step", STEPS) and first.acquire(blocking=False):
            raise error

    world = Scripted(hook)
    runtime = start(world, num_actors=2)
    with pytest.raises(EnvironmentFailure, match="only one") as raised:
        keep_dispatching(runtime)
    assert raised.value.__cause__ is error
    runtime.close()
    assert world.still_open == 0


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("failing", [0, 1])
def test_actor_that_cannot_start_ends_the_others(failing: int, synchronous: bool) -> None:
    error = OSError("no memory")
    world = Scripted(crash("batch", failing, error))
    runtime = start(world, num_actors=2, synchronous=synchronous)
    with pytest.raises(EnvironmentFailure, match="'scripted' failed in its start: OSError: no memory") as raised:
        runtime.dispatch(runtime.init(0))
    assert raised.value.__cause__ is error
    runtime.close()
    assert (len(world.batches), world.still_open) == (failing, 0)


# Shutdown


def test_close_does_not_wait_for_a_place_in_the_queue() -> None:
    world = Scripted()
    runtime = start(world)
    runtime.dispatch(runtime.init(0))
    wait_until(lambda: world.batches[0].count == 3 * STEPS)
    closing = threading.Thread(target=runtime.close)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert actors_alive() == 0
    assert [batch.closed for batch in world.batches] == [1]
    runtime.close()
    assert [batch.closed for batch in world.batches] == [1]


def test_close_without_a_dispatch_does_nothing() -> None:
    world = Scripted()
    runtime = start(world)
    runtime.close()
    runtime.init(0)
    runtime.close()
    assert world.batches == []


def test_synchronous_acts_only_on_request_and_closes_its_environments() -> None:
    world = Scripted()
    runtime = start(world, num_actors=2, synchronous=True)
    state, output = runtime.dispatch(runtime.init(0))
    time.sleep(PAUSE)
    assert [batch.count for batch in world.batches] == [STEPS, STEPS]
    assert output.metrics["actor_idle_fraction"] == 0
    runtime.dispatch(state)
    runtime.close()
    runtime.close()
    assert [batch.closed for batch in world.batches] == [1, 1]
    assert [batch.count for batch in world.batches] == [2 * STEPS, 2 * STEPS]


def test_no_private_attribute_of_threads_is_replaced() -> None:
    """Python's Thread keeps its state in attributes such as `_is_stopped`: `join` and `is_alive` read them."""
    make: Any = None  # it is not started
    thread = ActorThread(make, Watchdog(1.0), ParameterStore([]), jax.devices()[0], 1, on_request=True)
    for name, value in vars(threading.Thread(daemon=True)).items():
        assert type(getattr(thread, name)) is type(value), name
