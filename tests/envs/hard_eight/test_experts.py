"""Scripted experts solve the tasks on levels that nobody has looked at."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight import experts, tasks
from byol_explore.envs.worlds.hard_eight.layouts import draw
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.spec import Episode, HardEight
from byol_explore.envs.worlds.hard_eight.world import begin
from byol_explore.types import Array

ENV = HardEight("all")
LOWEST = dict.fromkeys(TASKS, 0.95) | {"throw-across": 0.8, "baseball": 0.8}


@partial(jax.jit, static_argnames="count")
def solved(task: Array, key: Array, count: int) -> Array:
    """[count] whether episodes of a task end with the large apple."""

    def start(key: Array) -> Episode:
        level = draw(task, key)
        return Episode(level, begin(level), jnp.zeros((), jnp.int32), jnp.zeros((len(tasks.STAGES),), bool))

    def play(states: Episode, _: None) -> tuple[Episode, tuple[Array, Array]]:
        states, timestep = jax.vmap(lambda state: ENV.step(state, experts.act(state.level, state.world, 3)))(states)
        return states, (timestep.is_last, timestep.success)

    _, (is_last, success) = jax.lax.scan(play, jax.vmap(start)(jax.random.split(key, count)), length=ENV.spec.max_steps)
    first = jnp.argmax(is_last, axis=0)
    return success[first, jnp.arange(count)] == 1


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_experts_solve_levels_that_nobody_has_looked_at(task: str) -> None:
    share = np.mean(np.asarray(solved(jnp.asarray(TASKS.index(task)), jax.random.key(77), 1000)))
    assert share >= LOWEST[task]
