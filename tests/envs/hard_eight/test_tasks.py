"""Stages of episodes, as logs and pages tell of them."""

import jax
import jax.numpy as jnp
import pytest

from byol_explore.envs.worlds.hard_eight import tasks
from byol_explore.envs.worlds.hard_eight.mechanisms import react
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.world import CRATES, Level, World, begin
from envs.hard_eight.pens import finish, pen


@pytest.fixture(scope="module")
def level() -> Level:
    """Two crates on the ground and a ball on a plinth."""
    builder = pen()
    for x in (0.0, 1.0):
        builder.crate((x, 1.0, 0.2), (0.2,) * 3, "red")
    builder.box((-1.2, 0.8, 0.0), (-0.8, 1.2, 1.7), "stone")
    builder.ball((-1.0, 1.0, 1.9), 0.2, "red")
    return finish(builder)


def with_body(level: Level, body: int, place: tuple[float, float, float], *, held: bool = False) -> World:
    world = begin(level)
    centre = world.bodies.centre.at[:, body].set(jnp.array(place))
    hand = world.hand._replace(held=jnp.where(held, body, -1))
    return world._replace(bodies=world.bodies._replace(centre=centre), hand=hand)


def reached(level: Level, world: World) -> set[str]:
    now = jax.jit(lambda world: tasks.stages(level, *react(level, world)))(world)
    return {name for name, is_there in zip(tasks.STAGES, now.tolist(), strict=True) if is_there}


def test_nothing_is_reached_at_first(level: Level) -> None:
    assert reached(level, begin(level)) == set()


def test_what_is_done_with_bodies(level: Level) -> None:
    assert reached(level, with_body(level, 0, (0.0, 1.0, 0.9), held=True)) == {"lifted"}
    assert reached(level, with_body(level, 0, (1.0, 1.0, 0.6))) == {"moved", "stacked"}
    assert reached(level, with_body(level, 0, (0.0, 0.0, 1.41))) == {"moved"}, "on the agent's head is no pile"
    assert reached(level, with_body(level, CRATES, (-1.5, 1.0, 0.2))) == {"moved", "knocked down"}


def test_the_agent_climbs(level: Level) -> None:
    world = begin(level)
    assert reached(level, world._replace(agent=world.agent._replace(centre=world.agent.centre.at[2].add(0.3)))) == {
        "climbed"
    }


def test_every_task_has_a_first_step() -> None:
    assert all(task.first in tasks.STAGES[:-1] for task in tasks.TABLE)
    assert {name: task.first for name, task in zip(TASKS, tasks.TABLE, strict=True)}["baseball"] == "knocked down"
