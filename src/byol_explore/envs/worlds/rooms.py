"""`rooms-N`: rooms in a row behind closed doors, a task in which random actions never find the reward."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.core.constants import Colors, Tiles
from xminigrid.core.goals import AgentOnTileGoal
from xminigrid.core.rules import EmptyRule
from xminigrid.environment import Environment, EnvParams
from xminigrid.types import AgentState, EnvCarry, State

from byol_explore.types import Array

ROOM_WIDTH, ROOM_HEIGHT = 4, 5  # inside the walls
STEPS_PER_ROOM = 20
DOOR_COLORS = (Colors.RED, Colors.GREEN, Colors.BLUE, Colors.PURPLE, Colors.YELLOW, Colors.GREY)

WALL = (Tiles.WALL, Colors.GREY)
FLOOR = (Tiles.FLOOR, Colors.BLACK)
GOAL = (Tiles.GOAL, Colors.GREEN)
GOAL_ENCODING = np.asarray(AgentOnTileGoal(tile=jnp.array(GOAL, jnp.uint8)).encode())
RULE_ENCODING = np.asarray(EmptyRule().encode())[None]


class Rooms(Environment[EnvParams, EnvCarry]):
    """N rooms like MiniGrid's MultiRoom: doors of random colour at random heights, all closed; the agent starts
    somewhere in the first room, the goal lies somewhere in the last.
    """

    def __init__(self, rooms: int) -> None:
        self.rooms = rooms
        width = rooms * (ROOM_WIDTH + 1) + 1
        layout = np.empty((ROOM_HEIGHT + 2, width, 2), np.uint8)
        layout[:] = WALL
        for room in range(rooms):
            left = room * (ROOM_WIDTH + 1) + 1
            layout[1 : ROOM_HEIGHT + 1, left : left + ROOM_WIDTH] = FLOOR
        self._layout = layout

    def default_params(self, **kwargs: Any) -> EnvParams:
        height, width, _ = self._layout.shape
        params = EnvParams(height=height, width=width, view_size=7, max_steps=STEPS_PER_ROOM * self.rooms)
        return params.replace(**kwargs)

    def _generate_problem(self, params: EnvParams, key: Array) -> State[EnvCarry]:
        key, door_key, color_key, place_key, direction_key = jax.random.split(key, 5)
        doors = self.rooms - 1
        door_row = jax.random.randint(door_key, (doors,), 1, ROOM_HEIGHT + 1)
        door_column = (ROOM_WIDTH + 1) * np.arange(1, self.rooms)
        color = jnp.asarray(DOOR_COLORS, jnp.uint8)[jax.random.randint(color_key, (doors,), 0, len(DOOR_COLORS))]
        door = jnp.stack([jnp.full((doors,), Tiles.DOOR_CLOSED, jnp.uint8), color], axis=-1)
        place = jax.random.randint(place_key, (2,), 0, ROOM_WIDTH * ROOM_HEIGHT)
        row, column = place // ROOM_WIDTH + 1, place % ROOM_WIDTH + 1
        last_room = (self.rooms - 1) * (ROOM_WIDTH + 1)
        grid = jnp.asarray(self._layout).at[door_row, door_column].set(door)
        grid = grid.at[row[1], column[1] + last_room].set(jnp.array(GOAL, jnp.uint8))
        return State(
            key=key,
            step_num=jnp.asarray(0),
            grid=grid,
            agent=AgentState(
                position=jnp.stack([row[0], column[0]]),
                direction=jax.random.randint(direction_key, (), 0, 4),
            ),
            goal_encoding=jnp.asarray(GOAL_ENCODING),
            rule_encoding=jnp.asarray(RULE_ENCODING),
            carry=EnvCarry(),
        )
