"""Levels as they are drawn: different every time, in order, and as the tasks need them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight.building import THICKNESS
from byol_explore.envs.worlds.hard_eight.hand import is_hidden
from byol_explore.envs.worlds.hard_eight.layouts import LAYOUTS, draw
from byol_explore.envs.worlds.hard_eight.physics import SKIN
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.world import Level, begin, obstacles
from envs.hard_eight.pens import deepest

LEVELS = 64


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Level, np.ndarray]]:
    """Levels of each task, and how far things are inside each other in them."""

    @jax.jit
    def draw_many(task: jax.Array, keys: jax.Array) -> tuple[Level, jax.Array]:
        levels = jax.vmap(lambda key: draw(task, key))(keys)
        return levels, jax.vmap(lambda level: deepest(level, begin(level)))(levels)

    keys = jax.random.split(jax.random.key(0), LEVELS)
    many = {name: draw_many(jnp.asarray(number), keys) for number, name in enumerate(TASKS)}
    return jax.tree.map(np.asarray, many)


def test_every_task_has_a_layout() -> None:
    assert set(LAYOUTS) == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_nothing_is_inside_anything_at_first(drawn: dict[str, tuple[Level, np.ndarray]], task: str) -> None:
    assert drawn[task][1].max() <= SKIN


@pytest.mark.parametrize("task", TASKS)
def test_levels_differ(drawn: dict[str, tuple[Level, np.ndarray]], task: str) -> None:
    """In places and colours, and in where the way out is."""
    level = drawn[task][0]
    assert (level.task == TASKS.index(task)).all()
    for numbers, many in ((level.start.centre, LEVELS), (level.entrance, LEVELS), (level.static.centre, 8)):
        assert len(np.unique(numbers.reshape(LEVELS, -1), axis=0)) >= many
    colours = np.concatenate([level.colour, level.doors.colour, level.paint.colour], axis=1)
    assert len(np.unique(colours, axis=0)) > 5


@pytest.mark.parametrize("task", TASKS)
def test_there_is_one_large_apple_and_it_is_not_free(drawn: dict[str, tuple[Level, np.ndarray]], task: str) -> None:
    level = drawn[task][0]
    large = level.apples.reward == 10.0
    assert (large.sum(1) == 1).all()
    place = level.apples.centre.transpose(0, 2, 1)[large]
    assert np.linalg.norm(place - level.entrance, axis=1).min() > 1.5
    has_door = level.doors.needs.any((1, 2))
    assert has_door.all() == (task != "navigate-cubes")


def test_keys_have_the_colour_of_their_sensor(drawn: dict[str, tuple[Level, np.ndarray]]) -> None:
    for task in ("wall-sensor", "remember-sensor", "push-blocks", "baseball"):
        level = drawn[task][0]
        for index in range(LEVELS):
            [accepted] = np.unique(level.colour[index][level.sensors.accepts[index, 0]])
            assert accepted == level.sensors.colour[index, 0]
            others = ~level.sensors.accepts[index, 0] & (level.start.half[index, 2] > 0.0)
            assert accepted not in level.colour[index][others]


def test_no_key_can_be_thrown_to_where_nobody_gets_it(drawn: dict[str, tuple[Level, np.ndarray]]) -> None:
    """In Drawbridge walls and raised bridges stand between islands; in Throw Across all that lies beyond is the pad."""
    level: Level = jax.tree.map(jnp.asarray, drawn["drawbridge"][0])
    fixed = jax.vmap(lambda one: obstacles(one, begin(one).is_open))(level)
    hidden = jax.jit(jax.vmap(is_hidden))
    first, *others = jnp.moveaxis(level.start.centre[:, :, :3], 2, 0)
    ends = list(jnp.moveaxis(level.apples.centre[:, :, :3], 2, 0))
    ways = [(first, other) for other in (*others, *ends)] + [(other, end) for other in others for end in ends]
    for thrown, lands in ((0.3, 0.2), (1.1, 0.2), (2.8, 2.0)):
        assert all(hidden(a.at[:, 2].set(thrown), b.at[:, 2].set(lands), fixed).all() for a, b in ways)
    level = drawn["throw-across"][0]
    beyond, pad = (boxes.half[:, :2, index] for boxes, index in ((level.static, 1), (level.sensors.boxes, 0)))
    np.testing.assert_allclose(beyond - pad, THICKNESS, atol=1e-5)
