"""Environments of one's own that do not do what their spec says: found before anything is compiled."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import pytest

from byol_explore.envs.checking import check_inside
from byol_explore.envs.registry import make_env, register_env
from byol_explore.envs.worlds.probes import PROBES
from byol_explore.errors import UserError
from byol_explore.spaces import Vector
from byol_explore.types import TimeStep


class Changed:
    """A probe world whose answers are changed on their way."""

    def __init__(self, change: Callable[[TimeStep], Any]) -> None:
        self.inner, self.change = PROBES["corridor"](), change
        self.spec = self.inner.spec

    def reset(self, key: Any) -> Any:
        return self.inner.reset(key)

    def step(self, state: Any, action: Any) -> Any:
        state, timestep = self.inner.step(state, action)
        return state, self.change(timestep)


class OtherState(Changed):
    def step(self, state: Any, action: Any) -> Any:
        return jnp.zeros(3), super().step(state, action)[1]


class Misspecified(Changed):
    def __init__(self) -> None:
        super().__init__(lambda timestep: timestep)
        self.spec = self.spec._replace(observation={"eye": Vector(3)})


class WithoutReset:
    spec, step = PROBES["corridor"]().spec, PROBES["corridor"]().step


def broken() -> NoReturn:
    raise ValueError("out of\norder")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Changed(lambda t: t._replace(reward=t.reward.astype(jnp.int32))),
         r"step gives reward that is int32\[\]: it must be float32\[\]$"),
        (lambda: Changed(lambda t: t._replace(is_last=t.is_last[None])),
         r"step gives is_last that is bool\[1\]: it must be bool\[\]$"),
        (lambda: Changed(lambda t: t._replace(observation=jnp.zeros(99))),
         r"step gives an observation that is float32\[99\]: it must be "),
        (lambda: Changed(tuple), "step answers with a tuple: it must be a state and a TimeStep"),
        (lambda: OtherState(lambda t: t), r"step makes a state of float32\[3\] of one of "),
        (lambda: Changed(lambda t: t._replace(is_first=True)), "is_first must be true in what reset"),
        (Misspecified, "reset has observations with no entries, but the spec has the entries eye"),
        (WithoutReset, "makes a WithoutReset: it must have a spec, and reset and step"),
        (broken, "cannot be made: ValueError: out of order$"),
    ],
)  # fmt: skip
def test_what_is_not_as_specified_is_said_in_one_line(make: Callable[[], Any], message: str) -> None:
    register_env("changed", make, replace=True)
    with pytest.raises(UserError, match=f"^environment 'changed'.*{message}") as caught:
        make_env("changed")
    assert "\n" not in str(caught.value)


def test_what_is_as_specified_is_taken() -> None:
    """Numbers of Python for what never changes among it."""

    def make() -> Any:
        return Changed(lambda timestep: timestep._replace(is_first=False, discount=1.0))

    register_env("changed", make, replace=True)
    assert make_env("changed").spec.name == "probe:corridor"
    assert jax.eval_shape(lambda key: make_env("changed").reset(key), jax.random.key(0))  # while something is traced


class Bookkeeping(Changed):
    """With several tasks and stages, of which some is missing or of the wrong kind."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(lambda timestep: timestep)
        self.spec = self.spec._replace(tasks=(self.spec._replace(name="one"), self.spec._replace(name="two")))
        whole = {
            "begin": lambda key, task: self.inner.reset(key),
            "task": lambda state: jnp.zeros((), jnp.int32),
            "stages": ("one", "two"),
            "reached": lambda state: jnp.zeros(2, bool),
        }
        for name, value in {**whole, **changes}.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"begin": None}, "its spec has several tasks, so it must have begin and task too$"),
        ({"task": lambda state: jnp.zeros(())}, r"what task answers with is float32\[\]: it must be int32\[\]$"),
        (
            {"reached": lambda state: jnp.zeros(3, bool)},
            r"what reached answers with is bool\[3\]: it must be ",
        ),
    ],
)
def test_tasks_and_stages_that_are_not_what_they_must_be(changes: dict[str, Any], message: str) -> None:
    check_inside("mine", Bookkeeping())  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=message):
        check_inside("mine", Bookkeeping(**changes))  # pyright: ignore[reportArgumentType]
