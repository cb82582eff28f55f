"""XLand-MiniGrid under our protocol; rooms-N, corridor-N, memory-N."""

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.core.constants import NUM_ACTIONS, Colors, Tiles
from xminigrid.core.goals import AgentOnTileGoal
from xminigrid.core.rules import EmptyRule
from xminigrid.environment import Environment, EnvParams
from xminigrid.envs.minigrid.memory import Memory
from xminigrid.types import AgentState, EnvCarry, State
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.interface import EnvSpec, JitEnvironment, Key, Keyboard
from byol_explore.spaces import ActionSpec, Grid
from byol_explore.types import UNKNOWN_SUCCESS, Action, Array, TimeStep

SYMBOLS = (16, 16)  # of tiles and of colours: four bits each, the engine has fewer (13 and 12)
_DOORS = (Tiles.DOOR_CLOSED, Tiles.DOOR_LOCKED, Tiles.DOOR_OPEN)
_CHARACTERS = {Tiles.WALL: "#", Tiles.FLOOR: ".", Tiles.GOAL: "G", **dict.fromkeys(_DOORS, "D")}
_LABELS = {  # of the actions by key, in the engine's order
    "ArrowUp": "go forward", "ArrowRight": "turn right", "ArrowLeft": "turn left", "KeyP": "pick up",
    "KeyD": "put down", "Space": "open or close",
}  # fmt: skip


