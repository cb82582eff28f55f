"""Interactions of the agent and the bodies: hand, sensors, doors, apples, zones and respawn.

Hand: a closing hand grasps the body nearest to the middle of the view, if that body is within reach, not too far to the
side and not hidden. While the grip is closed the body moves towards a point in front of the eye; it collides on the
way, and is dropped after it was blocked for too long. A released body keeps its velocity; a push at release throws it.

Contacts: sensors switch doors, some keys are used up, apples are eaten, zones cost reward, and bodies that left the
level return. Which sensor moves which door is data of the level, so all tasks share this code.

Axis letters as in `world`: S static boxes, D doors, K sensors, M bodies, A apples, Z zones.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight.tasks import TICK
from byol_explore.envs.hard_eight.world import (
    BODIES,
    FAR_BELOW,
    SKIN,
    Agent,
    Bodies,
    Boxes,
    Control,
    Hand,
    Level,
    World,
    agent_hull,
    concat_boxes,
    current_doors,
    overlaps,
    segment_crosses,
)
from byol_explore.types import Array

REACH = 1.8  # metres from the eye
MAX_GRASP_HEIGHT = 1.5  # metres above the feet; higher bodies cannot be grasped
MAX_SIDE_RATIO = 0.5  # largest sideways / forward distance of a body that can be grasped
MIN_DISTANCE, MAX_DISTANCE = 0.8, 1.8  # metres between the eye and the held body
MIN_LEVEL_DISTANCE = 0.7  # metres, horizontal part of that distance at any pitch
HAND_SPEED = 4.0  # m/s, largest speed of the held body relative to the agent
PUSH_SPEED = 3.0  # m/s, of pushing and pulling
THROW_SPEED = 8.0  # m/s, added by a full push at release
ROTATE_SPEED = 2.0  # rad/s, of the held body
STRAIN, STRAIN_DECAY = 0.5, 0.8  # strain <- STRAIN_DECAY strain + STRAIN (fraction of the move that was blocked)


def update_hand(level: Level, world: World, control: Control, agent_turn: Array, fixed: Boxes) -> World:
    """Grasp, hold or release; rotate the held body along with the agent, which has just turned by `agent_turn` rad."""
    held = world.hand.held
    world = _take_or_release(level, world, control, fixed)
    still_held = (held >= 0) & (world.hand.held >= 0)
    world = world._replace(bodies=_rotate_held(world, agent_turn + ROTATE_SPEED * TICK * control.rotate_held, fixed))
    distance = jnp.clip(world.hand.distance + PUSH_SPEED * TICK * control.push_held, MIN_DISTANCE, MAX_DISTANCE)
    return world._replace(hand=world.hand._replace(distance=jnp.where(still_held, distance, world.hand.distance)))


def held_mask(hand: Hand) -> Array:
    """[M] True for the held body."""
    return jnp.arange(BODIES) == hand.held


def hold_point(agent: Agent, hand: Hand) -> Array:
    """[3] point to which the held body is moved."""
    level = jnp.maximum(hand.distance * jnp.cos(agent.pitch), MIN_LEVEL_DISTANCE)
    height = jnp.array([0.0, 0.0, 1.0]) * hand.distance * jnp.sin(agent.pitch)
    return agent.eye + level * agent.heading + height


def update_strain(hand: Hand, wanted_move: Array, moved: Array) -> Hand:
    """Return the hand after a tick: `wanted_move` [3] and `moved` [3] of the held body. It opens at a strain of 1."""
    held_back = jnp.max(jnp.abs(wanted_move - moved)) / (HAND_SPEED * TICK)
    force = jnp.where(hand.held >= 0, STRAIN_DECAY * hand.strain + STRAIN * held_back, 0.0)
    keeps = force < 1.0
    return Hand(jnp.where(keeps, hand.held, -1), jnp.where(keeps, hand.distance, 0.0), jnp.minimum(force, 1.0))


def _take_or_release(level: Level, world: World, control: Control, fixed: Boxes) -> World:
    agent, hand, bodies = world.agent, world.hand, world.bodies
    chosen, distance = _grasp_candidate(level, agent, bodies, fixed)
    empty = hand.held < 0
    held = jnp.where(control.grip, jnp.where(empty, chosen, hand.held), -1)
    keeps = jnp.where(empty, jnp.clip(distance, MIN_DISTANCE, MAX_DISTANCE), hand.distance)
    thrown = held_mask(hand) & ~control.grip
    throw = jnp.maximum(control.push_held, 0.0) * THROW_SPEED * agent.look
    velocity = jnp.where(thrown, bodies.velocity + throw[:, None], bodies.velocity)
    hand = Hand(held, jnp.where(held >= 0, keeps, 0.0), jnp.where(held >= 0, hand.strain, 0.0))
    return world._replace(hand=hand, bodies=bodies._replace(velocity=velocity))


def _grasp_candidate(level: Level, agent: Agent, bodies: Bodies, fixed: Boxes) -> tuple[Array, Array]:
    """Return the index of the body that a closing hand grasps (-1: none), and its distance in metres."""
    way = bodies.centre - agent.eye[:, None]  # [3, M]
    distance = jnp.sqrt(jnp.sum(way * way, axis=0))  # [M], as the following
    aside = jnp.sum(way * agent.right[:, None], axis=0)
    ahead = jnp.sum(way * agent.heading[:, None], axis=0)
    height = bodies.centre[2] - (agent_hull(agent.centre).low[2])
    near = (distance < REACH) & (ahead > 0.3) & (jnp.abs(aside) < MAX_SIDE_RATIO * ahead) & (height < MAX_GRASP_HEIGHT)
    cosine = jnp.sum(way * agent.look[:, None], axis=0) / jnp.maximum(distance, 1e-3)  # of the angle to the view axis
    cosine = jnp.where(near & level.liftable & (bodies.half[2] > 0.0), cosine, -2.0)
    best = jnp.argmax(cosine).astype(jnp.int32)
    can = (cosine[best] > -2.0) & ~is_occluded(agent.eye, bodies.centre[:, best], fixed)
    return jnp.where(can, best, -1), distance[best]


def is_occluded(eye: Array, point: Array, fixed: Boxes) -> Array:
    """[] bool, whether a box of `fixed` [3, N] intersects the segment from the eye [3] to a point [3]."""
    hits = segment_crosses(fixed.low - eye[:, None], fixed.high - eye[:, None], (point - eye)[:, None])
    return jnp.any(hits & (fixed.half[2] > 0.0))


def _rotate_held(world: World, angle: Array, fixed: Boxes) -> Bodies:
    """Return the bodies with the held one rotated by `angle`, unless its hull would then overlap something."""
    bodies, held = world.bodies, world.hand.held
    wanted = bodies._replace(yaw=jnp.where(held_mask(world.hand), bodies.yaw + angle, bodies.yaw))
    before, after = bodies.hull, wanted.hull
    others = concat_boxes(fixed, agent_hull(world.agent.centre), before)
    is_itself = jnp.arange(others.half.shape[1]) == others.half.shape[1] - BODIES + held
    hull = Boxes(after.centre[:, held][:, None], after.half[:, held][:, None])
    fits = ~jnp.any(overlaps(hull, others, -0.5 * SKIN)[0] & ~is_itself)
    return bodies._replace(yaw=jnp.where(fits, wanted.yaw, bodies.yaw))


TOUCH_MARGIN = 0.03  # metres; a body that is closer to a sensor touches it
LARGE_REWARD = 10.0  # reward of the apple that ends an episode
FALLEN_HEIGHT = -1.0  # metres; anything lower has fallen out of the level


class TickResult(NamedTuple):
    """Results of a tick other than the next world."""

    reward: Array  # []
    solved: Array  # [] bool, whether the large apple was eaten
    sensors_touched: Array  # [K] bool, sensors touched by a body that they accept, held or not


def apply_contacts(level: Level, world: World) -> tuple[World, TickResult]:
    """Apply everything that follows from the current positions: sensors, doors, apples, zones and respawns."""
    world, touched, active = _update_sensors(level, world)
    world = _update_doors(level, world, active)
    hull = agent_hull(world.agent.centre)
    apples = Boxes(level.apples.centre, jnp.broadcast_to(level.apples.radius, level.apples.centre.shape))
    eaten = overlaps(apples, hull, TOUCH_MARGIN)[:, 0] & ~world.apple_eaten
    in_zone = overlaps(level.zones.boxes, hull)[:, 0]
    entered = in_zone & ~world.in_zone
    world = world._replace(apple_eaten=world.apple_eaten | eaten, in_zone=in_zone)
    reward = jnp.sum(jnp.where(eaten, level.apples.reward, 0.0)) + jnp.sum(jnp.where(entered, level.zones.reward, 0.0))
    solved = jnp.any(eaten & (level.apples.reward >= LARGE_REWARD))
    return _respawn(level, world), TickResult(reward, solved, touched)


def _update_sensors(level: Level, world: World) -> tuple[World, Array, Array]:
    """Return the world after sensors were touched, the touched sensors [K] and the active ones [K].

    An ordinary sensor stays on after the first touch, and is active while it is on. A momentary sensor is on (and
    lights up) only while it is touched, and is active only while a resting body touches it: a body that a hand presses
    against it or that flies past does not move the door.
    """
    sensors = level.sensors
    touches = overlaps(world.bodies.hull, sensors.boxes, TOUCH_MARGIN) & sensors.accepts  # [M, K]
    touched = jnp.any(touches, axis=0)
    consumed = jnp.any(touches & sensors.consumes_key & ~world.sensor_on, axis=1)
    is_on = touched | (world.sensor_on & ~sensors.momentary)
    active = jnp.where(sensors.momentary, jnp.any(touches & is_resting(world)[:, None], axis=0), is_on)
    return remove_bodies(world, consumed)._replace(sensor_on=is_on), touched, active


def is_resting(world: World) -> Array:
    """[M] bodies that lie on something and are carried neither by hand nor on the agent's head."""
    # `physics` sets the vertical velocity to exactly 0 only for bodies that lie on something.
    is_still = (world.bodies.velocity[2] == 0.0) & (world.bodies.half[2] > 0.0)
    return is_still & ~held_mask(world.hand) & ~_on_head(world)


