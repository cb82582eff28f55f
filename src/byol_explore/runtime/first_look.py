"""What the world looks like before anything is learned: observations of some random steps.

Encoders are centred on them (`networks/centering.py`), so they must differ as observations do: first observations of
episodes alone are often nearly all alike. They depend on the seed and on nothing else, above all not on the number of
devices or of environments.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import Environment
from byol_explore.envs.drawn import Environments, make_vector
from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.host_tasks import make_batch
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, PyTree, TimeStep

STEPS = 128  # with random actions
EVERY = 8  # so many steps apart, observations are kept: neighbours say the same
INSIDE, OUTSIDE = 128, 32  # environments, at least one for each task; those outside jit take time


def look_inside(envs: list[Environment], seed: int) -> PyTree:
    """Observations [n, ...] of environments inside jit."""
    return _play(tuple(envs), jax.random.key(seed))


@partial(jax.jit, static_argnums=0)
def _play(kinds: tuple[Environment, ...], key: Array) -> PyTree:
    envs: Environments = make_vector(list(kinds), _shared(INSIDE, len(kinds)), "fixed")
    reset_key, key = jax.random.split(key)

    def step(carry: tuple[PyTree, Array, PyTree], _: None) -> tuple[tuple[PyTree, Array, PyTree], None]:
        states, key, _ = carry
        key, action_key = jax.random.split(key)
        states, timestep = envs.step(states, _random_action(envs.spec.action, envs.num_envs, action_key))
        return (states, key, timestep.observation), None

    def look(carry: tuple[PyTree, Array, PyTree], _: None) -> tuple[tuple[PyTree, Array, PyTree], PyTree]:
        carry, _ = jax.lax.scan(step, carry, length=EVERY)
        return carry, carry[2]

    states, timestep = envs.reset(reset_key)
    _, seen = jax.lax.scan(look, (states, key, timestep.observation), length=STEPS // EVERY)
    seen = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), timestep.observation, seen)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen)


def look_outside(envs: Sequence[HostEnvironment], seed: int) -> PyTree:
    """Observations [n, ...] of environments outside jit, which are started for it and ended."""
    count = _shared(OUTSIDE, len(envs))
    batch, key, spec = make_batch(envs, count, seed), jax.random.key(seed), envs[0].spec.action
    try:
        seen = [_copy(batch.reset())]
        for index in range(STEPS):
            action = _random_action(spec, count, jax.random.fold_in(key, index))
            timestep = batch.step(jax.device_get(action))
            if (index + 1) % EVERY == 0:
                seen.append(_copy(timestep))
        return jax.tree.map(lambda *xs: np.concatenate(xs), *seen)
    finally:
        batch.close()


def _copy(timestep: TimeStep) -> PyTree:
    """The observation, which the next step may overwrite."""
    return jax.tree.map(np.array, timestep.observation)


def _shared(count: int, tasks: int) -> int:
    """A number of environments that the tasks share evenly."""
    return -(-count // tasks) * tasks


@partial(jax.jit, static_argnums=(0, 1))
def _random_action(spec: ActionSpec, count: int, key: Array) -> Action:
    """Uniform over every category and every range."""
    discrete_key, continuous_key = jax.random.split(key)
    categories = jnp.asarray(spec.discrete, jnp.int32)
    return Action(
        jax.random.randint(discrete_key, (count, len(spec.discrete)), 0, categories),
        jax.random.uniform(continuous_key, (count, spec.continuous), minval=-1.0, maxval=1.0),
    )
