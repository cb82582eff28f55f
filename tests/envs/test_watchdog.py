"""Environments under a watchdog: exceptions, time limits, and the validation of time steps."""

import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.envs.watchdog import Watchdog, run_watched
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from byol_explore.types import Action, TimeStep
from host_worlds import Scripted, ScriptedBatch, crash

SHORT = 0.1  # seconds


def act(batch: Any, count: int = 1) -> TimeStep:
    for _ in range(count - 1):
        act(batch)
    return batch.step(Action(np.zeros((batch.num_envs, 1), np.int32), np.zeros((batch.num_envs, 0), np.float32)))


# Failures


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt("its own"), "KeyboardInterrupt: its own"),
    ],
)
def test_failures_name_the_environment_and_the_step(error: BaseException, words: str) -> None:
    [world] = Watchdog(60.0).wrap([Scripted(crash("step", 2, error))])
    batch = world.make_vector_env(2, 0)
    batch.reset()
    act(batch, 2)
    with pytest.raises(EnvironmentFailure) as raised:
        act(batch)
    assert str(raised.value) == f"environment 'scripted' failed in step 3: {words}"
    assert raised.value.__cause__ is error
    assert raised.value.exit_code == 4


def test_user_errors_pass_unchanged() -> None:
    error = UserError("environment 'scripted' cannot be made: no robot")
    [world] = Watchdog(60.0).wrap([Scripted(crash("batch", 0, error))])
    with pytest.raises(UserError) as raised:
        world.make_vector_env(2, 0)
    assert raised.value is error


# Restarts


def test_a_faulty_batch_is_restarted_as_often_as_allowed() -> None:
    faults = {2: ValueError("two"), 5: SystemExit(0), 6: OSError("six"), 9: ValueError("nine")}
    total = iter(range(100))

    def hook(event: str, count: int) -> None:
        if event == "step" and (fault := faults.get(next(total))):
            raise fault

    watchdog = Watchdog(60.0, max_restarts=3)
    [world] = watchdog.wrap([scripted := Scripted(hook)])
    batch = world.make_vector_env(2, 0)
    batch.reset()
    for index in range(9):
        step = act(batch)
        assert step.is_first.all() == (index in (2, 5, 6))
        assert index not in (2, 5, 6) or not (step.reward.any() or step.is_last.any())
    assert len({each.seed for each in scripted.batches}) == len(scripted.batches) == 4, "new seeds"
    assert (watchdog.pop_restarts(), watchdog.pop_restarts()) == (3, 0)
    warning = "environment 'scripted' failed in step 6: SystemExit: 0; restarted (2 of 3 times)"
    assert watchdog.pop_warnings()[1] == warning
    words = "failed in step 10: ValueError: nine; 3 were restarted before (runtime.max_env_restarts allows more)"
    with pytest.raises(EnvironmentFailure, match=re.escape(words)) as raised:
        act(batch)
    assert raised.value.__cause__ is faults[9]


def test_an_environment_that_cannot_be_restarted_ends_the_run() -> None:
    def hook(event: str, count: int) -> None:
        if (event, count) in (("step", 1), ("batch", 1)):
            raise ValueError(event)

    [world] = Watchdog(60.0, max_restarts=5).wrap([Scripted(hook)])
    batch = world.make_vector_env(2, 0)
    batch.reset()
    with pytest.raises(EnvironmentFailure, match="failed in its start: ValueError: batch"):
        act(batch, 2)


# Time


def test_time_in_which_the_process_was_suspended_does_not_count() -> None:
    """The watchdog counts its polls: here each poll takes much longer than a step may."""
    watchdog = Watchdog(SHORT)
    polls = iter([False, True])

    def slow_poll(seconds: float) -> bool:
        time.sleep(3 * SHORT)
        return next(polls)

    watchdog.call("scripted", "step 1", lambda: watchdog.wait_until(slow_poll))
    assert next(polls, None) is None, "two polls without a failure"


def test_a_hanging_environment_ends_its_work_in_time() -> None:
    release = threading.Event()

    def hook(event: str, count: int) -> None:
        if event == "step":
            release.wait()

    def work(envs: list[Any]) -> TimeStep:
        batch = envs[0].make_vector_env(2, 0)
        batch.reset()
        return act(batch)

    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"'scripted' hangs: step 1 has taken more than 0\.1 s"):
        run_watched([Scripted(hook)], SHORT, work)
    assert time.monotonic() - began < 5.0
    release.set()
    np.testing.assert_array_equal(run_watched([Scripted(hook)], SHORT, work).is_first, False)


def test_the_failing_task_of_several_is_named() -> None:
    """With fixed and with random tasks."""
    for tasks in ("fixed", "random"):
        worlds = [Scripted(), Scripted(crash("step", 1, ValueError("no")), name="other")]
        batch = make_host_vector_env(Watchdog(60.0).wrap(worlds), 4, 0, tasks)
        batch.reset()
        with pytest.raises(EnvironmentFailure, match="environment 'other' failed in step 2: ValueError: no"):
            act(batch, 20)


