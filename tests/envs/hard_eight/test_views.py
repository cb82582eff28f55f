"""Views for people show what they are for."""

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight import views
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin
from envs.hard_eight.pens import finish, pen

SIZE = (36, 48)


def both(level: Level, world: World) -> tuple[jax.Array, jax.Array]:
    return views.from_above(level, world, SIZE), views.over_the_shoulder(level, world, SIZE)


def test_the_agent_is_seen_where_it_is() -> None:
    """From above it moves through the picture; over the shoulder it stays in the middle."""
    draw = jax.jit(both)
    level = finish(pen())
    world = begin(level)
    west, east = (world._replace(agent=world.agent._replace(centre=jnp.array([x, 0.0, 0.6]))) for x in (-1.5, 1.5))
    pictures = [[np.asarray(view, int) for view in draw(level, at)] for at in (west, east)]
    changed = np.abs(pictures[0][0] - pictures[1][0]).sum(-1) > 30
    columns = np.flatnonzero(changed.any(0))
    assert columns.min() < SIZE[1] // 2 < columns.max()
    assert changed.mean() < 0.1
    for _, behind in pictures:
        assert behind[SIZE[0] // 2 + 2 :, SIZE[1] // 2].min() < 80, "a dark back"


def test_a_film_shows_two_views_side_by_side() -> None:
    level = finish(pen())
    picture = jax.eval_shape(views.picture, level, begin(level))
    assert (picture.shape, picture.dtype) == ((216, 576, 3), np.uint8)
