"""The records of learning: the learner's whole state in one pytree, what it learns from, and what it says."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from byol_explore.algorithms.judging import Judged, Statistics
from byol_explore.errors import unknown
from byol_explore.networks.assembly import Actor, Networks
from byol_explore.rules import check
from byol_explore.settings.config import Config
from byol_explore.types import Array, PyTree, Trajectory


class Dials(NamedTuple):
    """Settings that may be turned while a run goes on, by a callback: they are data of the program, not parts of it."""

    mixing: Array  # [] lambda, the weight of the intrinsic reward
    learning_rate: Array  # []
    entropy_weight: Array  # []
    loss_weight: Array  # [] of the curiosity


_PARTS = Dials("curiosity", "optimizer", "agent", "curiosity")  # pyright: ignore[reportArgumentType]  # of a configuration


def initial_dials(config: Config) -> Dials:
    """As the configuration has them."""
    values = [getattr(getattr(config, part), name) for name, part in _PARTS._asdict().items()]
    return Dials(*(jnp.asarray(value, jnp.float32) for value in values))


def check_dials(config: Config, values: Mapping[str, Any]) -> dict[str, float]:
    """The values, numbers of any kind, if there are such dials and each may be turned so far."""
    checked = {}
    for name, value in values.items():
        if name not in Dials._fields:
            raise unknown("dial", name, list(Dials._fields))
        part = getattr(_PARTS, name)
        plain = value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value
        check(dataclasses.replace(getattr(config, part), **{name: plain}), f"{part}.")
        with np.errstate(over="ignore"):
            checked[name] = float(np.float32(plain))  # which may be infinite, or nothing
        check(dataclasses.replace(getattr(config, part), **{name: checked[name]}), f"{part}.")
    return checked


def turned(dials: Dials, values: Mapping[str, float]) -> Dials:
    """Some of them at other values, where they were before."""

    def turn(dial: Array, value: float) -> Array:
        return jax.make_array_from_callback((), dial.sharding, lambda _: np.float32(value))  # on devices of others too

    return dials._replace(**{name: turn(getattr(dials, name), value) for name, value in values.items()})


class LearnerState(NamedTuple):
    online: Networks
    curiosity: PyTree  # the method's state: a target encoder, counts, whatever it keeps
    acting: Actor  # the target policy
    duals: PyTree  # what the algorithm trains for itself
    optimizer: optax.OptState
    dual_optimizer: optax.OptState
    statistics: Statistics
    dials: Dials
    step: Array  # [] learner steps done


class Batch(NamedTuple):
    """What an update learns from, or all updates of a rollout."""

    trajectory: Trajectory
    judged: Judged | None = None  # None where every update judges its own batch


class UpdateOutput(NamedTuple):
    """What a learner step says of its batch."""

    metrics: dict[str, Array]
    finite: Array  # [len(Learner.finite_names)] whether each quantity was finite
    intrinsic_reward: Array  # [T-1, B] normalised, 0 where no transition is
