"""Skills of the scripted experts: walk while looking at a point, pick up, press a sensor, pass a gate.

A skill returns an `Intent`: where to walk, what to look at, what the hand does. `intent_to_control` turns an intent
into an action. Points are [3], positions on the plan [2].
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight.interactions import is_occluded
from byol_explore.envs.hard_eight.physics import PITCH_SPEED, TURN_SPEED, WALK_SPEED
from byol_explore.envs.hard_eight.tasks import TICK
from byol_explore.envs.hard_eight.world import Control, Level, World, obstacles
from byol_explore.types import Array

GRASP_DISTANCE = 1.15  # metres from a body at which experts grasp it
APPROACH_DISTANCE = 1.7  # metres from a sensor at which experts line up before they bring the held body to it
CLEARANCE = 0.62  # metres that experts keep from bodies that they do not want to push


class Intent(NamedTuple):
    """Next goal of an expert."""

    position: Array  # [2] where to walk
    look: Array  # [3] point to look at
    grip: Array  # [] bool, whether the hand is closed
    push: Array  # [] in [-1, 1], push the held body away (positive) or pull it closer
    avoid_bodies: Array  # [M] bool, bodies to walk around
    avoid_posts: Array  # [] bool, whether to walk around posts


def intent_to_control(level: Level, world: World, intent: Intent, repeat: int) -> Control:
    """Return the control that comes closest to the intent within `repeat` ticks."""
    agent, span = world.agent, repeat * TICK
    way = intent.position - agent.centre[:2]
    way = _avoid_obstacles(level, world, way, intent) / (WALK_SPEED * span)
    way = way / jnp.maximum(1.0, norm(way))
    gaze = intent.look - agent.eye
    turn = _wrap_angle(jnp.arctan2(gaze[1], gaze[0]) - agent.yaw)
    pitch_error = jnp.arctan2(gaze[2], norm(gaze[:2])) - agent.pitch
    turn, zero = jnp.clip(turn / (TURN_SPEED * span), -1.0, 1.0), jnp.zeros(())
    mean = agent._replace(yaw=agent.yaw + turn * TURN_SPEED * TICK * (repeat + 1) / 2)  # the yaw changes while it walks
    return Control(
        move=way @ mean.heading[:2],
        strafe=way @ mean.right[:2],
        look_down=jnp.clip(-pitch_error / (PITCH_SPEED * span), -1.0, 1.0),
        turn_right=-turn,
        roll=zero, tilt=zero, rotate_held=zero, push_held=intent.push, grip=intent.grip,
    )  # fmt: skip


def _avoid_obstacles(level: Level, world: World, way: Array, intent: Intent) -> Array:
    """[2] the way, bent around the nearest body or post straight ahead."""
    distance = norm(way)
    ahead = way / jnp.maximum(distance, 1e-3)
    aside = jnp.stack([-ahead[1], ahead[0]])
    static = level.static
    is_post = (static.half[0] < 0.4) & (static.half[1] < 0.4) & (static.half[2] > 0.3) & intent.avoid_posts
    centre = jnp.concatenate([world.bodies.centre, static.centre], axis=1)
    things = centre[:2] - world.agent.centre[:2, None]
    along, across = ahead @ things, aside @ things
    low = jnp.abs(centre[2] - world.agent.centre[2]) < 1.2
    in_way = (
        jnp.concatenate([intent.avoid_bodies, is_post])
        & low
        & (along > 0.0)
        & (along < jnp.minimum(1.1, distance + 0.2))
        & (jnp.abs(across) < CLEARANCE)
    )
    nearest = jnp.argmin(jnp.where(in_way, along, 9.0))
    bend = jnp.where(across[nearest] > 0.0, -1.0, 1.0) * (CLEARANCE + 0.1 - jnp.abs(across[nearest]))
    return jnp.where(jnp.any(in_way), way + 1.6 * bend * aside * jnp.maximum(distance, 0.5), way)


def no_bodies(world: World) -> Array:
    """[M] all False."""
    return jnp.zeros_like(world.bodies.yaw, bool)


def other_bodies(world: World, body: Array) -> Array:
    """[M] True for existing bodies other than `body` and the held one."""
    index = jnp.arange(world.bodies.yaw.shape[0])
    return (index != body) & (index != world.hand.held) & (world.bodies.half[2] > 0.0)


def walk_to(world: World, position: Array, *, grip: Array | bool = False) -> Intent:
    """Walk to a position, looking ahead, and keep a held body close."""
    away = position - world.agent.centre[:2]
    far = norm(away) > 0.3
    look = jnp.where(far, position, world.agent.centre[:2] + world.agent.heading[:2])
    grip = jnp.asarray(grip)
    push = jnp.where(grip, -1.0, 0.0)
    avoid = other_bodies(world, jnp.asarray(-1))
    return Intent(position, _with_height(look, world.agent.eye[2]), grip, push, avoid, jnp.array(True))


def pick_up(level: Level, world: World, body: Array | int) -> Intent:
    """Walk to a body, around anything that hides it, and grasp it. Another held body is released first."""
    agent, centre = world.agent, world.bodies.centre[:, body]
    away = agent.centre[:2] - centre[:2]
    hidden = is_occluded(agent.eye, centre, obstacles(level, world.door_open))
    turn = jnp.where(hidden & (norm(away) < 1.6), 0.8, 0.0)
    turned = jnp.cos(turn) * away + jnp.sin(turn) * jnp.stack([-away[1], away[0]])
    position = centre[:2] + turned / jnp.maximum(norm(away), 1e-3) * GRASP_DISTANCE
    heading_error = _wrap_angle(jnp.arctan2(-away[1], -away[0]) - agent.yaw)
    is_near = (norm(away) < GRASP_DISTANCE + 0.2) & (jnp.abs(heading_error) < 0.25)
    is_held = world.hand.held == body
    grip = is_held | (is_near & (world.hand.held < 0))
    return Intent(position, centre, grip, jnp.zeros(()), other_bodies(world, jnp.asarray(body)), jnp.array(True))


def bring_to_sensor(level: Level, world: World, sensor: Array | int, height: Array | float | None = None) -> Intent:
    """Bring the held body to a sensor: line up opposite to it, then walk straight on."""
    target = level.sensors.boxes.centre[:, sensor]
    normal = facing(level, sensor)
    agent = world.agent.centre[:2] - target[:2]
    aside = agent - (agent @ normal) * normal
    body = world.bodies.centre[:2, world.hand.held] - target[:2]
    off = body - (body @ normal) * normal  # [2] offset of the held body parallel to the plate
    opposite = (norm(aside) < 0.25) & (agent @ normal < APPROACH_DISTANCE + 0.5)
    is_turned = _wrap_angle(jnp.arctan2(-normal[1], -normal[0]) - world.agent.yaw)
    advance = opposite & (jnp.abs(is_turned) < 0.2) & (norm(off) < 0.25)
    position = target[:2] + jnp.where(advance, 0.5, APPROACH_DISTANCE) * normal
    level_look = jnp.where(norm(aside) < 0.6, target[:2] - normal, target[:2])
    z = target[2] if height is None else jnp.asarray(height)
    reach = jnp.maximum(world.hand.distance, 0.8)
    look = world.agent.eye + jnp.concatenate([(level_look - world.agent.centre[:2]), jnp.zeros(1)])
    flat = jnp.maximum(norm(look[:2] - world.agent.eye[:2]), 1e-3)
    rise = jnp.clip((z - world.agent.eye[2]) / reach, -0.85, 0.85)
    look = look.at[2].add(flat * rise / jnp.sqrt(1.0 - rise * rise))
    push = jnp.where(reach > 1.05, -1.0, 0.0)
    return Intent(position, look, jnp.array(True), push, no_bodies(world), ~opposite)


def facing(level: Level, sensor: Array | int) -> Array:
    """[2] unit normal of a sensor's plate, on the side of the entrance."""
    half = level.sensors.boxes.half[:2, sensor]
    axis = jnp.where(half[0] < half[1], jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))
    way = level.spawn[:2] - level.sensors.boxes.centre[:2, sensor]
    return axis * jnp.sign(axis @ way)


