"""An environment of your own: a combination lock that pays only after the right digits in the right order.

python examples/own_environment.py
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import byol_explore
from byol_explore.envs.base import ActionSpec, EnvSpec
from byol_explore.types import Action, Array, TimeStep

LENGTH, DIGITS = 12, 4


class LockState(NamedTuple):
    opened: Array  # [] digits entered so far
    time: Array  # []


class Lock:
    """A wrong digit closes the lock again. Random digits open it once in 4^12 tries."""

    spec = EnvSpec(
        name="lock",
        observation=jax.ShapeDtypeStruct((LENGTH + 1,), jnp.float32),
        action=ActionSpec(discrete=(DIGITS,)),
        max_steps=4 * LENGTH,
    )
    combination = np.random.default_rng(0).integers(0, DIGITS, LENGTH)

    def reset(self, key: Array) -> tuple[LockState, TimeStep]:
        state = LockState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return state, self._timestep(state)._replace(is_first=jnp.asarray(True))

    def step(self, state: LockState, action: Action) -> tuple[LockState, TimeStep]:
        right = action.discrete[0] == jnp.asarray(self.combination)[state.opened]
        state = LockState(jnp.where(right, state.opened + 1, 0), state.time + 1)
        return state, self._timestep(state)

    def render(self, state: LockState) -> np.ndarray:
        picture = np.full((20, 20 * LENGTH, 3), 60, np.uint8)
        picture[:, : 20 * int(state.opened)] = (60, 200, 60)
        return picture

    def _timestep(self, state: LockState) -> TimeStep:
        is_open = state.opened == LENGTH
        return TimeStep(
            observation=jax.nn.one_hot(state.opened, LENGTH + 1),
            reward=is_open.astype(jnp.float32),
            discount=1.0 - is_open.astype(jnp.float32),
            is_first=jnp.asarray(False),
            is_last=is_open | (state.time == self.spec.max_steps),
        )


if __name__ == "__main__":
    byol_explore.register_env("lock", Lock)
    config = dataclasses.replace(byol_explore.make_config(), env="lock", steps=1_000_000)
    summary = byol_explore.train(config, "runs/lock")
    print(f"success {summary['success_rate']:.2f} after {summary['steps']:,} steps")
