"""Scripted experts, one per task, and complete episodes of experts or of random actions.

An expert is a pure function of the simulator state, which agents do not observe. It has no memory: the next intent
follows from the state. An expert that holds the key brings it to the sensor, one that does not fetches it, and when the
door is open it walks to the apple.

`run_episodes` measures how far a policy on states gets. It uses the environment's own interface and never reads the
observation, so that XLA removes the ray caster from the program and thousands of episodes are affordable.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight import expert_skills as skills
from byol_explore.envs.hard_eight.env import HardEight, HardEightState
from byol_explore.envs.hard_eight.expert_skills import Intent, norm, select, walk_to
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.world import CRATES, Level, World
from byol_explore.ops.arrays import where_batch
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array


def act(level: Level, world: World, repeat: int) -> Action:
    """Return the action of the expert of the level's task, in the continuous action set."""
    intent = jax.lax.switch(level.task, [EXPERTS[name] for name in TASKS], level, world)
    control = skills.intent_to_control(level, world, intent, repeat)
    return Action(control.grip.astype(jnp.int32)[None], jnp.clip(jnp.stack(control[:-1]), -1.0, 1.0))


def wall_sensor(level: Level, world: World) -> Intent:
    key = _key(level, world)
    bring = select(world.hand.held == key, skills.bring_to_sensor(level, world, 0), skills.pick_up(level, world, key))
    return select(world.door_open[0], skills.go_to_apple(level, world), bring)


def _key(level: Level, world: World) -> Array:
    """[] index of the existing body that the first sensor accepts."""
    return jnp.argmax(level.sensors.accepts[:, 0] & (world.bodies.half[2] > 0.0))


def baseball(level: Level, world: World) -> Intent:
    ball, bat = CRATES, 0
    is_up = world.bodies.centre[2, ball] > 1.5
    swing = select(world.hand.held == bat, _swing(world), skills.pick_up(level, world, bat))
    bring = select(world.hand.held == ball, skills.bring_to_sensor(level, world, 0), skills.pick_up(level, world, ball))
    return select(world.door_open[0], skills.go_to_apple(level, world), select(is_up, swing, bring))


def _swing(world: World) -> Intent:
    """Walk against the plinth from the side with more room, holding the bat at the height of the ball."""
    agent, ball = world.agent, world.bodies.centre[:, CRATES]
    away = agent.centre[:2] - ball[:2]
    inwards = jnp.where(norm(ball[:2]) > 0.9, -ball[:2], away)  # the room is centred at the origin
    inwards = inwards / jnp.maximum(norm(inwards), 1e-3)
    here = away / jnp.maximum(norm(away), 1e-3)
    rise = jnp.clip((ball[2] - agent.eye[2]) / jnp.maximum(world.hand.distance, 0.9), 0.0, 0.8)
    pitch = jnp.arcsin(rise)
    is_ready = (jnp.abs(agent.pitch - pitch) < 0.06) & (here @ inwards > 0.8)
    is_ready &= world.bodies.centre[2, 0] > ball[2] - 0.15
    position = ball[:2] + jnp.where(is_ready, 0.3 * here, 2.0 * inwards)
    look = agent.eye + jnp.concatenate([-here, jnp.tan(pitch)[None]])
    push = jnp.sign(1.3 - world.hand.distance) * (jnp.abs(1.3 - world.hand.distance) > 0.3)
    return Intent(position, look, jnp.array(True), push, skills.no_bodies(world), jnp.array(False))


def remember_sensor(level: Level, world: World) -> Intent:
    key = _key(level, world)
    is_held = world.hand.held == key
    near, far = level.landmarks[:2, 1], level.landmarks[:2, 2]
    along, aside = _in_hall(world.agent.centre[:2], near, far)
    corner = (aside > 0.35) & (along > 0.5)
    home = walk_to(world, jnp.where(corner, far, near), grip=is_held)
    home = select(along < 0.1, skills.bring_to_sensor(level, world, 0), home)
    out = walk_to(world, jnp.where(along < -0.05, near, far))
    is_there = (norm(world.agent.centre[:2] - far) < 0.5) | corner
    key_along, key_aside = _in_hall(world.bodies.centre[:2, key], near, far)
    same = jnp.where((key_along > 0.75) & (key_aside > 0.6), is_there, (along > -0.1) | (key_along < 0.1))
    fetch = select(same, skills.pick_up(level, world, key), out)
    back = select((along < 0.1), skills.go_to_apple(level, world), walk_to(world, jnp.where(corner, far, near)))
    return select(world.door_open[0], back, select(is_held, home, fetch))


