"""Whole episodes of a policy that reads states: what random actions and experts reach, and after how long.

Episodes are played at the environment's own interface. Nobody looks at their pictures, so that the compiled program
draws none, and thousands of episodes are affordable.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight import experts
from byol_explore.envs.worlds.hard_eight.spec import Episode, HardEight
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array

Choice = Callable[[Episode, Array], Action]  # of an action, from a state and a key


class Outcome(NamedTuple):
    """What became of episodes."""

    task: Array  # [B] int32
    reached: Array  # [B, stages]
    solved: Array  # [B]
    total: Array  # [B] return
    decisions: Array  # [B] int32, actions until the end


class _Course(NamedTuple):
    state: Episode
    key: Array
    outcome: Outcome
    is_over: Array  # [B]


@partial(jax.jit, static_argnums=(0, 1, 3))
def play(env: HardEight, choose: Choice, key: Array, count: int) -> Outcome:
    """So many episodes at the same time, each until it ends."""
    level_key, action_key = jax.random.split(key)
    state, _ = jax.vmap(env.reset)(jax.random.split(level_key, count))
    nothing = jnp.zeros((count,), bool)
    begun = (jnp.zeros((count,)), jnp.zeros((count,), jnp.int32))
    outcome = Outcome(state.level.task, jax.vmap(env.reached)(state), nothing, *begun)

    def step(course: _Course) -> _Course:
        key, now_key = jax.random.split(course.key)
        action = jax.vmap(choose)(course.state, jax.random.split(now_key, count))
        state, timestep = jax.vmap(env.step)(course.state, action)
        total, decisions = course.outcome.total + timestep.reward, course.outcome.decisions + 1
        now = Outcome(state.level.task, jax.vmap(env.reached)(state), timestep.success == 1, total, decisions)
        outcome = Outcome(*[_where(course.is_over, old, new) for old, new in zip(course.outcome, now, strict=True)])
        return _Course(state, key, outcome, course.is_over | timestep.is_last)

    start = _Course(state, action_key, outcome, nothing)
    return jax.lax.while_loop(lambda course: ~jnp.all(course.is_over), step, start).outcome


def _where(condition: Array, first: Array, second: Array) -> Array:
    """[B, ...] of two such arrays, by a condition [B]."""
    return jnp.where(condition.reshape(-1, *[1] * (first.ndim - 1)), first, second)


def at_random(spec: ActionSpec) -> Choice:
    """Actions as a policy draws them that has learned nothing: standard normal numbers, which the environment clips to
    [-1, 1], and every category alike.
    """

    def choose(state: Episode, key: Array) -> Action:
        discrete, continuous = jax.random.split(key)
        categories = jax.random.randint(discrete, (len(spec.discrete),), 0, jnp.asarray(spec.discrete))
        return Action(categories, jax.random.normal(continuous, (spec.continuous,)))

    return choose


def by_expert(env: HardEight) -> Choice:
    """What the expert of the task does."""
    return lambda state, key: experts.act(state.level, state.world, env.settings.action_repeat)
