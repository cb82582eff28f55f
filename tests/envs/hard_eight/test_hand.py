"""The hand: what it takes, carries, presses, turns and throws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight.building import Builder
from byol_explore.envs.worlds.hard_eight.hand import FURTHEST, HIGHEST
from byol_explore.envs.worlds.hard_eight.physics import SKIN, STEP
from byol_explore.envs.worlds.hard_eight.world import Level
from envs.hard_eight.pens import SIZE, controls, finish, in_one_length, pen

run = in_one_length(150)
GRIP = {"grip": True}
HALF = (0.15, 0.15, 0.2)


def with_crate(ahead: float = 1.2, aside: float = 0.0, height: float = 0.2, *, liftable: bool = True) -> Level:
    builder = pen()
    builder.crate((ahead, aside, height), HALF, "red", liftable=liftable)
    if height > 0.2:
        builder.box((ahead - 0.2, aside - 0.2, 0.0), (ahead + 0.2, aside + 0.2, height - 0.2), "stone")
    return finish(builder)


@pytest.mark.parametrize(
    ("level", "is_taken"),
    [
        (with_crate(), True),
        (with_crate(ahead=2.2), False),
        (with_crate(ahead=-1.2), False),
        (with_crate(aside=0.4), True),
        (with_crate(aside=0.9), False),
        (with_crate(height=HIGHEST - 0.1), True),
        (with_crate(height=HIGHEST + 0.2), False),
        (with_crate(liftable=False), False),
    ],
    ids=["near", "far", "behind", "a little aside", "aside", "as high as it goes", "too high", "fixed"],
)
def test_what_is_taken(level: Level, is_taken: bool) -> None:
    played = run(level, controls((10, GRIP)))
    assert (played.world.hand.held[0] == 0) == is_taken
    lifted = played.world.bodies.centre[-1, 2, 0] > played.world.bodies.centre[0, 2, 0] + 0.02
    assert lifted == (is_taken and level.start.centre[2, 0] < 1.0)


def test_nothing_is_taken_through_a_wall() -> None:
    builder = pen()
    builder.crate((1.2, 0.0, 0.2), HALF, "red")
    builder.box((0.6, -1.0, 0.0), (0.65, 1.0, 3.0), "wall")
    assert run(finish(builder), controls((10, GRIP))).world.hand.held[-1] == -1


def test_the_one_in_the_middle_of_the_view_is_taken() -> None:
    builder = pen()
    lower = builder.crate((1.2, 0.0, 0.2), HALF, "red")
    upper = builder.crate((1.2, 0.0, 0.6), HALF, "blue")
    for look, chosen in ((1.0, lower), (-1.0, upper)):
        played = run(finish(builder), controls((8, {"look": look}), (1, GRIP)))
        assert played.world.hand.held[-1] == chosen


def test_what_is_held_is_carried_around_and_falls_when_it_is_let_go() -> None:
    parts = (15, GRIP), (18, {**GRIP, "turn": 1.0}), (8, {**GRIP, "move": 1.0}), (15, {})
    played = run(with_crate(), controls(*parts))
    carried, agent = played.world.bodies.centre[40, :, 0], played.world.agent
    facing = np.array([np.cos(agent.yaw[40]), np.sin(agent.yaw[40])])
    away = carried[:2] - agent.centre[40, :2]
    assert facing @ away == pytest.approx(np.linalg.norm(away), abs=0.05)
    assert carried[2] == pytest.approx(1.1, abs=0.1)
    assert played.world.bodies.centre[-1, 2, 0] == pytest.approx(0.2, abs=5e-3)
    assert played.world.hand.held.tolist() == [0] * 41 + [-1] * 15
    assert played.overlap.max() <= SKIN


def test_pushing_and_pulling_change_the_distance() -> None:
    played = run(with_crate(), controls((10, GRIP), (20, {**GRIP, "push": 1.0}), (20, {**GRIP, "push": -1.0})))
    away = played.world.bodies.centre[:, 0, 0] - played.world.agent.centre[:, 0]
    assert away[29] == pytest.approx(FURTHEST, abs=0.05)
    assert away[49] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("push", "lowest", "highest"), [(0.0, -0.1, 0.2), (0.5, 0.9, 3.0), (1.0, 2.0, 4.0)])
def test_a_push_as_the_hand_opens_throws(push: float, lowest: float, highest: float) -> None:
    level = with_crate()._replace(entrance=jnp.array([-2.5, 0.0, 0.6]))
    level = level._replace(start=level.start._replace(centre=level.start.centre.at[0, 0].set(-1.3)))
    played = run(level, controls((15, GRIP), (1, {"push": push}), (30, {})))
    centre = played.world.bodies.centre[:, 0, 0]
    assert lowest < centre[-1] - centre[14] < highest


def test_what_is_pressed_against_a_wall_is_dropped() -> None:
    """The force grows until then; it was nothing while the body was free."""
    level = with_crate()
    level = level._replace(entrance=jnp.array([0.5, 0.0, 0.6]))
    level = level._replace(start=level.start._replace(centre=level.start.centre.at[0, 0].set(1.7)))
    played = run(level, controls((12, GRIP), (40, {**GRIP, "move": 1.0, "push": 1.0})))
    assert played.world.hand.force[11] < 0.05
    assert played.world.hand.force.max() == 1.0
    assert -1 in played.world.hand.held[12:]
    assert (played.world.hand.distance[played.world.hand.held == -1] == 0.0).all()
    assert played.overlap.max() <= SKIN


def test_nobody_rises_on_what_he_holds() -> None:
    """A bat that is pulled below the feet is a step to stand on, and no more."""
    builder = pen()
    builder.crate((0.8, 0.0, 0.06), (0.45, 0.06, 0.06), "wood")
    back = {**GRIP, "move": -1.0}
    played = run(
        finish(builder), controls((10, {"look": 1.0}), (11, GRIP), (25, back), (20, {**GRIP, "look": -1.0}), (34, back))
    )
    assert played.world.hand.held[-1] == 0
    assert played.world.agent.centre[:, 2].max() < 0.6 + STEP


def test_an_open_hand_is_nowhere() -> None:
    played = run(with_crate(), controls((15, GRIP), (3, {"push": 1.0})))
    assert played.world.hand.held[14:16].tolist() == [0, -1]
    assert played.world.hand.distance[15:].tolist() == [0.0] * 3


def test_what_is_held_turns_with_the_hand_only_where_there_is_room() -> None:
    builder = pen()
    builder.crate((1.2, 0.0, 0.2), (0.1, 0.6, 0.1), "red")
    free = run(finish(builder), controls((10, GRIP), (12, {**GRIP, "rotate": 1.0})))
    assert free.world.bodies.yaw[-1, 0] == pytest.approx(12 * 2.0 / 15, abs=1e-4)
    for x in (0.9, 1.5):
        builder.box((x, -1.0, 0.0), (x + 0.05, 1.0, 0.8), "stone")
    narrow = run(finish(builder), controls((2, {"look": 1.0}), (1, GRIP), (12, {"rotate": 1.0, **GRIP})))
    assert narrow.overlap.max() <= SKIN


def test_a_body_set_free_inside_the_agent_separates() -> None:
    """It cannot be put there by hand; but if it were, it would fall to the ground and could be walked away from."""
    level = with_crate()
    inside = level.start.centre.at[:, 0].set(jnp.array([0.05, 0.0, 0.7]))
    played = run(level._replace(start=level.start._replace(centre=inside)), controls((10, {}), (20, {"move": -1.0})))
    assert played.world.bodies.centre[9, 2, 0] < 0.3
    assert played.world.agent.centre[-1, 0] < -1.0
    assert played.overlap[-1] <= SKIN


def test_a_bat_knocks_a_ball_off_its_plinth() -> None:
    builder: Builder = pen()
    builder.crate((0.2, 0.0, 0.1), (0.45, 0.06, 0.06), "wood")
    builder.box((1.3, -0.2, 0.0), (1.7, 0.2, 1.7), "stone")
    builder.ball((1.5, 0.0, 1.9), 0.2, "red")
    level = finish(builder, at=(-1.2, 0.0))
    up = (8, {**GRIP, "look": -0.7})
    played = run(level, controls((10, GRIP), up, (20, {**GRIP, "move": 1.0}), (40, {})))
    ball = played.world.bodies.centre[:, :, 12]
    assert ball[20, 2] == pytest.approx(1.9, abs=5e-3)
    assert ball[-1, 2] == pytest.approx(0.2, abs=5e-3)
    assert np.abs(ball[-1, :2]).max() < SIZE


def test_a_level_is_a_tree_of_arrays() -> None:
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(with_crate()))