def go_to_apple(level: Level, world: World) -> Intent:
    """Walk through the doorway to the large apple."""
    return walk_through(world, level.landmarks[:2, 0], large_apple(level)[:2], 0.9)


def walk_through(world: World, gate: Array, beyond: Array, before: float, *, grip: Array | bool = False) -> Intent:
    """Walk straight through a gate to `beyond`, lining up at `before` metres in front of the gate."""
    way = beyond - gate
    way = way / jnp.maximum(norm(way), 1e-3)
    agent = world.agent.centre[:2] - gate
    along = agent @ way
    aside = norm(agent - along * way)
    straight = (aside < jnp.where(jnp.asarray(grip), 0.1, 0.25)) | (along > 0.0)
    turned = world.agent.heading[:2] @ way > 0.97
    here = jnp.where(jnp.asarray(grip) & ~turned & (along < -0.8), world.agent.centre[:2] + 0.01 * way, beyond)
    intent = walk_to(world, jnp.where(straight, here, gate - before * way), grip=grip)
    look = jnp.where(straight, _with_height(beyond, world.agent.eye[2]), intent.look)
    return intent._replace(avoid_bodies=intent.avoid_bodies & ~straight, look=look)


def large_apple(level: Level) -> Array:
    """[3] position of the large apple."""
    return level.apples.centre[:, jnp.argmax(level.apples.reward)]


def select(condition: Array, first: Intent, second: Intent) -> Intent:
    """Return `first` where the condition holds, else `second`."""
    return jax.tree.map(partial(jnp.where, condition), first, second)


def _with_height(position: Array, height: Array) -> Array:
    return jnp.concatenate([position, height[None]])


def norm(vector: Array) -> Array:
    """[] length of a vector, never exactly 0."""
    return jnp.sqrt(jnp.sum(vector * vector) + 1e-12)


def _wrap_angle(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
