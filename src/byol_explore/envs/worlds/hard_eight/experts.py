"""Scripted experts: one per task, pure functions of the state, which they may read as agents may not.

They have no memory. What to do next follows from how things are: who holds the key brings it to the sensor, who does
not goes and takes it, and when the door is open the apple is eaten.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight import skills
from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.skills import Wish, chosen, eat, facing, press, take, walk
from byol_explore.envs.worlds.hard_eight.world import CRATES, Level, World
from byol_explore.types import Action, Array


def act(level: Level, world: World, repeat: int) -> Action:
    """What the expert of the level's task does, as an action of the continuous set."""
    wish = jax.lax.switch(level.task, [EXPERTS[name] for name in TASKS], level, world)
    control = skills.steer(level, world, wish, repeat)
    return Action(control.grip.astype(jnp.int32)[None], _numbers(control))


def _numbers(control: Control) -> Array:
    return jnp.clip(jnp.stack(control[:-1]), -1.0, 1.0)


def wall_sensor(level: Level, world: World) -> Wish:
    key = _key(level, world)
    bring = chosen(world.hand.held == key, press(level, world, 0), take(level, world, key))
    return chosen(world.is_open[0], eat(level, world), bring)


def _key(level: Level, world: World) -> Array:
    """The body that the first sensor accepts, of those that are there."""
    return jnp.argmax(level.sensors.accepts[0] & (world.bodies.half[2] > 0.0))


def baseball(level: Level, world: World) -> Wish:
    ball, bat = CRATES, 0
    is_up = world.bodies.centre[2, ball] > 1.5
    swing = chosen(world.hand.held == bat, _swing(world), take(level, world, bat))
    bring = chosen(world.hand.held == ball, press(level, world, 0), take(level, world, ball))
    return chosen(world.is_open[0], eat(level, world), chosen(is_up, swing, bring))


def _swing(world: World) -> Wish:
    """Walk against the plinth from where there is room, with the bat as high as the ball."""
    agent, ball = world.agent, world.bodies.centre[:, CRATES]
    away = agent.centre[:2] - ball[:2]
    inwards = jnp.where(_norm(ball[:2]) > 0.9, -ball[:2], away)  # the room is around the origin
    inwards = inwards / jnp.maximum(_norm(inwards), 1e-3)
    here = away / jnp.maximum(_norm(away), 1e-3)
    rise = jnp.clip((ball[2] - agent.eye[2]) / jnp.maximum(world.hand.distance, 0.9), 0.0, 0.8)
    pitch = jnp.arcsin(rise)
    is_ready = (jnp.abs(agent.pitch - pitch) < 0.06) & (here @ inwards > 0.8)
    is_ready &= world.bodies.centre[2, 0] > ball[2] - 0.15
    place = ball[:2] + jnp.where(is_ready, 0.3 * here, 2.0 * inwards)
    look = agent.eye + jnp.concatenate([-here, jnp.tan(pitch)[None]])
    push = jnp.sign(1.3 - world.hand.distance) * (jnp.abs(1.3 - world.hand.distance) > 0.3)
    return Wish(place, look, jnp.array(True), push, skills.nobody(world), jnp.array(False))


def remember_sensor(level: Level, world: World) -> Wish:
    key = _key(level, world)
    mine = world.hand.held == key
    near, far = level.landmarks[:2, 1], level.landmarks[:2, 2]
    along, aside = _in_hall(world.agent.centre[:2], near, far)
    corner = (aside > 0.35) & (along > 0.5)
    home = walk(world, jnp.where(corner, far, near), grip=mine)
    home = chosen(along < 0.1, press(level, world, 0), home)
    out = walk(world, jnp.where(along < -0.05, near, far))
    is_there = (_norm(world.agent.centre[:2] - far) < 0.5) | corner
    key_along, key_aside = _in_hall(world.bodies.centre[:2, key], near, far)
    same = jnp.where((key_along > 0.75) & (key_aside > 0.6), is_there, (along > -0.1) | (key_along < 0.1))
    fetch = chosen(same, take(level, world, key), out)
    back = chosen((along < 0.1), eat(level, world), walk(world, jnp.where(corner, far, near)))
    return chosen(world.is_open[0], back, chosen(mine, home, fetch))


def _in_hall(place: Array, near: Array, far: Array) -> tuple[Array, Array]:
    """How far along the hall a place is, from 0 to 1, and how many metres beside its middle."""
    way = far - near
    along = (place - near) @ way / (way @ way)
    return along, _norm(place - near - along * way)


