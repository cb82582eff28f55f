"""An environment of one's own, inside jit: a combination lock that pays after the right digits in the right order.

    byol-explore train --env examples.lock:Lock

The import path is what run directories keep, so every other command finds the environment again.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, TimeStep

DIGITS = 4  # to choose from at every step


class LockState(NamedTuple):
    opened: Array  # [] right digits in a row
    time: Array  # []


class Lock:
    """A wrong digit closes the lock again. Random digits open one of twelve once in 4^12 tries."""

    def __init__(self, length: int = 12) -> None:
        self.length = length
        self.combination = np.random.default_rng(0).integers(0, DIGITS, length)

    @property
    def spec(self) -> EnvSpec:
        observation = Vector(self.length + 1)
        return EnvSpec("examples.lock:Lock", observation, ActionSpec(discrete=(DIGITS,)), max_steps=4 * self.length)

    def reset(self, key: Array) -> tuple[LockState, TimeStep]:
        state = LockState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._timestep(state)._replace(is_first=jnp.asarray(True))

    def step(self, state: LockState, action: Action) -> tuple[LockState, TimeStep]:
        right = action.discrete[0] == jnp.asarray(self.combination)[state.opened]
        state = LockState(jnp.where(right, state.opened + 1, 0), state.time + 1)
        return state, self._timestep(state)

    def render(self, state: LockState) -> np.ndarray:
        """A row of squares, green as far as the lock is open."""
        picture = np.full((20, 20 * self.length, 3), 60, np.uint8)
        picture[:, : 20 * int(state.opened)] = (60, 200, 60)
        return picture

    def _timestep(self, state: LockState) -> TimeStep:
        is_open = state.opened == self.length
        return TimeStep(
            observation=jax.nn.one_hot(state.opened, self.length + 1),
            reward=is_open.astype(jnp.float32),
            discount=1.0 - is_open.astype(jnp.float32),
            is_first=jnp.asarray(False),
            is_last=is_open | (state.time == self.spec.max_steps),
        )
