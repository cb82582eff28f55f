"""Sensors, doors, consumed keys, apples, zones and respawns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight import interactions
from byol_explore.envs.hard_eight.builder import Builder
from byol_explore.envs.hard_eight.world import CEILING, SKIN, Doors, Level, init_world
from envs.hard_eight.arena import SIZE, Played, controls, make_level, padded_play, walled_arena

run = padded_play(150)
CUBE = (0.2, 0.2, 0.2)
PLATE = (0.02, 0.3, 0.3)  # of a sensor on the eastern wall
SHUT = ((-2.0, 1.9, 0.0), (-1.0, 2.1, 2.0))
OPEN = ((-2.0, 1.9, -2.1), (-1.0, 2.1, -0.1))


def with_sensor(height: float = 0.3, accepts: tuple[int, ...] = (0,), **kinds: bool) -> Builder:
    """A crate to push east against a sensor, which opens a door in the west."""
    builder = walled_arena()
    builder.crate((0.0, 0.0, 0.2), CUBE, "red")
    builder.crate((0.0, 1.5, 0.2), CUBE, "blue")
    sensor = builder.sensor((SIZE, 0.0, height), PLATE, "red", accepts, **kinds)
    builder.door(SHUT, OPEN, "red", [sensor])
    return builder


def push(level: Level, *, then: float = 0.0) -> Played:
    return run(level, controls((30, {"move": 1.0}), (40, {"move": then})))


def test_touched_sensor_opens_its_door_permanently() -> None:
    played = push(make_level(with_sensor(), at=(-1.0, 0.0)), then=-1.0)
    is_on, is_open = played.world.sensor_on[:, 0], played.world.door_open[:, 0]
    assert not is_open[0]
    first = is_on.argmax()
    assert played.world.bodies.centre[first, 0, 0] == pytest.approx(SIZE - 0.2, abs=0.1)
    np.testing.assert_array_equal(is_on, is_open)
    assert is_open[first:].all()


def test_sensor_ignores_bodies_that_it_does_not_accept() -> None:
    assert not push(make_level(with_sensor(accepts=(1,)), at=(-1.0, 0.0))).world.sensor_on.any()


def test_sensor_consumes_only_one_key() -> None:
    played = push(make_level(with_sensor(accepts=(0, 1), consumes_key=True), at=(-1.0, 0.0)))
    there = played.world.bodies.half[:, 2] > 0.0
    assert there[0, :2].all()
    assert there[-1, :2].tolist() == [False, True]
    assert played.world.door_open[-1, 0]


def test_consumed_key_leaves_the_hand() -> None:
    level = make_level(with_sensor(height=1.1, consumes_key=True), at=(-1.2, 0.0))
    played = run(level, controls((15, {"grip": True}), (30, {"grip": True, "move": 1.0})))
    assert played.world.hand.held[14] == 0
    assert played.world.hand.held[-1] == -1
    assert played.world.door_open[-1, 0]


def test_momentary_sensor_lights_up_but_opens_nothing_for_a_held_body() -> None:
    """A body that is pressed against it opens no door; a body that rests there does."""
    level = make_level(with_sensor(height=1.1, momentary=True), at=(-1.2, 0.0))
    pressed = run(level, controls((15, {"grip": True}), (60, {"grip": True, "move": 0.6})))
    touches = pressed.effects.sensors_touched[:, 0] & (pressed.world.hand.held == 0)
    assert touches.any()
    np.testing.assert_array_equal(pressed.world.sensor_on[:, 0], pressed.effects.sensors_touched[:, 0])
    assert not pressed.world.door_open.any()
    resting = push(make_level(with_sensor(momentary=True), at=(-1.0, 0.0)))
    assert resting.world.door_open[-1, 0]


def test_momentary_sensor_ignores_a_body_on_the_agents_head() -> None:
    """The hand drops a body that it presses too hard, and walking on brings the agent below it."""
    builder = walled_arena()
    builder.crate((0.0, 0.0, 0.2), CUBE, "red")
    builder.door(SHUT, OPEN, "red", [builder.sensor((SIZE, 0.0, 1.1), (0.02, 0.3, 0.6), "red", (0,), momentary=True)])
    grip = {"grip": True}
    parts = (15, grip), (5, {**grip, "look_down": -1.0}), (60, {**grip, "move": 1.0})
    played = run(make_level(builder, at=(-1.2, 0.0)), controls(*parts))
    assert (played.effects.sensors_touched[:, 0] & (played.world.hand.held == -1)).any()
    assert not played.world.door_open.any()


@pytest.mark.parametrize("push", [0.0, 1.0], ids=["let go", "thrown"])
def test_momentary_sensor_ignores_a_falling_body(push: float) -> None:
    """Not even for one tick, in which an agent at the door could slip through."""
    level = make_level(with_sensor(height=0.9, momentary=True), at=(-1.2, 0.0))
    parts = (15, {"grip": True}), (17, {"grip": True, "move": 1.0}), (1, {"push_held": push}), (30, {})
    played = run(level, controls(*parts))
    flies = (played.world.hand.held == -1) & (played.world.bodies.centre[:, 2, 0] > 0.25)
    assert (flies & played.effects.sensors_touched[:, 0]).any()
    assert not played.world.door_open.any()


def test_door_waits_until_its_way_is_free() -> None:
    """The door rises from the ground while the agent still stands in the doorway."""
    level = make_level(with_sensor(momentary=True), at=(-1.5, 2.0), heading=-np.pi / 2)
    centre = level.initial_bodies.centre.at[:, 0].set(jnp.array([SIZE - 0.2, 0.0, 0.2]))
    level = level._replace(
        initial_bodies=level.initial_bodies._replace(centre=centre),
        doors=Doors(level.doors.open, level.doors.shut, *level.doors[2:]),
    )
    played = run(level, controls((10, {}), (20, {"move": 1.0})))
    assert played.world.sensor_on[:, 0].all()
    has_left = played.world.agent.centre[:, 1] < 2.0 - 0.3
    np.testing.assert_array_equal(played.world.door_open[:, 0], has_left)
    assert has_left[-1]
    assert played.overlap.max() <= SKIN


def test_apples_are_eaten_once_and_the_large_one_solves() -> None:
    builder = walled_arena()
    builder.apple((1.0, 0.0, 0.3), 1.0)
    builder.apple((2.0, 0.0, 0.3), 10.0)
    played = run(make_level(builder), controls((40, {"move": 1.0})))
    assert sorted(played.effects.reward[played.effects.reward != 0].tolist()) == [1.0, 10.0]
    assert played.effects.reward[played.effects.solved].tolist() == [10.0]


def test_zone_costs_at_each_entry() -> None:
    builder = walled_arena()
    builder.zone((1.0, -1.0, 0.0), (1.4, 1.0, 0.02), -0.25)
    played = run(make_level(builder), controls((15, {"move": 1.0}), (15, {"move": -1.0}), (2, {})))
    assert played.effects.reward[played.effects.reward != 0].tolist() == [-0.25, -0.25]


def with_gap(crate: float) -> Level:
    """No floor east of x = 1.4. The agent starts in the west, with a crate to the east of it."""
    builder = walled_arena()
    builder.crate((crate, 0.0, 0.2), CUBE, "red")
    level = make_level(builder, at=(-2.0, 0.0))
    half, centre = level.static.half.at[0, 0].set(2.2), level.static.centre.at[0, 0].set(-0.8)
    return level._replace(static=level.static._replace(half=half, centre=centre))


def test_fallen_agent_respawns_even_if_its_spawn_point_is_taken() -> None:
    """The crate that was pushed there respawns first."""
    around = (4, {"strafe": 1.0}), (16, {"move": 1.0}), (4, {"strafe": -1.0})
    played = run(with_gap(crate=-1.0), controls(*around, (13, {"move": -1.0}), (18, {"move": 1.0}), (20, {})))
    agent, crate = played.world.agent.centre, played.world.bodies.centre[:, :, 0]
    assert agent[:, 2].min() < 0.0
    assert crate[:, 0].min() < -1.8
    np.testing.assert_allclose(agent[-1], [-2.0, 0.0, 0.6], atol=5e-3)
    np.testing.assert_allclose(crate[-1], [-1.0, 0.0, 0.2], atol=5e-3)
    assert played.overlap.max() <= SKIN


def test_fallen_body_respawns_when_its_spawn_point_is_free() -> None:
    level = with_gap(crate=1.0)
    played = run(level, controls((26, {"move": 1.0}), (60, {"move": -1.0})))
    crate = played.world.bodies.centre[:, :, 0]
    assert crate[:, 2].min() < 0.0
    np.testing.assert_allclose(crate[-1], [1.0, 0.0, 0.2], atol=5e-3)
    assert played.overlap.max() <= SKIN


def test_body_that_hits_the_ceiling_falls_again() -> None:
    """A body that the ceiling stops is not at rest, so it does not respawn as out of reach."""
    builder = walled_arena()
    builder.crate((1.0, 0.0, 0.2), CUBE, "red")
    parts = (12, {"grip": True}), (12, {"grip": True, "look_down": -1.0}), (1, {"push_held": 1.0}), (40, {})
    bodies = run(make_level(builder), controls(*parts)).world.bodies
    in_the_air = bodies.centre[:, 2, 0] > 0.25
    assert (bodies.velocity[in_the_air, 2, 0] != 0.0).all()
    crate = bodies.centre[24:, :, 0]
    assert crate[:, 2].max() == pytest.approx(CEILING - 0.2, abs=SKIN)
    assert np.abs(np.diff(crate, axis=0)).max() < 1.0
    assert crate[-1, 2] == pytest.approx(0.2, abs=SKIN)
    assert crate[-1, 0] > 1.5


def test_body_that_rests_out_of_reach_respawns() -> None:
    """A crate on a high post respawns; one on a lower post stays."""
    builder = walled_arena()
    for y, top in ((0.0, 1.8), (1.5, 0.6)):
        builder.box((-0.2, y - 0.2, 0.0), (0.2, y + 0.2, top), "stone")
        builder.crate((1.0, y, 0.2), CUBE, "red")
    level = make_level(builder, at=(-2.0, 0.0))
    world = init_world(level)
    there = world.bodies.centre.at[:, :2].set(jnp.array([[0.0, 0.0], [0.0, 1.5], [2.0, 0.8]]))
    moved = world._replace(bodies=world.bodies._replace(centre=there))
    world, _ = jax.jit(interactions.apply_contacts)(level, moved)
    np.testing.assert_allclose(world.bodies.centre[:, :2].T, [[1.0, 0.0, 0.2], [0.0, 1.5, 0.8]], atol=1e-6)