def wall_sensor_stack(level: Level, world: World) -> Wish:
    """The crate nearer to the sensor's foot is the lower one; the other is held over it and let go."""
    normal, sensor = facing(level, 0), level.sensors.boxes.centre[:, 0]
    hull = world.bodies.hull
    bodies = world.bodies.centre[:2, :2] - sensor[:2, None]
    gap = normal @ bodies - jnp.abs(normal) @ hull.half[:2, :2]  # from the wall, of both crates
    aside = jnp.abs(jnp.stack([-normal[1], normal[0]]) @ bodies)
    low = world.bodies.centre[2, :2] < 0.4
    is_base = low & (gap < 0.12) & (aside < 0.3) & (jnp.arange(2) != world.hand.held)
    has_base = jnp.any(is_base)
    base = jnp.where(has_base, jnp.argmax(is_base), jnp.where(world.hand.held >= 0, world.hand.held, 0))
    upper = 1 - base
    lay = _set_down(level, world, base, 0.45, gap, aside)
    put = _set_down(level, world, upper, 1.12, gap, aside)
    build = chosen(has_base, put, lay)
    return chosen(world.is_open[0], eat(level, world), build)


def _set_down(level: Level, world: World, crate: Array, height: float, gap: Array, aside: Array) -> Wish:
    """Bring a crate to the wall below the sensor at this height, and let go of it there."""
    held = world.hand.held == crate
    is_there = held & (gap[crate] < 0.06) & (aside[crate] < 0.22)
    bring = press(level, world, 0, height)
    bring = bring._replace(grip=~is_there)
    return chosen(held, bring, take(level, world, crate))


def push_blocks(level: Level, world: World) -> Wish:
    """First along the wall until the block is opposite to the recess, then straight into it."""
    into = -facing(level, 0)
    along = jnp.stack([-into[1], into[0]])
    block, sensor = world.bodies.centre[:2, 0], level.sensors.boxes.centre[:2, 0]
    off = (block - sensor) @ along
    is_aligned = jnp.abs(off) < 0.07
    way = jnp.where(is_aligned, into, -jnp.sign(off) * along)
    rest = jnp.where(is_aligned, (sensor - block) @ into, jnp.abs(off))
    agent = world.agent.centre[:2] - block
    behind = -(agent @ way)
    side = jnp.stack([-way[1], way[0]])
    aside = agent @ side
    pushes = (behind > 0.3) & (jnp.abs(aside) < 0.2)
    start = block - 0.62 * way
    # Around the corner of the block, if the agent is beside it or before it.
    detour = block - 0.75 * way + jnp.where(aside >= 0.0, 1.0, -1.0) * 0.75 * side
    beside = block + jnp.where(aside >= 0.0, 1.0, -1.0) * 0.85 * side - 0.2 * way
    around = jnp.where(behind > 0.4, start, jnp.where(jnp.abs(aside) > 0.6, detour, beside))
    goal = jnp.where(pushes, block + (rest - 0.44) * way, around)
    wish = walk(world, goal)
    look = jnp.concatenate([block + way, world.agent.eye[2:]])
    shy = skills.others(world, jnp.asarray(0)) & (_norm(agent) > 1.2)
    return chosen(world.is_open[0], eat(level, world), wish._replace(look=look, shy=shy))


def navigate_cubes(level: Level, world: World) -> Wish:
    """Push a pair of cubes out of the row that is farthest from the stairs, walk around, and climb."""
    foot, top, apple = level.landmarks[:2, 0], level.landmarks[:2, 1], skills.large_apple(level)[:2]
    ahead = (top - foot) / jnp.maximum(_norm(top - foot), 1e-3)
    aside = jnp.stack([-ahead[1], ahead[0]])
    agent = world.agent.centre[:2] - foot
    along, across = agent @ ahead, agent @ aside
    middle = level.landmarks[:2, 2] - foot
    row = middle @ aside + jnp.sign((apple - foot) @ aside) * 1.2  # the apple lies opposite to the stairs
    before, through = foot - 2.4 * ahead + row * aside, foot + 0.3 * ahead + row * aside
    is_in_row = jnp.abs(across - row) < 0.12
    dig = jnp.where(is_in_row | (along > -1.9), through, before)
    climbs = world.agent.centre[2] > 0.75
    is_through = along > -0.25
    goal = jnp.where(is_through, jnp.where(jnp.abs(across) < 0.2, top, foot), dig)
    goal = jnp.where(climbs, jnp.where((along > 1.7), apple, top), goal)
    return walk(world, goal)._replace(shy=skills.nobody(world))