def test_families_with_random_tasks_are_watched_as_one() -> None:
    class Drawing(Scripted):
        def make_random_task_env(self, others: Sequence[Any], num_envs: int, seed: int) -> ScriptedBatch:
            assert not [other for other in others if type(other) is not Drawing], "wrapped environments"
            return self.make_vector_env(num_envs, seed)

    worlds = [Drawing(crash("step", 1, ValueError("no")), name="one"), Drawing(name="two")]
    batch = make_host_vector_env(Watchdog(60.0).wrap(worlds), 4, 0, "random")
    batch.reset()
    assert [len(world.batches) for world in worlds] == [1, 0]
    with pytest.raises(EnvironmentFailure, match="environment 'one,two' failed in step 2: ValueError: no"):
        act(batch, 20)


# Validation

SPEC = EnvSpec("constant", Vector(3), ActionSpec(discrete=(2,)), max_steps=5)


class Constant(HostEnvironment, HostVectorEnv):
    """Always returns the same time step; is its own vector environment."""

    num_envs = 2

    def __init__(self, observation: Any, spec: Any, **fields: Any) -> None:
        self.spec = SPEC._replace(observation=spec)
        flags = np.zeros(2, bool)
        self.timestep = TimeStep(observation, np.zeros(2), np.ones(2), flags, flags, flags)._replace(**fields)

    def make_vector_env(self, num_envs: int, seed: int) -> Any:
        return self

    def reset(self) -> TimeStep:
        return self.timestep

    def step(self, action: Action) -> TimeStep:
        return self.timestep

    render = reset


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (Constant(np.zeros((2, 4)), Vector(3)), "its observation has the shape (2, 4), not (2, 3)"),
        (Constant(np.zeros((2, 1)), Vector(3)), "its observation has the shape (2, 1), not (2, 3)"),
        (
            Constant({"a": np.zeros((2, 3))}, {"a": Vector(3), "b": Vector(1)}),
            "entry 'b' of its observation is missing",
        ),
        (Constant(np.zeros((2, 3)), {"a": Vector(3)}), "entry 'a' of its observation is missing"),
        (Constant(np.zeros((2, 3)), Vector(3), reward=np.zeros((2, 1))), "its reward has the shape (2, 1), not (2,)"),
        (Constant(np.zeros((2, 3)), Vector(3), is_last=np.zeros(3)), "its is_last has the shape (3,), not (2,)"),
        (Constant(np.full((2, 3), np.nan), Vector(3)), "its observation is not finite"),
        (Constant(np.zeros((2, 3)), Vector(3), reward=np.array([0, np.inf])), "its reward is not finite"),
        (Constant({"a": np.full((2, 3), np.inf)}, {"a": Vector(3)}), "entry 'a' of its observation is not finite"),
    ],
)
def test_wrong_shapes_and_infinite_numbers_are_failures(world: Constant, words: str) -> None:
    """NumPy would broadcast some of them without an error."""
    [watched] = Watchdog(60.0).wrap([world])
    with pytest.raises(EnvironmentFailure) as raised:
        watched.make_vector_env(2, 0).reset()
    assert str(raised.value) == f"environment 'constant' failed in its reset: {words}"


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (
            Constant(np.full((2, 1, 1, 2), 4, np.uint8), Grid(1, 1, (9, 4))),
            "its observation has symbols beyond the (9, 4) of its channels",
        ),
        (Constant(np.full((2, 3), 7), Tokens(3, 7)), "its observation has tokens outside its vocabulary of 7"),
        (
            Constant(np.full((2, 1, 1, 1), 300), Image(1, 1, 1)),
            "its observation has numbers that do not fit into uint8",
        ),
    ],
)
def test_values_out_of_range_are_reported_once(world: Constant, words: str) -> None:
    watchdog = Watchdog(60.0)
    [watched] = watchdog.wrap([world])
    batch = watched.make_vector_env(2, 0)
    batch.reset()
    act(batch, 3)
    assert watchdog.pop_warnings() == (f"environment 'constant': {words} (its reset)",)
    act(batch)
    assert watchdog.pop_warnings() == ()


def test_values_in_range_cause_no_warning() -> None:
    watchdog = Watchdog(60.0)
    observation = {
        "vector": np.full((2, 3), -1e30), "grid": np.full((2, 1, 1, 2), 3, np.uint8), "text": np.full((2, 3), 6),
        "image": np.full((2, 1, 1, 1), 255),
    }  # fmt: skip
    kinds = {"vector": Vector(3), "grid": Grid(1, 1, (9, 4)), "text": Tokens(3, 7), "image": Image(1, 1, 1)}
    [world] = watchdog.wrap([Constant(observation, kinds)])
    act(world.make_vector_env(2, 0), 2)
    assert watchdog.pop_warnings() == ()
