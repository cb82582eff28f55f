"""What experts are made of: walking somewhere while looking somewhere, fetching, pressing, going through doors.

A skill says where to go, what to look at and what the hand does; `steer` makes an action of that. Points are [3],
places on the plan [2].
"""

from typing import NamedTuple

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.hand import is_hidden
from byol_explore.envs.worlds.hard_eight.physics import TICK
from byol_explore.envs.worlds.hard_eight.ticking import NOD, TURN, WALK
from byol_explore.envs.worlds.hard_eight.world import Level, World, obstacles
from byol_explore.types import Array

ARM = 1.15  # metres from a body at which experts take it
STAND_OFF = 1.7  # from a sensor, before what is held is brought to it
PERSONAL = 0.62  # what experts keep from things that they do not want to push


class Wish(NamedTuple):
    """What an expert wants to do next."""

    place: Array  # [2] to walk to
    look: Array  # [3] to look at
    grip: Array  # []
    push: Array  # [] of the hand
    shy: Array  # [M] bodies that it walks around
    posts: Array  # [] whether it walks around posts


def steer(level: Level, world: World, wish: Wish, repeat: int) -> Control:
    """The action that comes nearest to a wish within so many ticks."""
    agent, span = world.agent, repeat * TICK
    way = wish.place - agent.centre[:2]
    way = _around(level, world, way, wish) / (WALK * span)
    way = way / jnp.maximum(1.0, _norm(way))
    seen = wish.look - agent.eye
    turn = _angle(jnp.arctan2(seen[1], seen[0]) - agent.yaw)
    nod = jnp.arctan2(seen[2], _norm(seen[:2])) - agent.pitch
    turn, zero = jnp.clip(turn / (TURN * span), -1.0, 1.0), jnp.zeros(())
    mean = agent._replace(yaw=agent.yaw + turn * TURN * TICK * (repeat + 1) / 2)  # as it will look while it walks
    return Control(
        move=way @ mean.heading[:2],
        strafe=way @ mean.right[:2],
        look=jnp.clip(-nod / (NOD * span), -1.0, 1.0),
        turn=-turn,
        roll=zero, tilt=zero, rotate=zero, push=wish.push, grip=wish.grip,
    )  # fmt: skip


def _around(level: Level, world: World, way: Array, wish: Wish) -> Array:
    """A way that is bent around bodies, and around posts, that lie right ahead."""
    distance = _norm(way)
    ahead = way / jnp.maximum(distance, 1e-3)
    aside = jnp.stack([-ahead[1], ahead[0]])
    static = level.static
    is_post = (static.half[0] < 0.4) & (static.half[1] < 0.4) & (static.half[2] > 0.3) & wish.posts
    centre = jnp.concatenate([world.bodies.centre, static.centre], axis=1)
    things = centre[:2] - world.agent.centre[:2, None]
    along, across = ahead @ things, aside @ things
    low = jnp.abs(centre[2] - world.agent.centre[2]) < 1.2
    in_way = (
        jnp.concatenate([wish.shy, is_post])
        & low
        & (along > 0.0)
        & (along < jnp.minimum(1.1, distance + 0.2))
        & (jnp.abs(across) < PERSONAL)
    )
    nearest = jnp.argmin(jnp.where(in_way, along, 9.0))
    bend = jnp.where(across[nearest] > 0.0, -1.0, 1.0) * (PERSONAL + 0.1 - jnp.abs(across[nearest]))
    return jnp.where(jnp.any(in_way), way + 1.6 * bend * aside * jnp.maximum(distance, 0.5), way)


def nobody(world: World) -> Array:
    """[M] no body at all."""
    return jnp.zeros_like(world.bodies.yaw, bool)


def others(world: World, body: Array) -> Array:
    """[M] all bodies but one and what is held."""
    index = jnp.arange(world.bodies.yaw.shape[0])
    return (index != body) & (index != world.hand.held) & (world.bodies.half[2] > 0.0)


def walk(world: World, place: Array, *, grip: Array | bool = False) -> Wish:
    """Go there, looking ahead; what is held is kept close."""
    away = place - world.agent.centre[:2]
    far = _norm(away) > 0.3
    look = jnp.where(far, place, world.agent.centre[:2] + world.agent.heading[:2])
    grip = jnp.asarray(grip)
    push = jnp.where(grip, -1.0, 0.0)
    shy = others(world, jnp.asarray(-1))
    return Wish(place, _raised(look, world.agent.eye[2]), grip, push, shy, jnp.array(True))


