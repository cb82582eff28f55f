"""An environment of one's own, inside jit: a lock that opens after the right digits in the right order.

    byol-explore train --env examples.lock:Lock

One wrong digit leads to a hall in which nothing changes any more, so random actions hardly ever open it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import ActionSpec, EnvSpec
from byol_explore.types import Action, Array, TimeStep

DIGITS = 4  # to choose from at every step


class LockState(NamedTuple):
    time: Array  # [] steps so far
    right: Array  # [] whether all digits so far were right


class Lock:
    """The right digit at step t is t mod 4; an observation is a one-hot of the step, or of the hall."""

    def __init__(self, length: int = 8) -> None:
        self.length = length

    @property
    def spec(self) -> EnvSpec:
        observation = jax.ShapeDtypeStruct((self.length + 2,), np.float32)
        return EnvSpec("examples.lock:Lock", observation, ActionSpec(discrete=(DIGITS,)), max_steps=self.length)

    def reset(self, key: Array) -> tuple[LockState, TimeStep]:
        state = LockState(jnp.zeros((), jnp.int32), jnp.array(True))
        return state, self._timestep(state, is_first=jnp.array(True))

    def step(self, state: LockState, action: Action) -> tuple[LockState, TimeStep]:
        right = state.right & (action.discrete[0] == state.time % DIGITS)
        state = LockState(state.time + 1, right)
        return state, self._timestep(state, is_first=jnp.array(False))

    def _timestep(self, state: LockState, is_first: Array) -> TimeStep:
        is_last = state.time == self.length
        reward = (is_last & state.right).astype(jnp.float32)
        place = jnp.where(state.right, state.time, self.length + 1)
        observation = jax.nn.one_hot(place, self.length + 2)
        return TimeStep(observation, reward, jnp.where(is_last, 0.0, 1.0), is_first, is_last)

    def render(self, state: LockState) -> np.ndarray:
        """A row of squares: green up to where one is, or all grey in the hall."""
        picture = np.full((24, 24 * (self.length + 1), 3), 60, np.uint8)
        if state.right:
            picture[:, : 24 * (int(state.time) + 1)] = (60, 160, 80)
        picture[:, ::24] = 20
        return picture