def throw_across(level: Level, world: World) -> Wish:
    gate, edge = level.landmarks[:2, 1], level.landmarks[:2, 2]
    pad = level.sensors.boxes.centre[:, 0]
    over = pad[:2] - edge
    over = over / jnp.maximum(_norm(over), 1e-3)
    carried = 1
    throw = chosen(world.hand.held == 0, _throw(world, edge, over), _wait_or_take(level, world, 0, edge, over))
    side = (world.agent.centre[:2] - gate) @ over
    cross = skills.pass_by(world, gate, gate + 1.1 * over, 3.5, grip=world.hand.held == carried)
    bring = chosen(side > 0.9, press(level, world, 1), cross)
    fetch = chosen(world.hand.held == carried, bring, take(level, world, carried))
    last = chosen(side > 0.7, eat(level, world), cross)
    return chosen(world.is_open[1], last, chosen(world.is_open[0], fetch, throw))


def _wait_or_take(level: Level, world: World, key: int, edge: Array, over: Array) -> Wish:
    """Take the key, unless it flies or lies in the gap."""
    is_gone = (world.bodies.centre[:2, key] - edge) @ over > 0.35
    stay = walk(world, edge - 0.5 * over)
    return chosen(is_gone, stay, take(level, world, key))


def _throw(world: World, edge: Array, over: Array) -> Wish:
    """At the edge, looking across and a little up, the hand opens with a push."""
    agent = world.agent
    err = jnp.arctan2(over[1], over[0]) - agent.yaw
    is_set = (_norm(agent.centre[:2] - edge) < 0.25) & (_norm(world.bodies.velocity[:, 0]) < 0.6)
    is_set &= jnp.abs(jnp.sin(err)) + (jnp.cos(err) < 0.0) + jnp.abs(agent.pitch - 0.25) < 0.2
    look = agent.eye + jnp.concatenate([over, jnp.array([0.25])])
    push = jnp.where(is_set, 1.0, 0.0)
    return Wish(edge, look, ~is_set, push, skills.others(world, jnp.asarray(0)), jnp.array(False))


def drawbridge(level: Level, world: World) -> Wish:
    apple = skills.large_apple(level)[:2]
    way = level.landmarks[:2, :3] - apple[:, None]
    last = 1 + jnp.argmin(jnp.sum(way * way, axis=0)[1:])
    first = chosen(world.hand.held >= 0, press(level, world, 0), take(level, world, _next_key(world)))
    over = _cross(level, world, 0)
    second = chosen(world.hand.held >= 0, press(level, world, last), take(level, world, _next_key(world)))
    second = chosen(_is_over(level, world, 0), second, over)
    end = chosen(_is_over(level, world, last), walk(world, apple), _cross(level, world, last))
    end = chosen(_is_over(level, world, 0), end, over)
    return chosen(world.is_open[last], end, chosen(world.is_open[0], second, first))


def _next_key(world: World) -> Array:
    """The nearest of the keys that are left."""
    away = world.bodies.centre[:2] - world.agent.centre[:2, None]
    return jnp.argmin(jnp.where(world.bodies.half[2] > 0.0, jnp.sum(away * away, axis=0), jnp.inf))


def _beyond(level: Level, bridge: Array | int) -> Array:
    """[2] from the middle of a bridge to its far end, where it stands when it is up."""
    return level.doors.shut.centre[:2, bridge] - level.landmarks[:2, bridge]


def _is_over(level: Level, world: World, bridge: Array | int) -> Array:
    way = _beyond(level, bridge)
    return (world.agent.centre[:2] - level.landmarks[:2, bridge]) @ way / _norm(way) > 1.0


def _cross(level: Level, world: World, bridge: Array | int) -> Wish:
    gate = level.landmarks[:2, bridge]
    way = _beyond(level, bridge)
    return skills.pass_by(world, gate, gate + 1.6 * way / _norm(way), 1.25)


def _norm(vector: Array) -> Array:
    return jnp.sqrt(jnp.sum(vector * vector) + 1e-12)


EXPERTS: dict[str, Callable[[Level, World], Wish]] = {
    "drawbridge": drawbridge,
    "remember-sensor": remember_sensor,
    "navigate-cubes": navigate_cubes,
    "wall-sensor": wall_sensor,
    "wall-sensor-stack": wall_sensor_stack,
    "push-blocks": push_blocks,
    "throw-across": throw_across,
    "baseball": baseball,
}