def _on_head(world: World) -> Array:
    """[M] bodies that lie on top of the agent."""
    hull, agent = world.bodies.hull, agent_hull(world.agent.centre)
    return overlaps(hull, agent, SKIN)[:, 0] & (hull.low[2] > agent.high[2] - SKIN)


def remove_bodies(world: World, gone: Array) -> World:
    """Return the world without the bodies `gone` [M]; the hand lets go of them."""
    bodies, hand = world.bodies, world.hand
    bodies = bodies._replace(
        centre=jnp.where(gone, FAR_BELOW, bodies.centre),
        half=jnp.where(gone, 0.0, bodies.half),
        velocity=jnp.where(gone, 0.0, bodies.velocity),
    )
    lost = jnp.any(gone & held_mask(hand))
    hand = Hand(*(jnp.where(lost, empty, now) for empty, now in zip((-1, 0.0, 0.0), hand, strict=True)))
    return world._replace(bodies=bodies, hand=hand)


def _update_doors(level: Level, world: World, active: Array) -> World:
    """Move each door [D] to where its sensors want it, as soon as nothing is in the way."""
    needs = level.doors.needs
    wanted = jnp.all(~needs | active[:, None], axis=0) & jnp.any(needs, axis=0)
    there = current_doors(level, wanted)
    is_free = ~jnp.any(overlaps(there, moving_hulls(world)), axis=1)
    return world._replace(door_open=jnp.where(is_free, wanted, world.door_open))