def _in_hall(position: Array, near: Array, far: Array) -> tuple[Array, Array]:
    """Return the fraction of the hall's length at a position [2], and its distance from the centre line in metres."""
    way = far - near
    along = (position - near) @ way / (way @ way)
    return along, norm(position - near - along * way)


def wall_sensor_stack(level: Level, world: World) -> Intent:
    """Lay one crate at the wall below the sensor, then hold the other one above it and let go."""
    normal, sensor = skills.facing(level, 0), level.sensors.boxes.centre[:, 0]
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
    build = select(has_base, put, lay)
    return select(world.door_open[0], skills.go_to_apple(level, world), build)


def _set_down(level: Level, world: World, crate: Array, height: float, gap: Array, aside: Array) -> Intent:
    """Bring a crate to the wall below the sensor at a height, and release it there."""
    held = world.hand.held == crate
    is_there = held & (gap[crate] < 0.06) & (aside[crate] < 0.22)
    bring = skills.bring_to_sensor(level, world, 0, height)
    bring = bring._replace(grip=~is_there)
    return select(held, bring, skills.pick_up(level, world, crate))


def push_blocks(level: Level, world: World) -> Intent:
    """Push the block along the wall until it is opposite to the recess, then straight into it."""
    into = -skills.facing(level, 0)
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
    # Walk around the block's corner if the agent stands beside the block or in front of it.
    detour = block - 0.75 * way + jnp.where(aside >= 0.0, 1.0, -1.0) * 0.75 * side
    beside = block + jnp.where(aside >= 0.0, 1.0, -1.0) * 0.85 * side - 0.2 * way
    around = jnp.where(behind > 0.4, start, jnp.where(jnp.abs(aside) > 0.6, detour, beside))
    goal = jnp.where(pushes, block + (rest - 0.44) * way, around)
    intent = walk_to(world, goal)
    look = jnp.concatenate([block + way, world.agent.eye[2:]])
    avoid = skills.other_bodies(world, jnp.asarray(0)) & (norm(agent) > 1.2)
    return select(world.door_open[0], skills.go_to_apple(level, world), intent._replace(look=look, avoid_bodies=avoid))


def navigate_cubes(level: Level, world: World) -> Intent:
    """Push two cubes out of the row that is farthest from the stairs, walk to the stairs, and climb to the apple."""
    foot, top, apple = level.landmarks[:2, 0], level.landmarks[:2, 1], skills.large_apple(level)[:2]
    ahead = (top - foot) / jnp.maximum(norm(top - foot), 1e-3)
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
    return walk_to(world, goal)._replace(avoid_bodies=skills.no_bodies(world))


def throw_across(level: Level, world: World) -> Intent:
    gate, edge = level.landmarks[:2, 1], level.landmarks[:2, 2]
    pad = level.sensors.boxes.centre[:, 0]
    over = pad[:2] - edge
    over = over / jnp.maximum(norm(over), 1e-3)
    carried = 1
    throw = select(world.hand.held == 0, _throw(world, edge, over), _wait_or_take(level, world, 0, edge, over))
    side = (world.agent.centre[:2] - gate) @ over
    cross = skills.walk_through(world, gate, gate + 1.1 * over, 3.5, grip=world.hand.held == carried)
    bring = select(side > 0.9, skills.bring_to_sensor(level, world, 1), cross)
    fetch = select(world.hand.held == carried, bring, skills.pick_up(level, world, carried))
    last = select(side > 0.7, skills.go_to_apple(level, world), cross)
    return select(world.door_open[1], last, select(world.door_open[0], fetch, throw))


def _wait_or_take(level: Level, world: World, key: int, edge: Array, over: Array) -> Intent:
    """Fetch the key, or wait at the edge while it flies or lies in the gap."""
    is_gone = (world.bodies.centre[:2, key] - edge) @ over > 0.35
    stay = walk_to(world, edge - 0.5 * over)
    return select(is_gone, stay, skills.pick_up(level, world, key))


def _throw(world: World, edge: Array, over: Array) -> Intent:
    """Throw: at the edge, looking across the gap and slightly up, open the hand while pushing."""
    agent = world.agent
    heading_error = jnp.arctan2(over[1], over[0]) - agent.yaw
    is_set = (norm(agent.centre[:2] - edge) < 0.25) & (norm(world.bodies.velocity[:, 0]) < 0.6)
    is_set &= jnp.abs(jnp.sin(heading_error)) + (jnp.cos(heading_error) < 0.0) + jnp.abs(agent.pitch - 0.25) < 0.2
    look = agent.eye + jnp.concatenate([over, jnp.array([0.25])])
    push = jnp.where(is_set, 1.0, 0.0)
    return Intent(edge, look, ~is_set, push, skills.other_bodies(world, jnp.asarray(0)), jnp.array(False))


