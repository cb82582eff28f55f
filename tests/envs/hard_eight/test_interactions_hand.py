"""The hand: grasp, carry, press, rotate and throw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight.builder import Builder
from byol_explore.envs.hard_eight.interactions import MAX_DISTANCE, MAX_GRASP_HEIGHT
from byol_explore.envs.hard_eight.physics import STEP_HEIGHT
from byol_explore.envs.hard_eight.world import SKIN, Level
from envs.hard_eight.arena import SIZE, controls, make_level, padded_play, walled_arena

run = padded_play(150)
GRIP = {"grip": True}
HALF = (0.15, 0.15, 0.2)


def with_crate(ahead: float = 1.2, aside: float = 0.0, height: float = 0.2, *, liftable: bool = True) -> Level:
    builder = walled_arena()
    builder.crate((ahead, aside, height), HALF, "red", liftable=liftable)
    if height > 0.2:
        builder.box((ahead - 0.2, aside - 0.2, 0.0), (ahead + 0.2, aside + 0.2, height - 0.2), "stone")
    return make_level(builder)


@pytest.mark.parametrize(
    ("level", "is_taken"),
    [
        (with_crate(), True),
        (with_crate(ahead=2.2), False),
        (with_crate(ahead=-1.2), False),
        (with_crate(aside=0.4), True),
        (with_crate(aside=0.9), False),
        (with_crate(height=MAX_GRASP_HEIGHT - 0.1), True),
        (with_crate(height=MAX_GRASP_HEIGHT + 0.2), False),
        (with_crate(liftable=False), False),
    ],
    ids=["near", "far", "behind", "a little aside", "aside", "as high as it goes", "too high", "fixed"],
)
def test_hand_grasps_only_bodies_within_reach(level: Level, is_taken: bool) -> None:
    played = run(level, controls((10, GRIP)))
    assert (played.world.hand.held[0] == 0) == is_taken
    lifted = played.world.bodies.centre[-1, 2, 0] > played.world.bodies.centre[0, 2, 0] + 0.02
    assert lifted == (is_taken and level.initial_bodies.centre[2, 0] < 1.0)


def test_hand_does_not_grasp_through_a_wall() -> None:
    builder = walled_arena()
    builder.crate((1.2, 0.0, 0.2), HALF, "red")
    builder.box((0.6, -1.0, 0.0), (0.65, 1.0, 3.0), "wall")
    assert run(make_level(builder), controls((10, GRIP))).world.hand.held[-1] == -1


def test_hand_grasps_the_body_nearest_to_the_view_axis() -> None:
    builder = walled_arena()
    lower = builder.crate((1.2, 0.0, 0.2), HALF, "red")
    upper = builder.crate((1.2, 0.0, 0.6), HALF, "blue")
    for look, chosen in ((1.0, lower), (-1.0, upper)):
        played = run(make_level(builder), controls((8, {"look_down": look}), (1, GRIP)))
        assert played.world.hand.held[-1] == chosen


def test_held_body_follows_the_agent_and_falls_when_released() -> None:
    parts = (15, GRIP), (18, {**GRIP, "turn_right": 1.0}), (8, {**GRIP, "move": 1.0}), (15, {})
    played = run(with_crate(), controls(*parts))
    carried, agent = played.world.bodies.centre[40, :, 0], played.world.agent
    facing = np.array([np.cos(agent.yaw[40]), np.sin(agent.yaw[40])])
    away = carried[:2] - agent.centre[40, :2]
    assert facing @ away == pytest.approx(np.linalg.norm(away), abs=0.05)
    assert carried[2] == pytest.approx(1.1, abs=0.1)
    assert played.world.bodies.centre[-1, 2, 0] == pytest.approx(0.2, abs=5e-3)
    assert played.world.hand.held.tolist() == [0] * 41 + [-1] * 15
    assert played.overlap.max() <= SKIN


def test_push_and_pull_change_the_distance_of_the_held_body() -> None:
    played = run(
        with_crate(), controls((10, GRIP), (20, {**GRIP, "push_held": 1.0}), (20, {**GRIP, "push_held": -1.0}))
    )
    away = played.world.bodies.centre[:, 0, 0] - played.world.agent.centre[:, 0]
    assert away[29] == pytest.approx(MAX_DISTANCE, abs=0.05)
    assert away[49] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("push", "lowest", "highest"), [(0.0, -0.1, 0.2), (0.5, 0.9, 3.0), (1.0, 2.0, 4.0)])
def test_push_at_release_throws(push: float, lowest: float, highest: float) -> None:
    level = with_crate()._replace(spawn=jnp.array([-2.5, 0.0, 0.6]))
    level = level._replace(
        initial_bodies=level.initial_bodies._replace(centre=level.initial_bodies.centre.at[0, 0].set(-1.3))
    )
    played = run(level, controls((15, GRIP), (1, {"push_held": push}), (30, {})))
    centre = played.world.bodies.centre[:, 0, 0]
    assert lowest < centre[-1] - centre[14] < highest


def test_body_pressed_against_a_wall_is_dropped() -> None:
    """The strain is small while the body moves freely, and grows to 1."""
    level = with_crate()
    level = level._replace(spawn=jnp.array([0.5, 0.0, 0.6]))
    level = level._replace(
        initial_bodies=level.initial_bodies._replace(centre=level.initial_bodies.centre.at[0, 0].set(1.7))
    )
    played = run(level, controls((12, GRIP), (40, {**GRIP, "move": 1.0, "push_held": 1.0})))
    assert played.world.hand.strain[11] < 0.05
    assert played.world.hand.strain.max() == 1.0
    assert -1 in played.world.hand.held[12:]
    assert (played.world.hand.distance[played.world.hand.held == -1] == 0.0).all()
    assert played.overlap.max() <= SKIN


def test_agent_does_not_rise_on_a_held_body() -> None:
    """A bat that is pulled below the feet lifts the agent by at most one step."""
    builder = walled_arena()
    builder.crate((0.8, 0.0, 0.06), (0.45, 0.06, 0.06), "wood")
    back = {**GRIP, "move": -1.0}
    played = run(
        make_level(builder),
        controls((10, {"look_down": 1.0}), (11, GRIP), (25, back), (20, {**GRIP, "look_down": -1.0}), (34, back)),
    )
    assert played.world.hand.held[-1] == 0
    assert played.world.agent.centre[:, 2].max() < 0.6 + STEP_HEIGHT


def test_open_hand_has_distance_zero() -> None:
    played = run(with_crate(), controls((15, GRIP), (3, {"push_held": 1.0})))
    assert played.world.hand.held[14:16].tolist() == [0, -1]
    assert played.world.hand.distance[15:].tolist() == [0.0] * 3


def test_held_body_rotates_only_where_there_is_room() -> None:
    builder = walled_arena()
    builder.crate((1.2, 0.0, 0.2), (0.1, 0.6, 0.1), "red")
    free = run(make_level(builder), controls((10, GRIP), (12, {**GRIP, "rotate_held": 1.0})))
    assert free.world.bodies.yaw[-1, 0] == pytest.approx(12 * 2.0 / 15, abs=1e-4)
    for x in (0.9, 1.5):
        builder.box((x, -1.0, 0.0), (x + 0.05, 1.0, 0.8), "stone")
    narrow = run(make_level(builder), controls((2, {"look_down": 1.0}), (1, GRIP), (12, {"rotate_held": 1.0, **GRIP})))
    assert narrow.overlap.max() <= SKIN


def test_body_inside_the_agent_separates() -> None:
    """The hand cannot put it there. Placed there, it falls to the ground, and the agent can walk away from it."""
    level = with_crate()
    inside = level.initial_bodies.centre.at[:, 0].set(jnp.array([0.05, 0.0, 0.7]))
    played = run(
        level._replace(initial_bodies=level.initial_bodies._replace(centre=inside)),
        controls((10, {}), (20, {"move": -1.0})),
    )
    assert played.world.bodies.centre[9, 2, 0] < 0.3
    assert played.world.agent.centre[-1, 0] < -1.0
    assert played.overlap[-1] <= SKIN


def test_bat_knocks_a_ball_off_its_plinth() -> None:
    builder: Builder = walled_arena()
    builder.crate((0.2, 0.0, 0.1), (0.45, 0.06, 0.06), "wood")
    builder.box((1.3, -0.2, 0.0), (1.7, 0.2, 1.7), "stone")
    builder.ball((1.5, 0.0, 1.9), 0.2, "red")
    level = make_level(builder, at=(-1.2, 0.0))
    up = (8, {**GRIP, "look_down": -0.7})
    played = run(level, controls((10, GRIP), up, (20, {**GRIP, "move": 1.0}), (40, {})))
    ball = played.world.bodies.centre[:, :, 12]
    assert ball[20, 2] == pytest.approx(1.9, abs=5e-3)
    assert ball[-1, 2] == pytest.approx(0.2, abs=5e-3)
    assert np.abs(ball[-1, :2]).max() < SIZE


def test_a_level_is_a_tree_of_arrays() -> None:
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(with_crate()))
