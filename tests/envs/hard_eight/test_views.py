"""Pictures of a world show what one has to know: to the agent, and in the views for people."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight import views
from byol_explore.envs.worlds.hard_eight.furnishing import chamber
from byol_explore.envs.worlds.hard_eight.palette import COLOURS
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin
from envs.hard_eight.pens import finish, pen

SIZE = (36, 48)


class Views(NamedTuple):
    """Pictures as integers [36, 48, 3]."""

    first: np.ndarray
    above: np.ndarray
    behind: np.ndarray


@jax.jit
def draw(level: Level, world: World) -> Views:
    seen = (views.first_person, views.from_above, views.over_the_shoulder)
    return Views(*[view(level, world, SIZE) for view in seen])  # pyright: ignore[reportArgumentType]


def look(level: Level, world: World) -> Views:
    return Views(*[np.asarray(picture, int) for picture in draw(level, world)])


def at(level: Level, x: float, y: float, yaw: float = 0.0, pitch: float = 0.0) -> World:
    world = begin(level)
    agent = world.agent._replace(centre=jnp.array([x, y, 0.6]), yaw=jnp.float32(yaw), pitch=jnp.float32(pitch))
    return world._replace(agent=agent)


def near(picture: np.ndarray, colour: str) -> np.ndarray:
    """Pixels in which a colour can be recognised, in whatever light."""
    wanted = np.array(COLOURS[colour]) / np.linalg.norm(COLOURS[colour])
    return picture @ wanted / np.maximum(np.linalg.norm(picture, axis=-1), 1.0) > 0.99


def test_the_agent_is_seen_where_it_is() -> None:
    """From above it moves through the picture; over the shoulder it stays in the middle."""
    level = finish(pen())
    west, east = (look(level, at(level, x, 0.0)) for x in (-1.5, 1.5))
    changed = np.abs(west.above - east.above).sum(-1) > 30
    columns = np.flatnonzero(changed.any(0))
    assert columns.min() < SIZE[1] // 2 < columns.max()
    assert changed.mean() < 0.1
    for seen in (west, east):
        assert seen.behind[SIZE[0] // 2 + 2 :, SIZE[1] // 2].min() < 80, "a dark back"


@pytest.mark.parametrize(("x", "y", "yaw"), [(-2.7, 0.0, 0.0), (2.7, 2.7, -2.4), (0.0, 2.6, -1.6)])
def test_no_wall_hides_the_agent(x: float, y: float, yaw: float) -> None:
    """Who looks over its shoulder stands behind the wall that it has at its back."""
    level = finish(pen())
    behind = look(level, at(level, x, y, yaw)).behind
    back = behind[SIZE[0] // 2 + 2 : -8, SIZE[1] // 2]
    assert (back.max(-1) < 100).any(), "a dark back"


def test_the_plan_shows_which_door_is_open() -> None:
    """Although there is a lintel above it."""
    builder = pen()
    chamber(builder, 0.0, -1.0, "wall", "red", [builder.sensor((2.9, 0.0, 1.0), (0.02, 0.3, 0.3), "red", [])])
    level = finish(builder)
    world = at(level, -2.0, -2.0)
    shut, opened = (look(level, world._replace(is_open=jnp.arange(4) < is_open)).above for is_open in (0, 1))
    assert near(shut, "red").sum() > near(opened, "red").sum() + 5
    assert near(opened, "apple").any()


def stacked() -> Level:
    builder = pen()
    for height in (0.25, 0.75):
        builder.crate((1.5, 0.0, height), (0.25, 0.25, 0.25), "blue")
    return finish(builder)


def test_a_cube_can_be_told_from_the_one_below_it() -> None:
    level = stacked()
    first = look(level, at(level, 0.0, 0.0, pitch=-0.4)).first
    column = first[:, SIZE[1] // 2, 2][near(first[:, SIZE[1] // 2], "blue")]  # from the top of one to the floor
    dark = column < 0.7 * np.median(column)
    assert (np.diff(dark.astype(int)) == 1).sum() >= 2, "dark edges between them and at the ends"


def test_what_is_held_and_what_is_touched_look_different() -> None:
    level = stacked()
    world = at(level, 0.0, 0.0, pitch=-0.2)
    held = world._replace(hand=world.hand._replace(held=jnp.int32(1)))
    bright = [(look(level, each).first.min(-1) > 200).sum() for each in (world, held)]
    assert bright[1] > bright[0] + 10, "white edges"
    builder = pen()
    builder.sensor((2.9, 0.0, 1.1), (0.02, 0.3, 0.3), "cyan", [])
    level = finish(builder)
    world = at(level, 1.0, 0.0)
    off, on = (look(level, world._replace(is_on=jnp.arange(4) < is_on)).first for is_on in (0, 1))
    assert (off.min(-1) > 200).sum() == 0
    assert (on.min(-1) > 200).sum() > 10
    assert near(on, "cyan").any(), "its colour can still be seen"


def test_a_film_shows_three_views_side_by_side() -> None:
    level = finish(pen())
    picture = jax.eval_shape(views.picture, level, begin(level))
    assert (picture.shape, picture.dtype) == ((216, 864, 3), np.uint8)
