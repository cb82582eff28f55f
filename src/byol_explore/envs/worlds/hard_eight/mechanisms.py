"""What touches do: sensors that switch doors, keys that are used up, apples, zones that cost, and falls.

Which sensor moves which door is data of a level, so that the code is the same for all tasks.
"""

from typing import NamedTuple

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.hand import holds
from byol_explore.envs.worlds.hard_eight.world import (
    BODIES,
    FAR_BELOW,
    Boxes,
    Level,
    World,
    agent_hull,
    doors_now,
    joined,
    overlaps,
)
from byol_explore.types import Array

TOUCH = 0.03  # metres between a body and a sensor that count as touching
LARGE = 10.0  # reward of the apple that ends an episode
FALLEN = -1.0  # height at which something has fallen out of the level


class Effects(NamedTuple):
    """What a tick brought about, beside the world that it led to."""

    reward: Array  # []
    ends: Array  # [] whether the large apple was eaten
    touched: Array  # [K] sensors that a body touches which they accept


def react(level: Level, world: World) -> tuple[World, Effects]:
    """All that follows from where things are now."""
    world, touched = _switch(level, world)
    world = _open(level, world)
    world, eaten = _eat(level, world)
    world, entered = _enter(level, world)
    paid = jnp.sum(jnp.where(eaten, level.apples.reward, 0.0)) + jnp.sum(jnp.where(entered, level.zones.reward, 0.0))
    ends = jnp.any(eaten & (level.apples.reward >= LARGE))
    return _recover(level, world), Effects(paid, ends, touched)


def _switch(level: Level, world: World) -> tuple[World, Array]:
    """Sensors: latched by a touch, or on for as long as a body touches them that nobody holds."""
    sensors = level.sensors
    touches = overlaps(sensors.boxes, world.bodies.hull, TOUCH) & sensors.accepts  # [K, M]
    touches &= ~(sensors.must_stay[:, None] & holds(world.hand)[None])
    touched = jnp.any(touches, axis=1)
    used = jnp.any(touches & (sensors.uses_up & ~world.is_on)[:, None], axis=0)
    is_on = jnp.where(sensors.must_stay, touched, world.is_on | touched)
    return remove(world, used)._replace(is_on=is_on), touched


def remove(world: World, gone: Array) -> World:
    """The world without some bodies [M]."""
    bodies, hand = world.bodies, world.hand
    bodies = bodies._replace(
        centre=jnp.where(gone, FAR_BELOW, bodies.centre),
        half=jnp.where(gone, 0.0, bodies.half),
        velocity=jnp.where(gone, 0.0, bodies.velocity),
    )
    lost = jnp.any(gone & holds(hand))
    held, distance, force = (jnp.where(lost, empty, now) for empty, now in zip((-1, 0.0, 0.0), hand, strict=True))
    return world._replace(bodies=bodies, hand=hand._replace(held=held, distance=distance, force=force))


def _open(level: Level, world: World) -> World:
    """Doors go where their sensors want them, as soon as nothing is in the way."""
    needs = level.doors.needs
    wanted = jnp.all(~needs | world.is_on[None], axis=1) & jnp.any(needs, axis=1)
    there = doors_now(level, wanted)
    is_free = ~jnp.any(overlaps(there, movers(world)), axis=1)
    return world._replace(is_open=jnp.where(is_free, wanted, world.is_open))


def movers(world: World) -> Boxes:
    """[3, 1 + M] hulls of the agent and of the bodies."""
    return joined(agent_hull(world.agent.centre), world.bodies.hull)


def _eat(level: Level, world: World) -> tuple[World, Array]:
    apples = Boxes(level.apples.centre, jnp.broadcast_to(level.apples.radius, level.apples.centre.shape))
    eaten = overlaps(apples, agent_hull(world.agent.centre), TOUCH)[:, 0] & ~world.eaten
    return world._replace(eaten=world.eaten | eaten), eaten


def _enter(level: Level, world: World) -> tuple[World, Array]:
    inside = overlaps(level.zones.boxes, agent_hull(world.agent.centre))[:, 0]
    return world._replace(inside=inside), inside & ~world.inside


def _recover(level: Level, world: World) -> World:
    """Whoever has fallen out of the level is where it was at first again, as soon as there is room."""
    agent, bodies = world.agent, world.bodies
    first = world._replace(bodies=level.start, agent=agent._replace(centre=level.entrance))
    now, start = movers(world), movers(first)
    taken = jnp.any(overlaps(start, now) & ~jnp.eye(BODIES + 1, dtype=bool), axis=1)
    taken |= jnp.any(overlaps(start, doors_now(level, world.is_open)), axis=1)
    returns = (now.centre[2] < FALLEN) & (now.half[2] > 0.0) & ~taken
    bodies = bodies._replace(
        centre=jnp.where(returns[1:], level.start.centre, bodies.centre),
        yaw=jnp.where(returns[1:], level.start.yaw, bodies.yaw),
        velocity=jnp.where(returns[1:], 0.0, bodies.velocity),
    )
    agent = agent._replace(
        centre=jnp.where(returns[0], level.entrance, agent.centre),
        velocity=jnp.where(returns[0], 0.0, agent.velocity),
    )
    return world._replace(bodies=bodies, agent=agent)
