"""A user-defined environment inside jit: a combination lock, with a reward after the right sequence of digits.

    byol-explore train --env examples.lock:Lock

Run directories keep the import path, so every other command finds the environment.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.interface import EnvSpec, JitEnvironment
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, TimeStep

DIGITS = 4  # to choose from at every step


class LockState(NamedTuple):
    solved: Array  # [] right digits in a row
    time: Array  # []


class Lock(JitEnvironment):
    """A wrong digit resets the lock. Random digits open a lock of length 12 once in 4^12 tries."""

    def __init__(self, length: int = 12) -> None:
        self.length = length
        self.combination = np.random.default_rng(0).integers(0, DIGITS, length)
        action = ActionSpec(discrete=(DIGITS,))
        self.spec = EnvSpec("examples.lock:Lock", Vector(length + 1), action, max_steps=4 * length)

    def reset(self, key: Array) -> tuple[LockState, TimeStep]:
        state = LockState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._timestep(state)._replace(is_first=jnp.asarray(True))

    def step(self, state: LockState, action: Action) -> tuple[LockState, TimeStep]:
        right = action.discrete[0] == jnp.asarray(self.combination)[state.solved]
        state = LockState(jnp.where(right, state.solved + 1, 0), state.time + 1)
        return state, self._timestep(state)

    def render(self, state: LockState) -> np.ndarray:
        """Return an image: a row of squares, green for each right digit."""
        image = np.full((20, 20 * self.length, 3), 60, np.uint8)
        image[:, : 20 * int(state.solved)] = (60, 200, 60)
        return image

    def _timestep(self, state: LockState) -> TimeStep:
        is_open = state.solved == self.length
        return TimeStep(
            observation=jax.nn.one_hot(state.solved, self.length + 1),
            reward=is_open.astype(jnp.float32),
            discount=1.0 - is_open.astype(jnp.float32),
            is_first=jnp.asarray(False),
            is_last=is_open | (state.time == self.spec.max_steps),
            success=is_open.astype(jnp.int8),
        )