def moving_hulls(world: World) -> Boxes:
    """[3, 1 + M] hulls of the agent (first) and of the bodies."""
    return concat_boxes(agent_hull(world.agent.centre), world.bodies.hull)


def _respawn(level: Level, world: World) -> World:
    """Respawn the agent and the bodies that fell out of the level, once their spawn point is free.

    Also respawn a body that rests where no hand reaches it, on a post or on the plinth, and one that blocks the spawn
    point of a fallen agent: otherwise a level could become unsolvable.
    """
    agent, bodies = world.agent, world.bodies
    first = world._replace(bodies=level.initial_bodies, agent=agent._replace(centre=level.spawn))
    now, start = moving_hulls(world), moving_hulls(first)  # [3, 1 + M]
    blocks = overlaps(start, now) & ~jnp.eye(BODIES + 1, dtype=bool)  # [i, j] j blocks the spawn point of i
    taken = jnp.any(blocks, axis=1)  # [1 + M]
    taken |= jnp.any(overlaps(start, current_doors(level, world.door_open)), axis=1)
    is_lost = (now.centre[2] < FALLEN_HEIGHT) & (now.half[2] > 0.0)
    is_lost = is_lost.at[1:].set(is_lost[1:] | _out_of_reach(level, world) | (is_lost[0] & blocks[0, 1:]))
    returns = is_lost & ~taken
    bodies = jax.tree.map(partial(jnp.where, returns[1:]), level.initial_bodies, bodies)
    agent = agent._replace(
        centre=jnp.where(returns[0], level.spawn, agent.centre),
        velocity=jnp.where(returns[0], 0.0, agent.velocity),
    )
    return world._replace(bodies=bodies, agent=agent)


def _out_of_reach(level: Level, world: World) -> Array:
    """[M] bodies that rest higher than a hand reaches from the ground, and higher than they started."""
    height = world.bodies.centre[2]
    return is_resting(world) & (height > MAX_GRASP_HEIGHT) & (height > level.initial_bodies.centre[2] + 0.1)
