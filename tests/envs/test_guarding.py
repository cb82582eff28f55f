"""Environments under guard: what they fail of, how long they take, and what they answer."""

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.guarding import Guard, Request, guarded
from byol_explore.envs.host import Partial
from byol_explore.envs.host_tasks import make_batch
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from byol_explore.types import Action, TimeStep
from host_worlds import Scripted, crash

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
def test_whatever_an_environment_raises_is_named_with_environment_and_step(error: BaseException, words: str) -> None:
    [world] = Guard(60.0).protect([Scripted(crash("step", 2, error))])
    batch = world.batch(2, 0)
    batch.reset()
    act(batch, 2)
    with pytest.raises(EnvironmentFailure) as raised:
        act(batch)
    assert str(raised.value) == f"environment 'scripted' failed in step 3: {words}"
    assert raised.value.__cause__ is error
    assert raised.value.exit_code == 4


def test_what_is_said_in_one_line_already_stays_as_it_is() -> None:
    error = UserError("environment 'scripted' cannot be made: no robot")
    [world] = Guard(60.0).protect([Scripted(crash("batch", 0, error))])
    with pytest.raises(UserError) as raised:
        world.batch(2, 0)
    assert raised.value is error


def test_an_environment_that_would_end_the_process_is_named() -> None:
    def leave(event: str, count: int) -> None:
        if (event, count) == ("step", 0):
            os._exit(7)

    [world] = Guard(60.0).protect([Scripted(leave)])
    batch = world.batch(2, 0)
    batch.reset()
    with pytest.raises(EnvironmentFailure, match=r"failed in step 1: it left by os\._exit\(7\)"):
        act(batch)


def test_others_leave_as_before() -> None:
    """Also processes that an environment forks."""
    lines = [
        "import os",
        "from byol_explore.envs.guarding import Guard, Request",
        "def fork():",
        "    if (child := os.fork()) == 0: os._exit(3)",
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
        "print(Guard(60.0).ask(Request('forking', 'step 1', 60.0), fork), flush=True)",
        "os._exit(5)",
    ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (5, "3\n"), ended.stderr


# Time


def test_a_process_that_was_suspended_does_not_suspect_its_environments() -> None:
    """Only time counts in which somebody looked: here each look takes much longer than a step may."""
    guard = Guard(SHORT)
    looks = iter([False, True])

    def slow_look(seconds: float) -> bool:
        time.sleep(3 * SHORT)
        return next(looks)

    guard.ask(Request("scripted", "step 1", SHORT), lambda: guard.wait(slow_look))
    assert next(looks, None) is None, "it looked twice, and was not taken for one that hangs in between"


def test_work_with_an_environment_that_hangs_ends_in_time() -> None:
    release = threading.Event()

    def hook(event: str, count: int) -> None:
        if event == "step":
            release.wait()

    def work(envs: list[Any]) -> TimeStep:
        batch = envs[0].batch(2, 0)
        batch.reset()
        return act(batch)

    began = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"'scripted' hangs: step 1 has taken more than 0\.1 s"):
        guarded([Scripted(hook)], SHORT, work)
    assert time.monotonic() - began < 5.0
    release.set()
    np.testing.assert_array_equal(guarded([Scripted(hook)], SHORT, work).is_first, False)


def test_tasks_are_guarded_one_by_one() -> None:
    """The one that fails is named, whether tasks are fixed or drawn."""
    for tasks in ("fixed", "drawn"):
        worlds = [Scripted(), Scripted(crash("step", 1, ValueError("no")), name="other")]
        batch = make_batch(Guard(60.0).protect(worlds), 4, 0, tasks)
        batch.reset()
        with pytest.raises(EnvironmentFailure, match="environment 'other' failed in step 2: ValueError: no"):
            act(batch, 20)


