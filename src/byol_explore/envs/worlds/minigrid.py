"""XLand-MiniGrid worlds as environments: everything that package registers, and our own on its engine."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.core.constants import NUM_ACTIONS, Tiles
from xminigrid.environment import Environment as XEnvironment
from xminigrid.environment import EnvParams
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.keys import Key, Keys
from byol_explore.spaces import ActionSpec, Grid
from byol_explore.types import Action, Array, TimeStep

SYMBOLS = (16, 16)  # of tiles and of colours: four bits each, the engine has fewer (13 and 12)
_DOORS = (Tiles.DOOR_CLOSED, Tiles.DOOR_LOCKED, Tiles.DOOR_OPEN)
_CHARACTERS = {Tiles.WALL: "#", Tiles.FLOOR: ".", Tiles.GOAL: "G", **dict.fromkeys(_DOORS, "D")}


_WORDS = ("go forward", "turn right", "turn left", "pick up", "put down", "open or close")  # in the engine's order
_KEYS = ("ArrowUp", "ArrowRight", "ArrowLeft", "KeyP", "KeyD", "Space")


class MiniGrid:
    """An XLand-MiniGrid environment under our protocol. Observations are (tile, colour) cells, bytes [V, V, 2].

    A smaller view than `view_size` is padded with unseen cells, so that tasks of several views fit one network;
    the agent stays at the middle of the bottom row.
    """

    def __init__(self, name: str, env: XEnvironment[Any, Any], params: EnvParams, view_size: int | None = None) -> None:
        self.env, self.params = env, params
        self.view_size = params.view_size if view_size is None else view_size
        assert params.max_steps is not None
        observation = Grid(self.view_size, self.view_size, SYMBOLS)
        self._constants = self._constant_encodings()
        self.floor = (params.height, params.width)
        self.spec = EnvSpec(name, observation, ActionSpec(discrete=(int(NUM_ACTIONS),)), params.max_steps)

    @property
    def keys(self) -> Keys:
        """How people play it."""
        named = enumerate(zip(_KEYS, _WORDS, strict=True))
        return Keys(tuple(Key((code,), words, discrete=((0, action),)) for action, (code, words) in named))

    def with_view(self, view_size: int) -> "MiniGrid":
        """With a view of at least its own size."""
        return self if view_size == self.view_size else MiniGrid(self.spec.name, self.env, self.params, view_size)

    def reset(self, key: Array) -> tuple[Any, TimeStep]:
        inner = self.env.reset(self.params, key)
        return inner, self._timestep(inner)

    def step(self, state: Any, action: Action) -> tuple[Any, TimeStep]:
        known = state.replace(state=state.state.replace(**self._constants))
        inner = self.env.step(self.params, known, action.discrete[0])
        return inner, self._timestep(inner)

    def _constant_encodings(self) -> dict[str, np.ndarray]:
        """Goal and rules where they are the same in every episode.

        The engine tells goals and rules apart with a switch. A batched switch computes all of its branches, about
        thirty of them; on a constant the compiler keeps the one that is taken.
        """
        names = ("goal_encoding", "rule_encoding")

        def encodings(key: Array) -> list[Array]:
            state = self.env.reset(self.params, key).state
            return [getattr(state, name) for name in names]

        program = jax.make_jaxpr(encodings)(jax.random.key(0))
        known = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        outputs = zip(names, program.jaxpr.outvars, strict=True)
        return {name: np.asarray(known[output]) for name, output in outputs if output in known}

    def place(self, state: Any) -> Array:
        """[2] row and column."""
        return state.state.agent.position

    def floor_plan(self) -> list[str]:
        """Of one episode; what lies elsewhere in the next one is drawn where it is in this one."""
        state = jax.jit(lambda key: self.env.reset(self.params, key).state)(jax.random.key(0))
        tiles = np.asarray(state.grid)[..., 0]
        return ["".join(_CHARACTERS.get(int(tile), "o") for tile in row) for row in tiles]

    def render(self, state: Any) -> np.ndarray:
        return np.asarray(self.env.render(self.params, state))

    def _padded(self, view: Array) -> Array:
        """Of the size that the network reads."""
        missing = self.view_size - self.params.view_size
        return jnp.pad(view.astype(jnp.uint8), ((missing, 0), (missing // 2, missing - missing // 2), (0, 0)))

    def _timestep(self, inner: XTimeStep[Any]) -> TimeStep:
        return TimeStep(
            observation=self._padded(cast(Array, inner.observation)),
            reward=inner.reward.astype(jnp.float32),
            discount=inner.discount.astype(jnp.float32),
            is_first=inner.first(),
            is_last=inner.last(),
        )
