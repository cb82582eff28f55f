"""Stages of episodes."""

import jax
import jax.numpy as jnp
import pytest

from byol_explore.envs.hard_eight import env, tasks
from byol_explore.envs.hard_eight.interactions import apply_contacts
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.world import CRATES, Level, World, init_world
from envs.hard_eight.arena import make_level, walled_arena


@pytest.fixture(scope="module")
def level() -> Level:
    """Two crates on the ground and a ball on a plinth."""
    builder = walled_arena()
    for x in (0.0, 1.0):
        builder.crate((x, 1.0, 0.2), (0.2,) * 3, "red")
    builder.box((-1.2, 0.8, 0.0), (-0.8, 1.2, 1.7), "stone")
    builder.ball((-1.0, 1.0, 1.9), 0.2, "red")
    return make_level(builder)


def with_body(level: Level, body: int, place: tuple[float, float, float], *, held: bool = False) -> World:
    world = init_world(level)
    centre = world.bodies.centre.at[:, body].set(jnp.array(place))
    hand = world.hand._replace(held=jnp.where(held, body, -1))
    return world._replace(bodies=world.bodies._replace(centre=centre), hand=hand)


def reached(level: Level, world: World) -> set[str]:
    now = jax.jit(lambda world: env.detect_stages(level, *apply_contacts(level, world)))(world)
    return {name for name, is_there in zip(tasks.STAGES, now.tolist(), strict=True) if is_there}


def test_no_stage_is_reached_at_the_start(level: Level) -> None:
    assert reached(level, init_world(level)) == set()


def test_stages_of_lifted_moved_stacked_and_knocked_bodies(level: Level) -> None:
    assert reached(level, with_body(level, 0, (0.0, 1.0, 0.9), held=True)) == {"lifted"}
    assert reached(level, with_body(level, 0, (1.0, 1.0, 0.6))) == {"moved", "stacked"}
    assert reached(level, with_body(level, 0, (0.0, 0.0, 1.41))) == {"moved"}, (
        "a body on the agent's head is not stacked"
    )
    assert reached(level, with_body(level, CRATES, (-1.5, 1.0, 0.2))) == {"moved", "knocked down"}


def test_climbing_reaches_its_stage(level: Level) -> None:
    world = init_world(level)
    assert reached(level, world._replace(agent=world.agent._replace(centre=world.agent.centre.at[2].add(0.3)))) == {
        "climbed"
    }


def test_every_task_has_a_first_stage() -> None:
    assert all(task.first_stage in tasks.STAGES[:-1] for task in tasks.TASK_TABLE.values())
    assert tuple(tasks.TASK_TABLE) == TASKS
    assert tasks.TASK_TABLE["baseball"].first_stage == "knocked down"
