"""What touches do: sensors that switch doors, keys that are used up, apples, zones that cost, and falls.

Which sensor moves which door is data of a level, so that the code is the same for all tasks.
"""

from typing import NamedTuple

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.hand import HIGHEST, holds
from byol_explore.envs.worlds.hard_eight.physics import SKIN
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
    touched: Array  # [K] sensors that a body touches which they accept, in a hand or not


def react(level: Level, world: World) -> tuple[World, Effects]:
    """All that follows from where things are now."""
    world, touched, works = _switch(level, world)
    world = _open(level, world, works)
    world, eaten = _eat(level, world)
    world, entered = _enter(level, world)
    paid = jnp.sum(jnp.where(eaten, level.apples.reward, 0.0)) + jnp.sum(jnp.where(entered, level.zones.reward, 0.0))
    ends = jnp.any(eaten & (level.apples.reward >= LARGE))
    return _recover(level, world), Effects(paid, ends, touched)


def _switch(level: Level, world: World) -> tuple[World, Array, Array]:
    """The world after sensors were touched, which of them are [K], and which work [K].

    Most are on for good after a touch, and work as soon as they are on. One that must stay touched is on while it is
    touched, which shows, and works only while a body touches it that rests on something: one in a hand, however
    precisely it is pressed, does not move the door, nor does one that flies by.
    """
    sensors = level.sensors
    touches = overlaps(sensors.boxes, world.bodies.hull, TOUCH) & sensors.accepts  # [K, M]
    touched = jnp.any(touches, axis=1)
    used = jnp.any(touches & (sensors.uses_up & ~world.is_on)[:, None], axis=0)
    is_on = touched | (world.is_on & ~sensors.must_stay)
    works = jnp.where(sensors.must_stay, jnp.any(touches & rests(world)[None], axis=1), is_on)
    return remove(world, used)._replace(is_on=is_on), touched, works


def rests(world: World) -> Array:
    """[M] bodies that lie on something and that nobody carries, by hand or on the head: these are not about to fall."""
    is_still = (world.bodies.velocity[2] == 0.0) & (world.bodies.half[2] > 0.0)
    return is_still & ~holds(world.hand) & ~_on_head(world)


def _on_head(world: World) -> Array:
    """[M] bodies that lie on the agent."""
    hull, agent = world.bodies.hull, agent_hull(world.agent.centre)
    return overlaps(hull, agent, SKIN)[:, 0] & (hull.low[2] > agent.high[2] - SKIN)


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


def _open(level: Level, world: World, works: Array) -> World:
    """Doors go where their sensors want them, as soon as nothing is in the way."""
    needs = level.doors.needs
    wanted = jnp.all(~needs | works[None], axis=1) & jnp.any(needs, axis=1)
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
    """Whoever has fallen out of the level is where it was at first again, as soon as there is room.

    So is a body that has come to rest where no hand gets it, on a post or on the plinth, or that takes the place to
    which a fallen agent returns: no level becomes unsolvable by that.
    """
    agent, bodies = world.agent, world.bodies
    first = world._replace(bodies=level.start, agent=agent._replace(centre=level.entrance))
    now, start = movers(world), movers(first)
    takes = overlaps(start, now) & ~jnp.eye(BODIES + 1, dtype=bool)  # [whose place, who takes it]
    taken = jnp.any(takes, axis=1)
    taken |= jnp.any(overlaps(start, doors_now(level, world.is_open)), axis=1)
    is_lost = (now.centre[2] < FALLEN) & (now.half[2] > 0.0)
    is_lost = is_lost.at[1:].set(is_lost[1:] | _out_of_reach(level, world) | (is_lost[0] & takes[0, 1:]))
    returns = is_lost & ~taken
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


def _out_of_reach(level: Level, world: World) -> Array:
    """[M] bodies that rest higher than a hand gets from the ground, and not where they belong."""
    height = world.bodies.centre[2]
    return rests(world) & (height > HIGHEST) & (height > level.start.centre[2] + 0.1)