def test_what_can_be_stepped_in_part_still_can() -> None:
    class PartialWorld(Scripted):
        def batch(self, num_envs: int, seed: int) -> Any:
            batch: Any = super().batch(num_envs, seed)
            batch.step_some = lambda action, moving: batch.step(action)
            return batch

    [world] = Guard(60.0).protect([PartialWorld()])
    batch = world.batch(2, 0)
    assert isinstance(batch, Partial)
    assert not isinstance(Guard(60.0).protect([Scripted()])[0].batch(2, 0), Partial)
    batch.reset()
    nothing = Action(np.zeros((2, 1), np.int32), np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(batch.step_some(nothing, np.ones(2, bool)).is_first, False)


# Answers

SPEC = EnvSpec("talking", Vector(3), ActionSpec(discrete=(2,)), max_steps=5)


class Talking:
    """Answers whatever it is given."""

    num_envs = 2

    def __init__(self, observation: Any, spec: Any, **answer: Any) -> None:
        self.spec = SPEC._replace(observation=spec)
        flags = np.zeros(2, bool)
        self.answer = TimeStep(observation, np.zeros(2), np.ones(2), flags, flags)._replace(**answer)

    def batch(self, num_envs: int, seed: int) -> Any:
        return self

    def reset(self) -> TimeStep:
        return self.answer

    def step(self, action: Action) -> TimeStep:
        return self.answer

    places = render = close = reset


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (Talking(np.zeros((2, 4)), Vector(3)), "its observation has the shape (2, 4), not (2, 3)"),
        (Talking(np.zeros((2, 1)), Vector(3)), "its observation has the shape (2, 1), not (2, 3)"),
        (Talking({"a": np.zeros((2, 3))}, {"a": Vector(3), "b": Vector(1)}), "entry 'b' of its observation is missing"),
        (Talking(np.zeros((2, 3)), {"a": Vector(3)}), "entry 'a' of its observation is missing"),
        (Talking(np.zeros((2, 3)), Vector(3), reward=np.zeros((2, 1))), "its reward has the shape (2, 1), not (2,)"),
        (Talking(np.zeros((2, 3)), Vector(3), is_last=np.zeros(3)), "its is_last has the shape (3,), not (2,)"),
    ],
)
def test_an_answer_of_another_shape_is_a_failure(world: Talking, words: str) -> None:
    """Some would be spread over the others without an error."""
    [guarded_world] = Guard(60.0).protect([world])
    with pytest.raises(EnvironmentFailure) as raised:
        guarded_world.batch(2, 0).reset()
    assert str(raised.value) == f"environment 'talking' failed in its reset: {words}"


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (Talking(np.full((2, 3), np.nan), Vector(3)), "its observation is not finite"),
        (Talking(np.zeros((2, 3)), Vector(3), reward=np.array([0, np.inf])), "its reward is not finite"),
        (Talking({"a": np.full((2, 3), np.inf)}, {"a": Vector(3)}), "entry 'a' of its observation is not finite"),
        (
            Talking(np.full((2, 1, 1, 2), 4, np.uint8), Grid(1, 1, (9, 4))),
            "its observation has symbols beyond the (9, 4) of its channels",
        ),
        (Talking(np.full((2, 3), 7), Tokens(3, 7)), "its observation has words outside its vocabulary of 7"),
        (Talking(np.full((2, 1, 1, 1), 300), Image(1, 1, 1)), "its observation has numbers that are no uint8"),
    ],
)
def test_a_doubtful_answer_is_named_once(world: Talking, words: str) -> None:
    guard = Guard(60.0)
    [guarded_world] = guard.protect([world])
    batch = guarded_world.batch(2, 0)
    batch.reset()
    act(batch, 3)
    assert guard.new_remarks() == (f"environment 'talking': {words} (its reset)",)
    act(batch)
    assert guard.new_remarks() == ()


def test_ordinary_answers_are_not_doubted() -> None:
    guard = Guard(60.0)
    observation = {
        "vector": np.full((2, 3), -1e30), "grid": np.full((2, 1, 1, 2), 3, np.uint8), "text": np.full((2, 3), 6),
        "image": np.full((2, 1, 1, 1), 255),
    }  # fmt: skip
    kinds = {"vector": Vector(3), "grid": Grid(1, 1, (9, 4)), "text": Tokens(3, 7), "image": Image(1, 1, 1)}
    [world] = guard.protect([Talking(observation, kinds)])
    act(world.batch(2, 0), 2)
    assert guard.new_remarks() == ()