class MiniGrid(JitEnvironment):
    """An XLand-MiniGrid environment under our protocol. Observations are (tile, colour) cells, bytes [V, V, 2].

    If `view_size` is larger than the engine's view, the view is padded with unseen cells, so that tasks of several
    views fit one network; the agent stays in the middle of the bottom row.
    """

    def __init__(
        self, name: str, env: Environment[Any, Any], params: EnvParams | None = None, view_size: int | None = None
    ) -> None:
        self.env = env
        self.params: EnvParams = env.default_params() if params is None else params
        self.view_size = view_size or self.params.view_size
        assert self.params.max_steps is not None
        observation = Grid(self.view_size, self.view_size, SYMBOLS)
        self._constants = self._constant_encodings()
        self.floor_shape = (self.params.height, self.params.width)
        self.spec = EnvSpec(name, observation, ActionSpec(discrete=(int(NUM_ACTIONS),)), self.params.max_steps)

    @property
    def keys(self) -> Keyboard:
        labels = enumerate(_LABELS.items())
        return Keyboard(tuple(Key((code,), label, discrete=((0, action),)) for action, (code, label) in labels))

    def with_view(self, view_size: int) -> "MiniGrid":
        return self if view_size == self.view_size else MiniGrid(self.spec.name, self.env, self.params, view_size)

    def reset(self, key: Array) -> tuple[Any, TimeStep]:
        inner = self.env.reset(self.params, key)
        return inner, self._timestep(inner)

    def step(self, state: Any, action: Action) -> tuple[Any, TimeStep]:
        known = state.replace(state=state.state.replace(**self._constants))
        inner = self.env.step(self.params, known, action.discrete[0])
        unchanged = {name: getattr(state.state, name) for name in self._constants}
        inner = inner.replace(state=inner.state.replace(**unchanged))
        return inner, self._timestep(inner)

    def _constant_encodings(self) -> dict[str, np.ndarray]:
        """Return the encodings of goal and rules that are the same in every episode, by field of the engine's state."""
        # The engine distinguishes goals and rules by a switch. A batched switch computes all of its about thirty
        # branches; of a constant one the compiler keeps a single branch. It loops over rules: empty ones are left out,
        # because the loop hides from the compiler that its rules are constant.
        names = ("goal_encoding", "rule_encoding")

        def encodings(key: Array) -> list[Array]:
            state = self.env.reset(self.params, key).state
            return [getattr(state, name) for name in names]

        program = jax.make_jaxpr(encodings)(jax.random.key(0))
        known = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        outputs = zip(names, program.jaxpr.outvars, strict=True)
        constants = {name: np.asarray(known[output]) for name, output in outputs if output in known}
        if "rule_encoding" in constants:
            rules = constants["rule_encoding"]
            constants["rule_encoding"] = rules[rules[:, 0] != RULE_ENCODING[0, 0]]
        return constants

    def position(self, state: Any) -> Array:
        return state.state.agent.position

    def floor_plan(self) -> list[str]:
        """Return the plan of one episode; doors and objects may lie elsewhere in the next one."""
        state = jax.jit(lambda key: self.env.reset(self.params, key).state)(jax.random.key(0))
        tiles = np.asarray(state.grid)[..., 0]
        return ["".join(_CHARACTERS.get(int(tile), "o") for tile in row) for row in tiles]

    def render(self, state: Any) -> np.ndarray:
        return np.asarray(self.env.render(self.params, state))

    def _pad(self, view: Array) -> Array:
        """Pad the engine's view to [V, V, channels] uint8."""
        missing = self.view_size - self.params.view_size
        return jnp.pad(view.astype(jnp.uint8), ((missing, 0), (missing // 2, missing - missing // 2), (0, 0)))

    def _timestep(self, inner: XTimeStep[Any]) -> TimeStep:
        return TimeStep(
            observation=self._pad(cast(Array, inner.observation)),
            reward=inner.reward.astype(jnp.float32),
            discount=inner.discount.astype(jnp.float32),
            is_first=inner.first(),
            is_last=inner.last(),
            success=jnp.full((), UNKNOWN_SUCCESS, jnp.int8),
        )


ROOM_WIDTH, ROOM_HEIGHT = 4, 5  # inside the walls
STEPS_PER_ROOM = 20
DIRECTIONS = 4  # of the agent
DOOR_COLORS = (Colors.RED, Colors.GREEN, Colors.BLUE, Colors.PURPLE, Colors.YELLOW, Colors.GREY)

WALL = (Tiles.WALL, Colors.GREY)
FLOOR = (Tiles.FLOOR, Colors.BLACK)
GOAL = (Tiles.GOAL, Colors.GREEN)
GOAL_ENCODING = np.asarray(AgentOnTileGoal(tile=jnp.array(GOAL, jnp.uint8)).encode())
RULE_ENCODING = np.asarray(EmptyRule().encode())[None]


def random_integers(key: Array, sizes: Sequence[int]) -> Array:
    """Draw [n] int32, uniform below each of the sizes."""
    # One draw: every `randint` is two generators in the compiled program, which took a tenth of all its fusions.
    limits = np.asarray(sizes, np.float32)
    return jnp.floor(jax.random.uniform(key, limits.shape) * limits).astype(jnp.int32)


class FixedLayout(Environment[EnvParams, EnvCarry]):
    """A grid with a fixed layout [H, W, 2] of tiles and colours; the goal is a green cell."""

    def __init__(self, layout: np.ndarray, max_steps: int) -> None:
        self._layout, self._max_steps = layout, max_steps

    def default_params(self, **kwargs: Any) -> EnvParams:
        height, width, _ = self._layout.shape
        return EnvParams(height=height, width=width, view_size=7, max_steps=self._max_steps).replace(**kwargs)

    def _state(self, key: Array, grid: Array, position: Array, direction: Array) -> State[EnvCarry]:
        """Return the state of an episode that begins at `position` [2]."""
        return State(
            key=key,
            step_num=jnp.asarray(0),
            grid=grid,
            agent=AgentState(position=position, direction=direction),
            goal_encoding=jnp.asarray(GOAL_ENCODING),
            rule_encoding=jnp.asarray(RULE_ENCODING),
            carry=EnvCarry(),
        )


class Rooms(FixedLayout):
    """N rooms in a row, like MiniGrid's MultiRoom.

    All doors are closed, of random colour and in random rows. The agent starts anywhere in the first room; the goal
    lies anywhere in the last.
    """

    def __init__(self, rooms: int) -> None:
        self.rooms = rooms
        layout = np.empty((ROOM_HEIGHT + 2, rooms * (ROOM_WIDTH + 1) + 1, 2), np.uint8)
        layout[:] = WALL
        for room in range(rooms):
            left = room * (ROOM_WIDTH + 1) + 1
            layout[1 : ROOM_HEIGHT + 1, left : left + ROOM_WIDTH] = FLOOR
        super().__init__(layout, STEPS_PER_ROOM * rooms)

    def _generate_problem(self, params: EnvParams, key: Array) -> State[EnvCarry]:
        key, draw_key = jax.random.split(key)
        doors = self.rooms - 1
        sizes = [ROOM_HEIGHT] * doors + [len(DOOR_COLORS)] * doors + [ROOM_WIDTH * ROOM_HEIGHT] * 2 + [DIRECTIONS]
        draws = random_integers(draw_key, sizes)
        door_row, color, place, direction = draws[:doors] + 1, draws[doors : 2 * doors], draws[-3:-1], draws[-1]
        door_column = (ROOM_WIDTH + 1) * np.arange(1, self.rooms)
        door_color = jnp.asarray(DOOR_COLORS, jnp.uint8)[color]
        door = jnp.stack([jnp.full((doors,), Tiles.DOOR_CLOSED, jnp.uint8), door_color], axis=-1)
        row, column = place // ROOM_WIDTH + 1, place % ROOM_WIDTH + 1
        last_room = (self.rooms - 1) * (ROOM_WIDTH + 1)
        grid = jnp.asarray(self._layout).at[door_row, door_column].set(door)
        grid = grid.at[row[1], column[1] + last_room].set(jnp.array(GOAL, jnp.uint8))
        return self._state(key, grid, jnp.stack([row[0], column[0]]), direction)


LEG = 9  # cells of a corridor between two turns
STEPS_PER_LEG = 30
EAST = 1


class Corridor(FixedLayout):
    """A corridor folded into N legs, one cell wide; the agent starts at one end, the goal lies at the other."""

    def __init__(self, legs: int) -> None:
        super().__init__(corridor_layout(legs), STEPS_PER_LEG * legs)

    def _generate_problem(self, params: EnvParams, key: Array) -> State[EnvCarry]:
        key, draw_key = jax.random.split(key)
        direction = random_integers(draw_key, [DIRECTIONS])[0]
        return self._state(key, jnp.asarray(self._layout), jnp.asarray((1, 1)), direction)


def corridor_layout(legs: int) -> np.ndarray:
    """Return [2N + 1, LEG + 2, 2] tiles and colours; legs are connected at their right and left ends alternately."""
    layout = np.empty((2 * legs + 1, LEG + 2, 2), np.uint8)
    layout[:] = WALL
    layout[1::2, 1 : LEG + 1] = FLOOR
    ends = (LEG, 1)  # columns of the right and left end
    for leg in range(legs - 1):
        layout[2 * leg + 2, ends[leg % 2]] = FLOOR
    layout[2 * legs - 1, ends[(legs - 1) % 2]] = GOAL
    return layout


class MemoryFromStart(Memory):
    """MiniGrid's Memory in which the agent always starts in the room with the object, far from the choice."""

    def default_params(self, **kwargs: Any) -> EnvParams:
        return super().default_params(**{"max_steps": 4 * kwargs["width"], **kwargs})

    def _generate_problem(self, params: EnvParams, key: Array) -> Any:
        state = super()._generate_problem(params, key)
        return state.replace(
            agent=AgentState(position=jnp.asarray((params.height // 2, 1)), direction=jnp.asarray(EAST))
        )
