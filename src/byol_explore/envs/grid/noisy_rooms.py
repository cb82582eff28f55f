"""Rooms with an extra layer of meaningless symbols over the observation: `noisy-rooms-N` and the like.

Grid, rewards and effects of actions are exactly those of `rooms-N` for the same keys and actions. Only observations
have a third number in each cell, which is 0 or one of 15 symbols:

    quiet-rooms-N    always 0: the control without noise
    moving-rooms-N   1 where an object moves that has no effect: two in each room, in Brownian motion
    noisy-rooms-N    with probability 0.25 a random symbol, drawn again at every step and in every cell
    tv-rooms-N       the same, but only after the action without effect (put down with empty hands): a television that
                     the agent may switch on and watch; 0 after any other action

An agent that is rewarded for unpredictable observations stays and watches. Episodes have stages: the rooms entered.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from xminigrid.core.observation import transparent_field_of_view
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.grid.minigrid import ROOM_HEIGHT, ROOM_WIDTH, SYMBOLS, MiniGrid, Rooms
from byol_explore.spaces import Grid
from byol_explore.types import Action, Array, PyTree, TimeStep

NOISE_SYMBOLS = 16
NOISE_PROBABILITY = 0.25  # that a cell shows a symbol
OBJECTS_PER_ROOM = 2
NO_OP = 4  # put down, which has no effect: the rooms have nothing to carry


class Noise:
    """The third layer of observations; this base class shows none."""

    def reset(self, key: Array) -> PyTree:
        """Return its state at the start of an episode."""
        return ()

    def step(self, state: PyTree, action: Action, key: Array) -> PyTree:
        """Return its state after an action."""
        return state

    def observe(self, state: PyTree, world: XTimeStep[Any], size: int, key: Array) -> Array:
        """Return the layer [size, size] uint8 in the agent's view."""
        return jnp.zeros((size, size), jnp.uint8)


class RandomSymbols(Noise):
    """Random symbols everywhere, at every step."""

    def observe(self, state: PyTree, world: XTimeStep[Any], size: int, key: Array) -> Array:
        mask_key, symbol_key = jax.random.split(key)
        symbols = jax.random.randint(symbol_key, (size, size), 1, NOISE_SYMBOLS)
        return jnp.where(jax.random.bernoulli(mask_key, NOISE_PROBABILITY, (size, size)), symbols, 0).astype(jnp.uint8)


class NoisyTV(RandomSymbols):
    """Random symbols while the television is on. The state is [] bool: True if it is on."""

    def reset(self, key: Array) -> Array:
        return jnp.zeros((), bool)

    def step(self, state: Array, action: Action, key: Array) -> Array:
        return action.discrete[0] == NO_OP

    def observe(self, state: Array, world: XTimeStep[Any], size: int, key: Array) -> Array:
        return jnp.where(state, super().observe(state, world, size, key), 0).astype(jnp.uint8)


class MovingObjects(Noise):
    """Objects that stay in their room and move to a neighbouring cell, also diagonally, or stay at every step.

    The state [objects, 2] is their rows and columns.
    """

    def __init__(self, rooms: int) -> None:
        left = np.repeat(np.arange(rooms), OBJECTS_PER_ROOM) * (ROOM_WIDTH + 1) + 1
        self._first = np.stack([np.ones_like(left), left], axis=1)
        self._last = self._first + np.asarray((ROOM_HEIGHT - 1, ROOM_WIDTH - 1))

    def reset(self, key: Array) -> Array:
        return jax.random.randint(key, self._first.shape, self._first, self._last + 1)

    def step(self, state: Array, action: Action, key: Array) -> Array:
        return jnp.clip(state + jax.random.randint(key, state.shape, -1, 2), self._first, self._last)

    def observe(self, state: Array, world: XTimeStep[Any], size: int, key: Array) -> Array:
        cells = jnp.zeros_like(world.state.grid).at[state[:, 0], state[:, 1]].set(1)
        return transparent_field_of_view(cells, world.state.agent, size, size)[..., 0]


class NoisyState(NamedTuple):
    """State of the rooms and of the noise."""

    world: XTimeStep[Any]
    noise: PyTree
    key: Array  # for later noise
    room: Array  # [] int32, the farthest room of the episode so far, from 0


class NoisyRooms(MiniGrid):
    """Rooms with noise in the observations; rendered pictures show the rooms alone."""

    def __init__(self, name: str, rooms: int, noise: Noise, view_size: int | None = None) -> None:
        super().__init__(name, Rooms(rooms), view_size=view_size)
        self.rooms, self.noise = rooms, noise
        self.spec = self.spec._replace(observation=Grid(self.view_size, self.view_size, (*SYMBOLS, NOISE_SYMBOLS)))
        self.stages = tuple(f"room {room}" for room in range(2, rooms + 1))

    def with_view(self, view_size: int) -> "NoisyRooms":
        return self if view_size == self.view_size else NoisyRooms(self.spec.name, self.rooms, self.noise, view_size)

    def reset(self, key: Array) -> tuple[NoisyState, TimeStep]:
        world, timestep = super().reset(key)
        noise_key, start_key = jax.random.split(jax.random.fold_in(key, 1))
        state = NoisyState(world, self.noise.reset(start_key), noise_key, jnp.zeros((), jnp.int32))
        return self._add_noise(state, timestep)

    def step(self, state: NoisyState, action: Action) -> tuple[NoisyState, TimeStep]:
        world, timestep = super().step(state.world, action)
        key, move_key = jax.random.split(state.key)
        room = jnp.maximum(state.room, super().position(world)[1] // (ROOM_WIDTH + 1))
        return self._add_noise(NoisyState(world, self.noise.step(state.noise, action, move_key), key, room), timestep)

    def _add_noise(self, state: NoisyState, timestep: TimeStep) -> tuple[NoisyState, TimeStep]:
        key, noise_key = jax.random.split(state.key)
        layer = self.noise.observe(state.noise, state.world, self.params.view_size, noise_key)
        observation = jnp.concatenate([timestep.observation, self._pad(layer[..., None])], axis=-1)
        return state._replace(key=key), timestep._replace(observation=observation)

    def position(self, state: NoisyState) -> Array:
        return super().position(state.world)

    def stages_reached(self, state: NoisyState) -> Array:
        return state.room >= jnp.arange(1, self.rooms)

    def render(self, state: NoisyState) -> np.ndarray:
        return super().render(state.world)
