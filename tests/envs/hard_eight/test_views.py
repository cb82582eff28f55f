"""Views show what the agent and a human viewer need to know."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight import views
from byol_explore.envs.hard_eight.level_parts import apple_room
from byol_explore.envs.hard_eight.world import COLOURS, Level, World, init_world
from envs.hard_eight.arena import make_level, walled_arena

SIZE = (36, 48)


class Views(NamedTuple):
    """Pictures [36, 48, 3] as integers."""

    first: np.ndarray
    above: np.ndarray
    behind: np.ndarray


@jax.jit
def draw(level: Level, world: World) -> Views:
    functions = (views.first_person, views.top_down, views.over_the_shoulder)
    return Views(*[view(level, world, SIZE) for view in functions])  # pyright: ignore[reportArgumentType]


def look(level: Level, world: World) -> Views:
    return Views(*[np.asarray(picture, int) for picture in draw(level, world)])


def at(level: Level, x: float, y: float, yaw: float = 0.0, pitch: float = 0.0) -> World:
    world = init_world(level)
    agent = world.agent._replace(centre=jnp.array([x, y, 0.6]), yaw=jnp.float32(yaw), pitch=jnp.float32(pitch))
    return world._replace(agent=agent)


def near(picture: np.ndarray, colour: str) -> np.ndarray:
    """[H, W] pixels with the hue of a colour, at any brightness."""
    wanted = np.array(COLOURS[colour]) / np.linalg.norm(COLOURS[colour])
    return picture @ wanted / np.maximum(np.linalg.norm(picture, axis=-1), 1.0) > 0.99


def test_agent_is_visible_in_both_outer_views() -> None:
    """It moves through the top-down view, and stays in the middle of the shoulder view."""
    level = make_level(walled_arena())
    west, east = (look(level, at(level, x, 0.0)) for x in (-1.5, 1.5))
    changed = np.abs(west.above - east.above).sum(-1) > 30
    columns = np.flatnonzero(changed.any(0))
    assert columns.min() < SIZE[1] // 2 < columns.max()
    assert changed.mean() < 0.1
    for seen in (west, east):
        assert seen.behind[SIZE[0] // 2 + 2 :, SIZE[1] // 2].min() < 80, "a dark back"


@pytest.mark.parametrize(("x", "y", "yaw"), [(-2.7, 0.0, 0.0), (2.7, 2.7, -2.4), (0.0, 2.6, -1.6)])
def test_no_wall_hides_the_agent_in_the_shoulder_view(x: float, y: float, yaw: float) -> None:
    """The shoulder camera stands behind the wall at the agent's back."""
    level = make_level(walled_arena())
    behind = look(level, at(level, x, y, yaw)).behind
    back = behind[SIZE[0] // 2 + 2 : -8, SIZE[1] // 2]
    assert (back.max(-1) < 100).any(), "a dark back"


def test_plan_shows_open_doors() -> None:
    """Despite the lintel above the door."""
    builder = walled_arena()
    apple_room(builder, 0.0, -1.0, "wall", "red", [builder.sensor((2.9, 0.0, 1.0), (0.02, 0.3, 0.3), "red", [])])
    level = make_level(builder)
    world = at(level, -2.0, -2.0)
    shut, opened = (look(level, world._replace(door_open=jnp.arange(4) < is_open)).above for is_open in (0, 1))
    assert near(shut, "red").sum() > near(opened, "red").sum() + 5
    assert near(opened, "apple").any()


def stacked_crates() -> Level:
    builder = walled_arena()
    for height in (0.25, 0.75):
        builder.crate((1.5, 0.0, height), (0.25, 0.25, 0.25), "blue")
    return make_level(builder)


def test_stacked_cubes_are_separated_by_dark_edges() -> None:
    level = stacked_crates()
    first = look(level, at(level, 0.0, 0.0, pitch=-0.4)).first
    column = first[:, SIZE[1] // 2, 2][near(first[:, SIZE[1] // 2], "blue")]  # from the top of one to the floor
    dark = column < 0.7 * np.median(column)
    assert (np.diff(dark.astype(int)) == 1).sum() >= 2, "dark edges between them and at the ends"


def test_held_bodies_and_touched_sensors_look_different() -> None:
    level = stacked_crates()
    world = at(level, 0.0, 0.0, pitch=-0.2)
    held = world._replace(hand=world.hand._replace(held=jnp.int32(1)))
    bright = [(look(level, each).first.min(-1) > 200).sum() for each in (world, held)]
    assert bright[1] > bright[0] + 10, "white edges"
    builder = walled_arena()
    builder.sensor((2.9, 0.0, 1.1), (0.02, 0.3, 0.3), "cyan", [])
    level = make_level(builder)
    world = at(level, 1.0, 0.0)
    off, on = (look(level, world._replace(sensor_on=jnp.arange(4) < is_on)).first for is_on in (0, 1))
    assert (off.min(-1) > 200).sum() == 0
    assert (on.min(-1) > 200).sum() > 10
    assert near(on, "cyan").any(), "its colour can still be seen"


def test_human_view_has_three_views_side_by_side() -> None:
    level = make_level(walled_arena())
    picture = jax.eval_shape(views.human_view, level, init_world(level))
    assert (picture.shape, picture.dtype) == ((216, 864, 3), np.uint8)