def drawbridge(level: Level, world: World) -> Intent:
    apple = skills.large_apple(level)[:2]
    way = level.landmarks[:2, :3] - apple[:, None]
    last = 1 + jnp.argmin(jnp.sum(way * way, axis=0)[1:])
    fetch = skills.pick_up(level, world, _next_key(world))
    first = select(world.hand.held >= 0, skills.bring_to_sensor(level, world, 0), fetch)
    second = select(world.hand.held >= 0, skills.bring_to_sensor(level, world, last), fetch)
    over = _cross(level, world, 0)
    second = select(_is_over(level, world, 0), second, over)
    end = select(_is_over(level, world, last), walk_to(world, apple), _cross(level, world, last))
    end = select(_is_over(level, world, 0), end, over)
    return select(world.door_open[last], end, select(world.door_open[0], second, first))


def _next_key(world: World) -> Array:
    """[] index of the nearest key that is not used up."""
    away = world.bodies.centre[:2] - world.agent.centre[:2, None]
    return jnp.argmin(jnp.where(world.bodies.half[2] > 0.0, jnp.sum(away * away, axis=0), jnp.inf))


def _beyond(level: Level, bridge: Array | int) -> Array:
    """[2] vector from the middle of a lowered bridge to its far end, where the raised bridge stands."""
    return level.doors.shut.centre[:2, bridge] - level.landmarks[:2, bridge]


def _is_over(level: Level, world: World, bridge: Array | int) -> Array:
    way = _beyond(level, bridge)
    return (world.agent.centre[:2] - level.landmarks[:2, bridge]) @ way / norm(way) > 1.0


def _cross(level: Level, world: World, bridge: Array | int) -> Intent:
    gate = level.landmarks[:2, bridge]
    way = _beyond(level, bridge)
    return skills.walk_through(world, gate, gate + 1.6 * way / norm(way), 1.25)


EXPERTS: dict[str, Callable[[Level, World], Intent]] = {
    "drawbridge": drawbridge,
    "remember-sensor": remember_sensor,
    "navigate-cubes": navigate_cubes,
    "wall-sensor": wall_sensor,
    "wall-sensor-stack": wall_sensor_stack,
    "push-blocks": push_blocks,
    "throw-across": throw_across,
    "baseball": baseball,
}


PolicyFn = Callable[[HardEightState, Array], Action]  # (state, key) -> action


class EpisodeResult(NamedTuple):
    """Outcome of B episodes."""

    task: Array  # [B] int32
    stages_reached: Array  # [B, J] bool
    solved: Array  # [B] bool
    total: Array  # [B] return
    num_actions: Array  # [B] int32, length of the episode in actions


@partial(jax.jit, static_argnums=(0, 1, 3))
def run_episodes(env: HardEight, policy: PolicyFn, key: Array, count: int) -> EpisodeResult:
    """Run `count` episodes in parallel, each until it ends."""
    level_key, action_key = jax.random.split(key)
    state, _ = jax.vmap(env.reset)(jax.random.split(level_key, count))
    none_done = jnp.zeros((count,), bool)
    zeros = (jnp.zeros((count,)), jnp.zeros((count,), jnp.int32))
    result = EpisodeResult(state.level.task, state.stages_reached, none_done, *zeros)

    def step(carry: Any) -> Any:
        state, key, before, done = carry
        key, now_key = jax.random.split(key)
        action = jax.vmap(policy)(state, jax.random.split(now_key, count))
        state, timestep = jax.vmap(env.step)(state, action)
        total, num_actions = before.total + timestep.reward, before.num_actions + 1
        now = EpisodeResult(state.level.task, state.stages_reached, timestep.success == 1, total, num_actions)
        return state, key, where_batch(done, before, now), done | timestep.is_last

    start = state, action_key, result, none_done
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[3]), step, start)[2]


def random_policy(spec: ActionSpec) -> PolicyFn:
    """Return the policy of an untrained agent: uniform categories, and standard normal numbers that the environment
    clips to [-1, 1].
    """

    def policy(state: HardEightState, key: Array) -> Action:
        discrete, continuous = jax.random.split(key)
        categories = jax.random.randint(discrete, (len(spec.discrete),), 0, jnp.asarray(spec.discrete))
        return Action(categories, jax.random.normal(continuous, (spec.continuous,)))

    return policy


def expert_policy(env: HardEight) -> PolicyFn:
    """Return the expert of the episode's task as a policy."""
    return lambda state, key: act(state.level, state.world, env.settings.action_repeat)