def take(level: Level, world: World, body: Array | int) -> Wish:
    """Go to a body, around what hides it, and close the hand; whatever else is held is let go."""
    agent, centre = world.agent, world.bodies.centre[:, body]
    away = agent.centre[:2] - centre[:2]
    hidden = is_hidden(agent.eye, centre, obstacles(level, world.is_open))
    turn = jnp.where(hidden & (_norm(away) < 1.6), 0.8, 0.0)
    turned = jnp.cos(turn) * away + jnp.sin(turn) * jnp.stack([-away[1], away[0]])
    place = centre[:2] + turned / jnp.maximum(_norm(away), 1e-3) * ARM
    err = _angle(jnp.arctan2(-away[1], -away[0]) - agent.yaw)
    is_near = (_norm(away) < ARM + 0.2) & (jnp.abs(err) < 0.25)
    mine = world.hand.held == body
    grip = mine | (is_near & (world.hand.held < 0))
    return Wish(place, centre, grip, jnp.zeros(()), others(world, jnp.asarray(body)), jnp.array(True))


def press(level: Level, world: World, sensor: Array | int, height: Array | float | None = None) -> Wish:
    """Bring what is held to a sensor: first opposite to it, then straight on."""
    target = level.sensors.boxes.centre[:, sensor]
    normal = facing(level, sensor)
    agent = world.agent.centre[:2] - target[:2]
    aside = agent - (agent @ normal) * normal
    body = world.bodies.centre[:2, world.hand.held] - target[:2]
    off = body - (body @ normal) * normal  # what is held is to be opposite to the middle of the sensor
    opposite = (_norm(aside) < 0.25) & (agent @ normal < STAND_OFF + 0.5)
    is_turned = _angle(jnp.arctan2(-normal[1], -normal[0]) - world.agent.yaw)
    goes = opposite & (jnp.abs(is_turned) < 0.2) & (_norm(off) < 0.25)
    place = target[:2] + jnp.where(goes, 0.5, STAND_OFF) * normal
    level_look = jnp.where(_norm(aside) < 0.6, target[:2] - normal, target[:2])
    z = target[2] if height is None else jnp.asarray(height)
    reach = jnp.maximum(world.hand.distance, 0.8)
    look = world.agent.eye + jnp.concatenate([(level_look - world.agent.centre[:2]), jnp.zeros(1)])
    flat = jnp.maximum(_norm(look[:2] - world.agent.eye[:2]), 1e-3)
    rise = jnp.clip((z - world.agent.eye[2]) / reach, -0.85, 0.85)
    look = look.at[2].add(flat * rise / jnp.sqrt(1.0 - rise * rise))
    push = jnp.where(reach > 1.05, -1.0, 0.0)
    return Wish(place, look, jnp.array(True), push, nobody(world), ~opposite)


def facing(level: Level, sensor: Array | int) -> Array:
    """[2] from a sensor's face to whoever comes from the entrance."""
    half = level.sensors.boxes.half[:2, sensor]
    axis = jnp.where(half[0] < half[1], jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))
    way = level.entrance[:2] - level.sensors.boxes.centre[:2, sensor]
    return axis * jnp.sign(axis @ way)


def eat(level: Level, world: World) -> Wish:
    """Through the doorway to the large apple."""
    return pass_by(world, level.landmarks[:2, 0], large_apple(level)[:2], 0.9)


def pass_by(world: World, gate: Array, beyond: Array, before: float, *, grip: Array | bool = False) -> Wish:
    """Go straight through a gate to what lies behind it, from a place so far before it."""
    way = beyond - gate
    way = way / jnp.maximum(_norm(way), 1e-3)
    agent = world.agent.centre[:2] - gate
    along = agent @ way
    aside = _norm(agent - along * way)
    straight = (aside < jnp.where(jnp.asarray(grip), 0.1, 0.25)) | (along > 0.0)
    turned = world.agent.heading[:2] @ way > 0.97
    here = jnp.where(jnp.asarray(grip) & ~turned & (along < -0.8), world.agent.centre[:2] + 0.01 * way, beyond)
    wish = walk(world, jnp.where(straight, here, gate - before * way), grip=grip)
    look = jnp.where(straight, _raised(beyond, world.agent.eye[2]), wish.look)
    return wish._replace(shy=wish.shy & ~straight, look=look)


def large_apple(level: Level) -> Array:
    """[3] where it is."""
    return level.apples.centre[:, jnp.argmax(level.apples.reward)]


def chosen(condition: Array, first: Wish, second: Wish) -> Wish:
    """One wish or the other."""
    return Wish(*[jnp.where(condition, a, b) for a, b in zip(first, second, strict=True)])


def _raised(place: Array, height: Array) -> Array:
    return jnp.concatenate([place, height[None]])


def _norm(vector: Array) -> Array:
    return jnp.sqrt(jnp.sum(vector * vector) + 1e-12)


def _angle(angle: Array) -> Array:
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
