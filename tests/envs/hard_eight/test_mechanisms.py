"""Sensors, doors, keys that are used up, apples, zones and falls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight import mechanisms
from byol_explore.envs.worlds.hard_eight.building import Builder
from byol_explore.envs.worlds.hard_eight.physics import SKIN
from byol_explore.envs.worlds.hard_eight.world import CEILING, Doors, Level, begin
from envs.hard_eight.pens import SIZE, Played, controls, finish, in_one_length, pen

run = in_one_length(150)
CUBE = (0.2, 0.2, 0.2)
PLATE = (0.02, 0.3, 0.3)  # of a sensor on the eastern wall
SHUT = ((-2.0, 1.9, 0.0), (-1.0, 2.1, 2.0))
OPEN = ((-2.0, 1.9, -2.1), (-1.0, 2.1, -0.1))


def with_sensor(height: float = 0.3, accepts: tuple[int, ...] = (0,), **kinds: bool) -> Builder:
    """A crate to be pushed east against a sensor that opens a door in the west."""
    builder = pen()
    builder.crate((0.0, 0.0, 0.2), CUBE, "red")
    builder.crate((0.0, 1.5, 0.2), CUBE, "blue")
    sensor = builder.sensor((SIZE, 0.0, height), PLATE, "red", accepts, **kinds)
    builder.door(SHUT, OPEN, "red", [sensor])
    return builder


def push(level: Level, *, then: float = 0.0) -> Played:
    return run(level, controls((30, {"move": 1.0}), (40, {"move": then})))


def test_a_touch_opens_a_door_for_good() -> None:
    played = push(finish(with_sensor(), at=(-1.0, 0.0)), then=-1.0)
    is_on, is_open = played.world.is_on[:, 0], played.world.is_open[:, 0]
    assert not is_open[0]
    first = is_on.argmax()
    assert played.world.bodies.centre[first, 0, 0] == pytest.approx(SIZE - 0.2, abs=0.1)
    np.testing.assert_array_equal(is_on, is_open)
    assert is_open[first:].all()


def test_other_bodies_do_not_count() -> None:
    assert not push(finish(with_sensor(accepts=(1,)), at=(-1.0, 0.0))).world.is_on.any()


def test_keys_are_used_up_once() -> None:
    played = push(finish(with_sensor(accepts=(0, 1), uses_up=True), at=(-1.0, 0.0)))
    there = played.world.bodies.half[:, 2] > 0.0
    assert there[0, :2].all()
    assert there[-1, :2].tolist() == [False, True]
    assert played.world.is_open[-1, 0]


def test_what_is_used_up_leaves_the_hand() -> None:
    level = finish(with_sensor(height=1.1, uses_up=True), at=(-1.2, 0.0))
    played = run(level, controls((15, {"grip": True}), (30, {"grip": True, "move": 1.0})))
    assert played.world.hand.held[14] == 0
    assert played.world.hand.held[-1] == -1
    assert played.world.is_open[-1, 0]


def test_a_sensor_that_must_stay_touched_lights_up_in_a_hand_and_opens_nothing() -> None:
    """Pressing a body against it, however precisely, opens no door; a body that rests there does."""
    level = finish(with_sensor(height=1.1, must_stay=True), at=(-1.2, 0.0))
    pressed = run(level, controls((15, {"grip": True}), (60, {"grip": True, "move": 0.6})))
    touches = pressed.effects.touched[:, 0] & (pressed.world.hand.held == 0)
    assert touches.any()
    np.testing.assert_array_equal(pressed.world.is_on[:, 0], pressed.effects.touched[:, 0])
    assert not pressed.world.is_open.any()
    resting = push(finish(with_sensor(must_stay=True), at=(-1.0, 0.0)))
    assert resting.world.is_open[-1, 0]


def test_a_sensor_that_must_stay_touched_is_not_fooled_by_what_lies_on_the_agent() -> None:
    """The hand loses what it presses too hard, and walking on brings the agent below it."""
    builder = pen()
    builder.crate((0.0, 0.0, 0.2), CUBE, "red")
    builder.door(SHUT, OPEN, "red", [builder.sensor((SIZE, 0.0, 1.1), (0.02, 0.3, 0.6), "red", (0,), must_stay=True)])
    grip = {"grip": True}
    parts = (15, grip), (5, {**grip, "look": -1.0}), (60, {**grip, "move": 1.0})
    played = run(finish(builder, at=(-1.2, 0.0)), controls(*parts))
    assert (played.effects.touched[:, 0] & (played.world.hand.held == -1)).any()
    assert not played.world.is_open.any()


@pytest.mark.parametrize("push", [0.0, 1.0], ids=["let go", "thrown"])
def test_a_sensor_that_must_stay_touched_is_not_fooled_by_what_falls_past_it(push: float) -> None:
    """Not even for a moment: whoever stands at the door then would slip through."""
    level = finish(with_sensor(height=0.9, must_stay=True), at=(-1.2, 0.0))
    parts = (15, {"grip": True}), (17, {"grip": True, "move": 1.0}), (1, {"push": push}), (30, {})
    played = run(level, controls(*parts))
    flies = (played.world.hand.held == -1) & (played.world.bodies.centre[:, 2, 0] > 0.25)
    assert (flies & played.effects.touched[:, 0]).any()
    assert not played.world.is_open.any()


def test_a_door_waits_until_nothing_stands_in_its_way() -> None:
    """One that rises from the ground at a touch, with the agent in the doorway at first."""
    level = finish(with_sensor(must_stay=True), at=(-1.5, 2.0), heading=-np.pi / 2)
    centre = level.start.centre.at[:, 0].set(jnp.array([SIZE - 0.2, 0.0, 0.2]))
    level = level._replace(
        start=level.start._replace(centre=centre), doors=Doors(level.doors.open, level.doors.shut, *level.doors[2:])
    )
    played = run(level, controls((10, {}), (20, {"move": 1.0})))
    assert played.world.is_on[:, 0].all()
    has_left = played.world.agent.centre[:, 1] < 2.0 - 0.3
    np.testing.assert_array_equal(played.world.is_open[:, 0], has_left)
    assert has_left[-1]
    assert played.overlap.max() <= SKIN


def test_apples_are_eaten_once_and_the_large_one_ends() -> None:
    builder = pen()
    builder.apple((1.0, 0.0, 0.3), 1.0)
    builder.apple((2.0, 0.0, 0.3), 10.0)
    played = run(finish(builder), controls((40, {"move": 1.0})))
    assert sorted(played.effects.reward[played.effects.reward != 0].tolist()) == [1.0, 10.0]
    assert played.effects.reward[played.effects.ends].tolist() == [10.0]


def test_zones_cost_whenever_they_are_entered() -> None:
    builder = pen()
    builder.zone((1.0, -1.0, 0.0), (1.4, 1.0, 0.02), -0.25)
    played = run(finish(builder), controls((15, {"move": 1.0}), (15, {"move": -1.0}), (2, {})))
    assert played.effects.reward[played.effects.reward != 0].tolist() == [-0.25, -0.25]


def with_gap(crate: float) -> Level:
    """No floor east of 1.4; the agent begins in the west, with a crate to the east of it."""
    builder = pen()
    builder.crate((crate, 0.0, 0.2), CUBE, "red")
    level = finish(builder, at=(-2.0, 0.0))
    half, centre = level.static.half.at[0, 0].set(2.2), level.static.centre.at[0, 0].set(-0.8)
    return level._replace(static=level.static._replace(half=half, centre=centre))


def test_an_agent_that_falls_comes_back_also_if_its_place_is_taken() -> None:
    """The crate that it has pushed there makes room for it."""
    around = (4, {"strafe": 1.0}), (16, {"move": 1.0}), (4, {"strafe": -1.0})
    played = run(with_gap(crate=-1.0), controls(*around, (13, {"move": -1.0}), (18, {"move": 1.0}), (20, {})))
    agent, crate = played.world.agent.centre, played.world.bodies.centre[:, :, 0]
    assert agent[:, 2].min() < 0.0
    assert crate[:, 0].min() < -1.8
    np.testing.assert_allclose(agent[-1], [-2.0, 0.0, 0.6], atol=5e-3)
    np.testing.assert_allclose(crate[-1], [-1.0, 0.0, 0.2], atol=5e-3)
    assert played.overlap.max() <= SKIN


def test_what_falls_comes_back_when_there_is_room() -> None:
    level = with_gap(crate=1.0)
    played = run(level, controls((26, {"move": 1.0}), (60, {"move": -1.0})))
    crate = played.world.bodies.centre[:, :, 0]
    assert crate[:, 2].min() < 0.0
    np.testing.assert_allclose(crate[-1], [1.0, 0.0, 0.2], atol=5e-3)
    assert played.overlap.max() <= SKIN


def test_what_hits_the_ceiling_comes_down_where_it_flies() -> None:
    """It is not at rest up there, where no hand gets it."""
    builder = pen()
    builder.crate((1.0, 0.0, 0.2), CUBE, "red")
    parts = (12, {"grip": True}), (12, {"grip": True, "look": -1.0}), (1, {"push": 1.0}), (40, {})
    bodies = run(finish(builder), controls(*parts)).world.bodies
    in_the_air = bodies.centre[:, 2, 0] > 0.25
    assert (bodies.velocity[in_the_air, 2, 0] != 0.0).all()
    crate = bodies.centre[24:, :, 0]
    assert crate[:, 2].max() == pytest.approx(CEILING - 0.2, abs=SKIN)
    assert np.abs(np.diff(crate, axis=0)).max() < 1.0
    assert crate[-1, 2] == pytest.approx(0.2, abs=SKIN)
    assert crate[-1, 0] > 1.5


def test_what_rests_where_no_hand_gets_it_comes_back() -> None:
    """A crate on a post too high; one on a lower post stays."""
    builder = pen()
    for y, top in ((0.0, 1.8), (1.5, 0.6)):
        builder.box((-0.2, y - 0.2, 0.0), (0.2, y + 0.2, top), "stone")
        builder.crate((1.0, y, 0.2), CUBE, "red")
    level = finish(builder, at=(-2.0, 0.0))
    world = begin(level)
    there = world.bodies.centre.at[:, :2].set(jnp.array([[0.0, 0.0], [0.0, 1.5], [2.0, 0.8]]))
    moved = world._replace(bodies=world.bodies._replace(centre=there))
    world, _ = jax.jit(mechanisms.react)(level, moved)
    np.testing.assert_allclose(world.bodies.centre[:, :2].T, [[1.0, 0.0, 0.2], [0.0, 1.5, 0.8]], atol=1e-6)
