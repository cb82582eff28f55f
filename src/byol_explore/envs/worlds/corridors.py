"""`corridor-N` and `memory-N`: long ways in which random actions get nowhere, the second with something to remember."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.environment import Environment, EnvParams
from xminigrid.envs.minigrid.memory import Memory
from xminigrid.types import AgentState, EnvCarry, State

from byol_explore.envs.worlds.rooms import FLOOR, GOAL, GOAL_ENCODING, RULE_ENCODING, WALL
from byol_explore.types import Array

LEG = 9  # cells of a corridor between two turns
STEPS_PER_LEG = 30
EAST = 1


class Corridor(Environment[EnvParams, EnvCarry]):
    """A corridor folded into N legs, one cell wide; the agent starts at one end, the goal lies at the other."""

    def __init__(self, legs: int) -> None:
        self.legs = legs
        self._layout = corridor_layout(legs)

    def default_params(self, **kwargs: Any) -> EnvParams:
        height, width, _ = self._layout.shape
        params = EnvParams(height=height, width=width, view_size=7, max_steps=STEPS_PER_LEG * self.legs)
        return params.replace(**kwargs)

    def _generate_problem(self, params: EnvParams, key: Array) -> State[EnvCarry]:
        key, direction_key = jax.random.split(key)
        return State(
            key=key,
            step_num=jnp.asarray(0),
            grid=jnp.asarray(self._layout),
            agent=AgentState(position=jnp.asarray((1, 1)), direction=jax.random.randint(direction_key, (), 0, 4)),
            goal_encoding=jnp.asarray(GOAL_ENCODING),
            rule_encoding=jnp.asarray(RULE_ENCODING),
            carry=EnvCarry(),
        )


def corridor_layout(legs: int) -> np.ndarray:
    """[2N + 1, LEG + 2, 2] tiles and colours; gaps between the legs are at their right and left ends in turn."""
    layout = np.empty((2 * legs + 1, LEG + 2, 2), np.uint8)
    layout[:] = WALL
    layout[1::2, 1 : LEG + 1] = FLOOR
    ends = [LEG if leg % 2 == 0 else 1 for leg in range(legs)]
    for leg, end in enumerate(ends[:-1]):
        layout[2 * leg + 2, end] = FLOOR
    layout[2 * legs - 1, ends[-1]] = GOAL
    return layout


class MemoryFromStart(Memory):
    """MiniGrid's Memory with the agent always in the room of the object that it has to remember, at the far end."""

    def default_params(self, **kwargs: Any) -> EnvParams:
        return super().default_params(**{"max_steps": 4 * kwargs["width"], **kwargs})

    def _generate_problem(self, params: EnvParams, key: Array) -> Any:
        state = super()._generate_problem(params, key)
        return state.replace(
            agent=AgentState(position=jnp.asarray((params.height // 2, 1)), direction=jnp.asarray(EAST))
        )
