"""`noisy-rooms-N` and its like: the rooms, with a layer of symbols over what is seen that has no meaning at all.

Worlds, rewards and what actions do are those of `rooms-N`, for the same keys and actions exactly. Only observations
have a third number in each cell, which is 0 or one of 15 symbols:

    quiet-rooms-N    always 0: the others without their noise
    moving-rooms-N   1 where something moves about that nobody can touch: two in each room, on Brownian ways
    noisy-rooms-N    with probability 0.25 a random symbol, at every step and in every cell anew
    tv-rooms-N       the same, but only after the one action that does nothing (to put down what one does not have):
                     a television that the agent may switch on and watch, and 0 after any other action

Whoever is curious about what cannot be predicted will watch. Episodes have stages: the rooms that they enter.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.core.observation import transparent_field_of_view
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.worlds.minigrid import SYMBOLS, MiniGrid
from byol_explore.envs.worlds.rooms import ROOM_HEIGHT, ROOM_WIDTH, Rooms
from byol_explore.spaces import Grid
from byol_explore.types import Action, Array, PyTree, TimeStep

NOISE_SYMBOLS = 16
SHARE = 0.25  # of the cells that show a symbol
MOVERS = 2  # in each room
NO_OP = 4  # to put down what one carries: in the rooms there is nothing to carry


class Noise(Protocol):
    """What the third layer shows."""

    def start(self, key: Array) -> PyTree:
        """Its state at the beginning of an episode."""
        ...

    def move(self, state: PyTree, action: Action, key: Array) -> PyTree:
        """Its state after an action."""
        ...

    def show(self, state: PyTree, world: XTimeStep[Any], size: int, key: Array) -> Array:
        """[size, size] in an agent's view of a world."""
        ...


class Quiet:
    """Nothing."""

    def start(self, key: Array) -> PyTree:
        return ()

    def move(self, state: PyTree, action: Action, key: Array) -> PyTree:
        return state

    def show(self, state: PyTree, world: XTimeStep[Any], size: int, key: Array) -> Array:
        return jnp.zeros((size, size), jnp.uint8)


class Static(Quiet):
    """Random symbols, everywhere and always."""

    def show(self, state: PyTree, world: XTimeStep[Any], size: int, key: Array) -> Array:
        where, what = jax.random.split(key)
        symbols = jax.random.randint(what, (size, size), 1, NOISE_SYMBOLS)
        return jnp.where(jax.random.bernoulli(where, SHARE, (size, size)), symbols, 0).astype(jnp.uint8)


class Television(Static):
    """The same while it is on, which is its state."""

    def start(self, key: Array) -> Array:
        return jnp.zeros((), bool)

    def move(self, state: Array, action: Action, key: Array) -> Array:
        return action.discrete[0] == NO_OP

    def show(self, state: Array, world: XTimeStep[Any], size: int, key: Array) -> Array:
        return jnp.where(state, super().show(state, world, size, key), 0).astype(jnp.uint8)


class Movers(Quiet):
    """Places [movers, 2], each in its room; at every step each goes to a cell beside, or aslant, or stays."""

    def __init__(self, rooms: int) -> None:
        left = np.repeat(np.arange(rooms), MOVERS) * (ROOM_WIDTH + 1) + 1
        self._first = np.stack([np.ones_like(left), left], axis=1)
        self._last = self._first + np.asarray((ROOM_HEIGHT - 1, ROOM_WIDTH - 1))

    def start(self, key: Array) -> Array:
        return jax.random.randint(key, self._first.shape, self._first, self._last + 1)

    def move(self, state: Array, action: Action, key: Array) -> Array:
        return jnp.clip(state + jax.random.randint(key, state.shape, -1, 2), self._first, self._last)

    def show(self, state: Array, world: XTimeStep[Any], size: int, key: Array) -> Array:
        cells = jnp.zeros_like(world.state.grid).at[state[:, 0], state[:, 1]].set(1)
        return transparent_field_of_view(cells, world.state.agent, size, size)[..., 0]


class Disturbed(NamedTuple):
    """A world, and the noise over it."""

    world: XTimeStep[Any]
    noise: PyTree
    key: Array  # of the noise to come
    room: Array  # [] the farthest that the episode has been in, from 0


class NoisyRooms(MiniGrid):
    """Rooms with noise over them. Pictures show the rooms alone."""

    def __init__(self, name: str, rooms: int, noise: Noise, view_size: int | None = None) -> None:
        env = Rooms(rooms)
        super().__init__(name, env, env.default_params(), view_size)
        self.rooms, self.noise = rooms, noise
        self.spec = self.spec._replace(observation=Grid(self.view_size, self.view_size, (*SYMBOLS, NOISE_SYMBOLS)))
        self.stages = tuple(f"room {room}" for room in range(2, rooms + 1))

    def with_view(self, view_size: int) -> "NoisyRooms":
        return self if view_size == self.view_size else NoisyRooms(self.spec.name, self.rooms, self.noise, view_size)

    def reset(self, key: Array) -> tuple[Disturbed, TimeStep]:
        world, timestep = super().reset(key)
        noise_key, start_key = jax.random.split(jax.random.fold_in(key, 1))
        state = Disturbed(world, self.noise.start(start_key), noise_key, jnp.zeros((), jnp.int32))
        return self._seen(state, timestep)

    def step(self, state: Disturbed, action: Action) -> tuple[Disturbed, TimeStep]:
        world, timestep = super().step(state.world, action)
        key, move_key = jax.random.split(state.key)
        room = jnp.maximum(state.room, super().place(world)[1] // (ROOM_WIDTH + 1))
        return self._seen(Disturbed(world, self.noise.move(state.noise, action, move_key), key, room), timestep)

    def _seen(self, state: Disturbed, timestep: TimeStep) -> tuple[Disturbed, TimeStep]:
        key, show_key = jax.random.split(state.key)
        layer = self.noise.show(state.noise, state.world, self.params.view_size, show_key)
        seen = jnp.concatenate([timestep.observation, self._padded(layer[..., None])], axis=-1)
        return state._replace(key=key), timestep._replace(observation=seen)

    def place(self, state: Disturbed) -> Array:
        return super().place(state.world)

    def reached(self, state: Disturbed) -> Array:
        """[rooms - 1] bool."""
        return state.room >= jnp.arange(1, self.rooms)

    def render(self, state: Disturbed) -> np.ndarray:
        return super().render(state.world)
