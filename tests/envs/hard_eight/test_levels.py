"""Sampled levels: they differ, nothing overlaps, and each has what its task needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight.builder import WALL_HALF
from byol_explore.envs.hard_eight.interactions import is_occluded
from byol_explore.envs.hard_eight.levels import LEVELS, sample_level
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.world import SKIN, Level, init_world, obstacles
from envs.hard_eight.arena import max_overlap

NUM_LEVELS = 64


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Level, np.ndarray]]:
    """Levels of each task, and the largest overlap in each level."""

    @jax.jit
    def draw_many(task: jax.Array, keys: jax.Array) -> tuple[Level, jax.Array]:
        levels = jax.vmap(lambda key: sample_level(task, key))(keys)
        return levels, jax.vmap(lambda level: max_overlap(level, init_world(level)))(levels)

    keys = jax.random.split(jax.random.key(0), NUM_LEVELS)
    many = {name: draw_many(jnp.asarray(number), keys) for number, name in enumerate(TASKS)}
    return jax.tree.map(np.asarray, many)


def test_every_task_has_a_level_function() -> None:
    assert set(LEVELS) == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_nothing_overlaps_at_the_start(drawn: dict[str, tuple[Level, np.ndarray]], task: str) -> None:
    assert drawn[task][1].max() <= SKIN


@pytest.mark.parametrize("task", TASKS)
def test_levels_differ(drawn: dict[str, tuple[Level, np.ndarray]], task: str) -> None:
    """In positions, colours and the doorway."""
    level = drawn[task][0]
    assert (level.task == TASKS.index(task)).all()
    for numbers, many in (
        (level.initial_bodies.centre, NUM_LEVELS),
        (level.spawn, NUM_LEVELS),
        (level.static.centre, 8),
    ):
        assert len(np.unique(numbers.reshape(NUM_LEVELS, -1), axis=0)) >= many
    colours = np.concatenate([level.colour, level.doors.colour, level.paint.colour], axis=1)
    assert len(np.unique(colours, axis=0)) > 5


@pytest.mark.parametrize("task", TASKS)
def test_one_large_apple_behind_a_door_or_on_top_of_stairs(
    drawn: dict[str, tuple[Level, np.ndarray]], task: str
) -> None:
    level = drawn[task][0]
    large = level.apples.reward == 10.0
    assert (large.sum(1) == 1).all()
    place = level.apples.centre.transpose(0, 2, 1)[large]
    assert np.linalg.norm(place - level.spawn, axis=1).min() > 1.5
    has_door = level.doors.needs.any((1, 2))
    assert has_door.all() == (task != "navigate-cubes")


def test_keys_have_the_colour_of_their_sensor(drawn: dict[str, tuple[Level, np.ndarray]]) -> None:
    for task in ("wall-sensor", "remember-sensor", "push-blocks", "baseball"):
        level = drawn[task][0]
        for index in range(NUM_LEVELS):
            [accepted] = np.unique(level.colour[index][level.sensors.accepts[index, :, 0]])
            assert accepted == level.sensors.colour[index, 0]
            others = ~level.sensors.accepts[index, :, 0] & (level.initial_bodies.half[index, 2] > 0.0)
            assert accepted not in level.colour[index][others]


def test_no_key_can_be_thrown_out_of_reach(drawn: dict[str, tuple[Level, np.ndarray]]) -> None:
    """Walls and raised bridges separate the islands of Drawbridge; the pad is all floor beyond Throw Across's gap."""
    level: Level = jax.tree.map(jnp.asarray, drawn["drawbridge"][0])
    fixed = jax.vmap(lambda one: obstacles(one, init_world(one).door_open))(level)
    hidden = jax.jit(jax.vmap(is_occluded))
    first, *others = jnp.moveaxis(level.initial_bodies.centre[:, :, :3], 2, 0)
    ends = list(jnp.moveaxis(level.apples.centre[:, :, :3], 2, 0))
    ways = [(first, other) for other in (*others, *ends)] + [(other, end) for other in others for end in ends]
    for thrown, lands in ((0.3, 0.2), (1.1, 0.2), (2.8, 2.0)):
        assert all(hidden(a.at[:, 2].set(thrown), b.at[:, 2].set(lands), fixed).all() for a, b in ways)
    level = drawn["throw-across"][0]
    beyond, pad = (boxes.half[:, :2, index] for boxes, index in ((level.static, 1), (level.sensors.boxes, 0)))
    np.testing.assert_allclose(beyond - pad, WALL_HALF, atol=1e-5)
