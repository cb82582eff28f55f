"""The noisy rooms: distributions of the noise, over unchanged rooms."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from byol_explore.envs.grid.noisy_rooms import NO_OP, NOISE_PROBABILITY, OBJECTS_PER_ROOM
from byol_explore.envs.registry import make_env
from byol_explore.spaces import Grid
from byol_explore.types import Action, Array

NAMES = ("moving-rooms-2", "noisy-rooms-2", "tv-rooms-2")
EPISODES, STEPS = 100, 40


def random_actions() -> np.ndarray:
    """Draw actions [STEPS, EPISODES, 1] that often walk forward and open doors."""
    rng = np.random.default_rng(1)
    return rng.choice(6, p=[0.4, 0.1, 0.1, 0.05, 0.1, 0.25], size=(STEPS, EPISODES, 1)).astype(np.int32)


@cache
def played(name: str) -> Any:
    """Return the first time steps, and those of the same actions in the same rooms, with the states."""
    env = make_env(name)

    @jax.jit
    def play(keys: Array, actions: Array) -> Any:
        def step(state: Any, action: Array) -> Any:
            after, timestep = jax.vmap(env.step)(state, Action(action, np.zeros((EPISODES, 0), np.float32)))
            reached = jax.vmap(env.stages_reached)(after) if env.stages else None
            noise = after.noise if env.stages else ()
            return after, (timestep, jax.vmap(env.position)(after), noise, reached)

        state, first = jax.vmap(env.reset)(keys)
        return first, jax.lax.scan(step, state, actions)[1]

    keys = jax.random.split(jax.random.key(0), EPISODES)
    return jax.device_get(play(keys, random_actions()))


@pytest.mark.parametrize("name", NAMES)
def test_rooms_rewards_and_effects_of_actions_equal_the_quiet_rooms(name: str) -> None:
    first, (timestep, place, _, _) = played(name)
    expected_first, (expected, expected_place, _, _) = played("rooms-2")
    assert expected.reward.max() > 0
    np.testing.assert_array_equal(first.observation[..., :2], expected_first.observation)
    np.testing.assert_array_equal(timestep.observation[..., :2], expected.observation)
    np.testing.assert_array_equal(place, expected_place)
    for field in ("reward", "discount", "is_first", "is_last"):
        np.testing.assert_array_equal(getattr(timestep, field), getattr(expected, field))
    assert make_env(name).spec.observation == Grid(7, 7, (16, 16, 16))
    assert (timestep.observation.shape[-1], timestep.observation.dtype) == (3, np.uint8)


def layers(name: str) -> np.ndarray:
    """Return the noise layer [STEPS, EPISODES, 7, 7] after each action."""
    return played(name)[1][0].observation[..., 2]


def assert_static(shown: np.ndarray) -> None:
    """Noise is independent in cells and steps: in a quarter of them, with equally likely symbols."""
    lit = shown > 0
    np.testing.assert_allclose(lit.mean(), NOISE_PROBABILITY, atol=0.01)
    counts = np.bincount(shown[lit], minlength=16)[1:]
    np.testing.assert_allclose(counts / counts.sum(), 1 / 15, atol=0.015)


def test_a_quarter_of_the_cells_show_a_new_symbol_at_every_step() -> None:
    shown = layers("noisy-rooms-2")
    assert_static(shown)
    both = (shown[1:] > 0) & (shown[:-1] > 0)
    np.testing.assert_allclose(both.mean(), NOISE_PROBABILITY**2, atol=0.01)
    np.testing.assert_allclose((shown[1:] == shown[:-1])[both].mean(), 1 / 15, atol=0.02)
    assert len(np.unique(shown[0].reshape(EPISODES, -1), axis=0)) == EPISODES
    assert np.any(played("noisy-rooms-2")[0].observation[..., 2])


def test_the_television_is_on_after_the_no_op_only() -> None:
    shown, idle = layers("tv-rooms-2"), random_actions()[..., 0] == NO_OP
    assert_static(shown[idle])
    assert not np.any(shown[~idle])
    assert not np.any(played("tv-rooms-2")[0].observation[..., 2])
    place = played("tv-rooms-2")[1][1]
    assert np.all((place[1:] == place[:-1])[idle[1:]]), "the no-op has no effect"


def test_the_quiet_rooms_have_no_noise() -> None:
    env = make_env("quiet-rooms-2")
    _, timestep = jax.jit(env.reset)(jax.random.key(0))
    assert env.spec.observation == make_env("tv-rooms-2").spec.observation
    assert not np.any(timestep.observation[..., 2])
    np.testing.assert_array_equal(
        timestep.observation[..., :2], jax.jit(make_env("rooms-2").reset)(jax.random.key(0))[1].observation
    )


def test_objects_move_within_their_room_and_are_visible_there() -> None:
    _, (timestep, place, movers, _) = played("moving-rooms-2")
    assert movers.shape == (STEPS, EPISODES, 2 * OBJECTS_PER_ROOM, 2)
    moved = np.diff(movers, axis=0)
    assert np.abs(moved).max() == 1
    rooms = np.repeat(np.arange(2), OBJECTS_PER_ROOM)
    assert np.all(movers[..., 1] // 5 == rooms)
    for room in range(2):
        mine = movers[:, :, rooms == room].reshape(-1, 2)
        assert len(np.unique(mine, axis=0)) == 20, "all cells of the room"
        assert np.all((mine >= (1, 5 * room + 1)) & (mine <= (5, 5 * room + 4)))
    inside = (movers[:-1, :, :, 0] > 1) & (movers[:-1, :, :, 0] < 5)
    counts = np.bincount(moved[..., 0][inside] + 1)
    np.testing.assert_allclose(counts / counts.sum(), 1 / 3, atol=0.02)
    here = np.any(np.all(movers == place[:, :, None], axis=-1), axis=-1)
    np.testing.assert_array_equal(timestep.observation[:, :, 6, 3, 2] > 0, here)  # where the agent stands
    assert timestep.observation[..., 2].max() == 1
    assert 0 < here.mean() < 0.3


def test_stages_are_the_rooms_that_an_episode_has_entered() -> None:
    assert make_env("tv-rooms-3").stages == ("room 2", "room 3")
    _, (timestep, place, _, reached) = played("tv-rooms-2")
    farthest = np.maximum.accumulate(place[..., 1] // 5, axis=0)
    np.testing.assert_array_equal(reached, farthest[..., None] >= [1])
    assert reached[-1, :, 0].any()
    assert reached[timestep.reward > 0].all()


def test_a_larger_view_is_padded_in_all_layers() -> None:
    env = make_env("noisy-rooms-2").with_view(9)
    assert env.spec.observation == Grid(9, 9, (16, 16, 16))
    _, timestep = jax.jit(env.reset)(jax.random.key(0))
    assert not np.any(timestep.observation[:2])
    assert not np.any(timestep.observation[:, [0, -1]])
    assert np.any(timestep.observation[2:, 1:-1, 2])


def test_the_floor_plan_is_that_of_the_rooms() -> None:
    env, rooms = make_env("moving-rooms-2"), make_env("rooms-2")
    assert (env.floor_shape, env.floor_plan()) == (rooms.floor_shape, rooms.floor_plan())
