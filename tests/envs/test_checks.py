"""Environments inside jit that contradict their spec are rejected before compilation."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import pytest

from byol_explore.envs.checks import check_jit_env
from byol_explore.envs.interface import JitEnvironment
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.envs.registry import make_env, register_env
from byol_explore.errors import UserError
from byol_explore.spaces import Vector
from byol_explore.types import TimeStep


class Changed(JitEnvironment):
    """A probe with changed results of `step`."""

    def __init__(self, change: Callable[[TimeStep], Any]) -> None:
        self.inner, self.change = PROBES["corridor"](), change
        self.spec = self.inner.spec

    def reset(self, key: Any) -> Any:
        return self.inner.reset(key)

    def step(self, state: Any, action: Any) -> Any:
        state, timestep = self.inner.step(state, action)
        return state, self.change(timestep)

    def render(self, state: Any) -> Any:
        return self.inner.render(state)


class OtherState(Changed):
    def step(self, state: Any, action: Any) -> Any:
        return jnp.zeros(3), super().step(state, action)[1]


class Misspecified(Changed):
    def __init__(self) -> None:
        super().__init__(lambda timestep: timestep)
        self.spec = self.spec._replace(observation={"eye": Vector(3)})


class WithoutReset(JitEnvironment):
    spec, step, render = PROBES["corridor"]().spec, PROBES["corridor"]().step, PROBES["corridor"]().render


class Unrelated:
    spec, reset, step = PROBES["corridor"]().spec, PROBES["corridor"]().reset, PROBES["corridor"]().step


def broken() -> NoReturn:
    raise ValueError("out of\norder")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Changed(lambda t: t._replace(reward=t.reward.astype(jnp.int32))),
         r"step returns reward that is int32\[\]: it must be float32\[\]$"),
        (lambda: Changed(lambda t: t._replace(is_last=t.is_last[None])),
         r"step returns is_last that is bool\[1\]: it must be bool\[\]$"),
        (lambda: Changed(lambda t: t._replace(observation=jnp.zeros(99))),
         r"step returns an observation that is float32\[99\]: it must be "),
        (lambda: Changed(tuple), "step returns a tuple: it must return a state and a TimeStep"),
        (lambda: OtherState(lambda t: t), r"step turns a state of .* into one of float32\[3\]$"),
        (lambda: Changed(lambda t: t._replace(is_first=True)), "is_first must be true in the result of reset"),
        (Misspecified, "reset returns observations with no entries, but the spec has the entries eye"),
        (WithoutReset, "cannot be made: TypeError: .* abstract .*reset"),
        (Unrelated, "makes a Unrelated: it must be a JitEnvironment or a HostEnvironment"),
        (broken, "cannot be made: ValueError: out of order$"),
    ],
)  # fmt: skip
def test_results_that_contradict_the_spec_are_reported_in_one_line(make: Callable[[], Any], message: str) -> None:
    register_env("changed", make, replace=True)
    with pytest.raises(UserError, match=f"^environment 'changed'.*{message}") as caught:
        make_env("changed")
    assert "\n" not in str(caught.value)


def test_constant_fields_may_be_python_numbers() -> None:
    def make() -> Any:
        return Changed(lambda timestep: timestep._replace(is_first=False, discount=1.0))

    register_env("changed", make, replace=True)
    assert make_env("changed").spec.name == "probe:corridor"
    assert jax.eval_shape(lambda key: make_env("changed").reset(key), jax.random.key(0))  # inside a trace


class TwoTasks(Changed):
    """Two tasks and two stages."""

    stages = ("one", "two")

    def __init__(self) -> None:
        super().__init__(lambda timestep: timestep)
        self.spec = self.spec._replace(tasks=(self.spec._replace(name="one"), self.spec._replace(name="two")))

    def reset_task(self, key: Any, task: Any) -> Any:
        return self.inner.reset(key)

    def task_id(self, state: Any) -> Any:
        return jnp.zeros((), jnp.int32)

    def stages_reached(self, state: Any) -> Any:
        return jnp.zeros(2, bool)


class WithoutResetTask(TwoTasks):
    reset_task = JitEnvironment.reset_task


class OtherResetTask(TwoTasks):
    def reset_task(self, key: Any, task: Any) -> Any:
        return jnp.zeros(3), self.inner.reset(key)[1]


class FloatTask(TwoTasks):
    def task_id(self, state: Any) -> Any:
        return jnp.zeros(())


class WithoutStagesReached(TwoTasks):
    stages_reached = JitEnvironment.stages_reached


class ThirdStage(TwoTasks):
    def stages_reached(self, state: Any) -> Any:
        return jnp.zeros(3, bool)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (WithoutResetTask, "its spec has several tasks, so it needs reset_task and task_id too$"),
        (OtherResetTask, r"reset_task makes a state of float32\[3\], but reset one of "),
        (FloatTask, r"the result of task_id is float32\[\]: it must be int32\[\]$"),
        (WithoutStagesReached, "it has stages, so it needs stages_reached too$"),
        (ThirdStage, r"the result of stages_reached is bool\[3\]: it must be bool\[2\]$"),
    ],
)
def test_methods_for_tasks_and_stages_are_checked(make: Callable[[], TwoTasks], message: str) -> None:
    check_jit_env("mine", TwoTasks())
    with pytest.raises(UserError, match=message):
        check_jit_env("mine", make())
