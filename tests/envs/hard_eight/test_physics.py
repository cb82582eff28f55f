"""Physics: invariants under random controls, and simple cases with a known outcome."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byol_explore.envs.hard_eight.tasks import TICK
from byol_explore.envs.hard_eight.world import BODIES, CRATES, SKIN, Level
from envs.hard_eight.arena import SIZE, Played, controls, make_level, padded_play, play, random_controls, walled_arena

run = padded_play(150)
HALF = 0.2


def crowded_level(seed: int) -> Level:
    """An arena full of rotated crates and balls without overlaps, with a thin wall across."""
    rng = np.random.default_rng(seed)
    builder = walled_arena(wall=0.1)
    places = [(x, y) for x in (-2.0, -1.0, 0.0, 1.0, 2.0) for y in (-2.0, -1.0, 1.0, 2.0)]
    for x, y in np.asarray(places)[rng.permutation(len(places))[:12]]:
        half = rng.uniform(0.1, 0.3, 3)
        builder.crate((x, y, half[2] + rng.uniform(0, 1)), half, "red", yaw=rng.uniform(-3, 3))
    for x in (-1.0, 1.0):
        builder.ball((x, 0.0, 0.25), 0.2, "blue")
    builder.box((-0.05, -SIZE, 0.0), (0.05, -2.6, 3.0), "wall")
    return make_level(builder, heading=rng.uniform(-3, 3))


def assert_in_order(played: Played) -> None:
    assert np.max(played.overlap) <= SKIN
    for places in (played.world.bodies.centre, played.world.agent.centre[..., None]):
        assert np.isfinite(places).all()
        is_there = places[:, 2] > -50
        assert (np.abs(places[:, :2]).max(1) < SIZE)[is_there].all(), "a body left the arena"
        assert (places[:, 2] > 0.0)[is_there].all(), "a body sank into the floor"


@given(seed=st.integers(0, 2**31))
@settings(max_examples=12, deadline=None)
def test_nothing_overlaps_or_leaves_the_arena(seed: int) -> None:
    assert_in_order(run(crowded_level(seed), random_controls(seed, 150)))


@pytest.mark.slow
def test_nothing_overlaps_in_64_worlds_for_1000_ticks() -> None:
    levels, plays = jax.tree.map(
        lambda *xs: jnp.stack(xs), *[(crowded_level(s), random_controls(s, 1000)) for s in range(64)]
    )
    played = jax.tree.map(np.asarray, jax.vmap(play)(levels, plays))
    for index in range(64):
        assert_in_order(jax.tree.map(lambda x, i=index: x[i], played))


def test_physics_is_deterministic() -> None:
    first, second = (run(crowded_level(3), random_controls(3, 150)) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (first, second)), strict=True))


def stack_of(count: int) -> Level:
    builder = walled_arena()
    for floor in range(count):
        builder.crate((2.0, 0.0, HALF + 2 * HALF * floor), (HALF,) * 3, "red", yaw=0.1 * floor)
    return make_level(builder)


def test_stack_of_three_stands_still() -> None:
    centre = run(stack_of(3), controls((150, {}))).world.bodies.centre
    np.testing.assert_allclose(centre[-1], centre[0], atol=1e-5)
    np.testing.assert_allclose(centre[-1, 2, :3], [0.2, 0.6, 1.0], atol=2e-3)


@pytest.mark.slow
def test_stack_of_three_stands_still_for_1000_ticks() -> None:
    centre = np.asarray(play(stack_of(3), controls((1000, {}))).world.bodies.centre)
    np.testing.assert_allclose(centre[-1], centre[0], atol=1e-5)


def row_of(count: int) -> Level:
    builder = walled_arena()
    for index in range(count):
        builder.crate((-1.8 + 0.4 * index, 0.0, HALF), (HALF,) * 3, "red")
    return make_level(builder, at=(-2.6, 0.0))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_row_of_crates_is_pushed_at_walking_speed(count: int) -> None:
    """Until the first crate meets the wall; then everything stops."""
    played = run(row_of(count), controls((60, {"move": 1.0})))
    east = played.world.bodies.centre[:, 0, :count]
    started = np.flatnonzero(east[:, -1] > east[0, -1] + 0.05)[0]
    assert east[started + 2, -1] - east[started, -1] == pytest.approx(2 * 3.0 * TICK, abs=0.01)
    np.testing.assert_allclose(east[-1], SIZE - HALF - 2 * HALF * np.arange(count)[::-1], atol=5e-3)
    assert played.world.agent.centre[-1, 0] == pytest.approx(east[-1, 0] - HALF - 0.2, abs=5e-3)


def test_pushed_crate_stops_and_pushed_ball_rolls_on() -> None:
    builder = walled_arena()
    builder.crate((0.0, 1.0, HALF), (HALF,) * 3, "red")
    builder.ball((0.0, -1.0, HALF), HALF, "blue")
    level = make_level(builder, at=(-1.0, 0.0))
    for side, rest, lowest, highest in ((1.0, 0, 0.0, 0.15), (-1.0, CRATES, 0.5, 3.0)):
        moved = level._replace(spawn=level.spawn.at[1].set(side))
        played = run(moved, controls((8, {"move": 1.0}), (60, {})))
        centre = played.world.bodies.centre[:, 0, rest]
        assert lowest < centre[-1] - centre[8] < highest


def test_agent_climbs_steps_but_not_walls() -> None:
    builder = walled_arena()
    for index, x in enumerate((0.5, 1.0, 1.5)):
        builder.box((x, -1.0, 0.0), (x + 0.5 if index < 2 else SIZE, 1.0, 0.3 * (index + 1)), "stone")
    played = run(make_level(builder), controls((40, {"move": 1.0})))
    assert played.world.agent.centre[-1, 2] == pytest.approx(0.6 + 0.9, abs=5e-3)
    assert np.max(np.diff(played.world.agent.centre[:, 2])) < 0.35
    builder = walled_arena()
    builder.box((1.0, -1.0, 0.0), (1.5, 1.0, 0.4), "stone")
    played = run(make_level(builder), controls((40, {"move": 1.0})))
    assert played.world.agent.centre[-1, 0] == pytest.approx(0.8, abs=5e-3)
    assert played.world.agent.centre[-1, 2] == pytest.approx(0.6, abs=5e-3)


def test_agent_that_falls_into_a_gap_respawns_at_the_entrance() -> None:
    builder = walled_arena()
    hole = builder.crate((2.0, 2.0, HALF), (HALF,) * 3, "red")
    level = make_level(builder, at=(-2.0, 0.0))
    narrow = level.static.half.at[0, 0].set(0.8), level.static.centre.at[0, 0].set(-SIZE + 0.8)
    level = level._replace(static=level.static._replace(half=narrow[0], centre=narrow[1]))
    played = run(level, controls((60, {"move": 1.0})))
    agent = played.world.agent.centre
    assert agent[:, 2].min() < 0.0
    lowest = agent[:, 2].argmin()
    np.testing.assert_allclose(agent[lowest + 1], level.spawn, atol=0.3)
    assert played.world.bodies.centre[:, 2, hole].min() < 0.0, "the crate has no floor either"
    assert played.overlap.max() <= SKIN


def test_fast_body_stops_at_a_thin_wall() -> None:
    """At 12 m/s a body travels 0.8 m per tick; the wall is 0.1 m thick."""
    builder = walled_arena(wall=0.1)
    builder.crate((0.0, 0.0, 1.5), (0.1, 0.1, 0.1), "red")
    builder.ball((0.0, 1.0, 1.5), 0.1, "blue")
    level = make_level(builder, at=(-2.0, -2.0))
    for x, y in ((12.0, 0.0), (-12.0, 12.0), (0.0, -12.0)):
        velocity = jnp.zeros((3, BODIES)).at[0].set(x).at[1].set(y)
        played = run(
            level._replace(initial_bodies=level.initial_bodies._replace(velocity=velocity)), controls((30, {}))
        )
        assert_in_order(played)
        at_wall = np.abs(played.world.bodies.centre[-1, :2, [0, CRATES]])
        assert at_wall.max() > SIZE - 0.2
