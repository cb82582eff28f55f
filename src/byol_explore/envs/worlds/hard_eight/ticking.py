"""One tick of a world: the agent turns, the hand acts, everything moves, and then what touches takes effect."""

from typing import NamedTuple

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight import hand, mechanisms
from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.mechanisms import Effects
from byol_explore.envs.worlds.hard_eight.physics import BLOCKED, GRAVITY, SKIN, STEP, TICK, Movers, room, sweep
from byol_explore.envs.worlds.hard_eight.world import (
    BODIES,
    CRATES,
    Agent,
    Bodies,
    Boxes,
    Level,
    World,
    agent_hull,
    joined,
    obstacles,
)
from byol_explore.types import Array

WALK = 3.0  # m/s
TURN = 2.6  # radians per second
NOD = 1.6  # radians per second
STEEPEST = 1.1  # radians that one can look up or down
FASTEST = 12.0  # m/s that anything can be
FALLING = 1e-3  # m/s, the least that tells a body in the air from one that lies on something
SLIDES = (0.3, 0.97)  # share of their velocity that crates and balls keep in a tick on the ground


def tick(level: Level, world: World, control: Control) -> tuple[World, Effects]:
    """A fifteenth of a second."""
    fixed = obstacles(level, world.is_open)
    turned = -TURN * TICK * control.turn
    world = world._replace(agent=_turn(world.agent, turned, control))
    world = hand.use(level, world, control, turned, fixed)
    return mechanisms.react(level, _move(level, world, control, fixed))


def _turn(agent: Agent, turned: Array, control: Control) -> Agent:
    pitch = jnp.clip(agent.pitch - NOD * TICK * control.look, -STEEPEST, STEEPEST)
    yaw = agent.yaw + turned
    return agent._replace(yaw=jnp.arctan2(jnp.sin(yaw), jnp.cos(yaw)), pitch=pitch)


class _Wishes(NamedTuple):
    """Where the agent and the bodies want to go within the tick."""

    agent: Array  # [3]
    bodies: Array  # [3, M]


def _move(level: Level, world: World, control: Control, fixed: Boxes) -> World:
    """The agent takes a step up first, as high as it can, so that low obstacles do not stop it, and comes down last."""
    agent, bodies = world.agent, world.bodies
    lift = jnp.where(agent.stands, _headroom(level, world, fixed), 0.0)
    wishes = _wishes(world, control)
    raised = agent.centre + lift * jnp.array([0.0, 0.0, 1.0])
    hulls = mechanisms.movers(world._replace(agent=agent._replace(centre=raised)))
    wish = jnp.concatenate([wishes.agent[:, None].at[2].add(-lift), wishes.bodies], axis=1)
    yields = jnp.arange(BODIES + 1) > 0
    moved = sweep(Movers(hulls, wish, yields), fixed, level.low, level.high)
    held = hand.holds(world.hand)
    in_hand = jnp.where(held, 1.0, 0.0)
    new_hand = hand.strained(world.hand, wishes.bodies @ in_hand, moved[:, 1:] @ in_hand)
    return world._replace(
        agent=_carried(agent, raised + moved[:, 0], moved[2, 0] > wish[2, 0] + BLOCKED),
        bodies=_slowed(bodies, wish[2, 1:], moved[:, 1:], held),
        hand=new_hand,
    )


def _headroom(level: Level, world: World, fixed: Boxes) -> Array:
    """How high a step the agent could take here."""
    hull, above = agent_hull(world.agent.centre), joined(fixed, world.bodies.hull)
    return jnp.minimum(STEP, room(hull, above, 2, jnp.ones((1,)), level.low[2], level.high[2])[0])


def _wishes(world: World, control: Control) -> _Wishes:
    agent, bodies = world.agent, world.bodies
    way = control.move * agent.heading + control.strafe * agent.right
    way = way / jnp.maximum(1.0, jnp.sqrt(jnp.sum(way * way)))
    fall = jnp.array([0.0, 0.0, -GRAVITY * TICK])
    walk = TICK * (WALK * way + agent.velocity * jnp.array([0.0, 0.0, 1.0]) + fall)
    drawn = hand.place(agent, world.hand)[:, None] - bodies.centre
    drawn = jnp.clip(drawn, -hand.SPEED * TICK, hand.SPEED * TICK) + TICK * WALK * way[:, None]
    drawn = drawn.at[2].set(jnp.where(_under_feet(world), jnp.minimum(drawn[2], 0.0), drawn[2]))
    free = TICK * jnp.clip(bodies.velocity + fall[:, None], -FASTEST, FASTEST)
    free = jnp.where(bodies.half[2] > 0.0, free, 0.0)
    return _Wishes(walk, jnp.where(hand.holds(world.hand), drawn, free))


def _under_feet(world: World) -> Array:
    """[M] bodies below the agent, which cannot lift itself by what it stands on."""
    hull, agent = world.bodies.hull, agent_hull(world.agent.centre)
    aside = jnp.abs(hull.centre - agent.centre) - hull.half - agent.half
    return jnp.all(aside[:2] < SKIN, axis=0) & (hull.centre[2] < agent.low[2])


def _carried(agent: Agent, centre: Array, stands: Array) -> Agent:
    """The agent at its new place; it never flies upwards, whatever step it has climbed."""
    velocity = (centre - agent.centre) / TICK
    upwards = jnp.where(stands, 0.0, jnp.clip(velocity[2], -FASTEST, 0.0))
    return agent._replace(centre=centre, velocity=velocity.at[2].set(upwards), stands=stands)


def _slowed(bodies: Bodies, fall: Array, moved: Array, held: Array) -> Bodies:
    """Bodies at their new places, with the velocity of what they did; the ground slows them down.

    Only what lies on something is still upwards and downwards: a body that the ceiling stops, or that a hand keeps
    where it is, is about to fall.
    """
    on_ground = (moved[2] > fall + BLOCKED) & (fall < 0.0)
    slides = jnp.where(jnp.arange(BODIES) < CRATES, *SLIDES)
    keeps = jnp.where(on_ground & ~held, slides, 1.0)
    velocity = jnp.clip(moved / TICK * keeps, -FASTEST, FASTEST)
    in_the_air = jnp.where((velocity[2] == 0.0) & (bodies.half[2] > 0.0), -FALLING, velocity[2])
    velocity = velocity.at[2].set(jnp.where(on_ground & ~held, 0.0, in_the_air))
    return bodies._replace(centre=bodies.centre + moved, velocity=velocity)
