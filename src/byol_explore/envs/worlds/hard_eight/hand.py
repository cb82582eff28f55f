"""The hand: what it takes, where it keeps it, how it lets go.

The hand takes the body nearest to the middle of the view, if it is within reach, not too far to the side and not behind
something. While the grip is closed the body is drawn towards a point in front of the eye; it collides all the way, and
is dropped when it has been held back for too long. What is let go keeps its velocity, and a push throws it.
"""

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.physics import SKIN, TICK
from byol_explore.envs.worlds.hard_eight.world import (
    BODIES,
    Agent,
    Bodies,
    Boxes,
    Hand,
    Level,
    World,
    agent_hull,
    joined,
)
from byol_explore.types import Array

REACH = 1.8  # from the eye
HIGHEST = 1.5  # above the feet: what lies higher cannot be taken
ASIDE = 0.5  # radians to the left or right
NEAREST, FURTHEST = 0.8, 1.8  # where it keeps things
LEVEL_NEAREST = 0.7  # measured level, whatever it looks up or down to
SPEED = 4.0  # of a hand, m/s
STRETCH = 3.0  # of pushing and pulling, m/s
THROW = 8.0  # of a push as the hand opens, m/s
TURNING = 2.0  # of the body in the hand, radians per second
STRAIN, RELIEF = 0.5, 0.8  # force = RELIEF force + STRAIN (share of the way that it was held back)


def use(level: Level, world: World, control: Control, turned: Array, fixed: Boxes) -> World:
    """Take, keep or let go, and turn what is held along with the agent, which has just turned by so much."""
    held = world.hand.held
    world = _take_or_release(level, world, control, fixed)
    holding = (held >= 0) & (world.hand.held >= 0)
    world = world._replace(bodies=_turn(world, turned + TURNING * TICK * control.rotate, fixed))
    distance = jnp.clip(world.hand.distance + STRETCH * TICK * control.push, NEAREST, FURTHEST)
    return world._replace(hand=world.hand._replace(distance=jnp.where(holding, distance, world.hand.distance)))


def holds(hand: Hand) -> Array:
    """[M] which body is held."""
    return jnp.arange(BODIES) == hand.held


def place(agent: Agent, hand: Hand) -> Array:
    """[3] where what is held is to be."""
    level = jnp.maximum(hand.distance * jnp.cos(agent.pitch), LEVEL_NEAREST)
    height = jnp.array([0.0, 0.0, 1.0]) * hand.distance * jnp.sin(agent.pitch)
    return agent.eye + level * agent.heading + height


def strained(hand: Hand, wish: Array, moved: Array) -> Hand:
    """The hand after a tick in which the body in it was to go one way and went another; it opens at a force of 1."""
    held_back = jnp.max(jnp.abs(wish - moved)) / (SPEED * TICK)
    force = jnp.where(hand.held >= 0, RELIEF * hand.force + STRAIN * held_back, 0.0)
    keeps = force < 1.0
    return Hand(jnp.where(keeps, hand.held, -1), jnp.where(keeps, hand.distance, 0.0), jnp.minimum(force, 1.0))


def _take_or_release(level: Level, world: World, control: Control, fixed: Boxes) -> World:
    agent, hand, bodies = world.agent, world.hand, world.bodies
    chosen, distance = _choose(level, agent, bodies, fixed)
    empty = hand.held < 0
    held = jnp.where(control.grip, jnp.where(empty, chosen, hand.held), -1)
    keeps = jnp.where(empty, jnp.clip(distance, NEAREST, FURTHEST), hand.distance)
    thrown = holds(hand) & ~control.grip
    throw = jnp.maximum(control.push, 0.0) * THROW * agent.look
    velocity = jnp.where(thrown, bodies.velocity + throw[:, None], bodies.velocity)
    hand = Hand(held, jnp.where(held >= 0, keeps, 0.0), jnp.where(held >= 0, hand.force, 0.0))
    return world._replace(hand=hand, bodies=bodies._replace(velocity=velocity))


def _choose(level: Level, agent: Agent, bodies: Bodies, fixed: Boxes) -> tuple[Array, Array]:
    """The body that a closing hand takes, or -1, and how far it is."""
    way = bodies.centre - agent.eye[:, None]
    distance = jnp.sqrt(jnp.sum(way * way, axis=0))
    aside = jnp.sum(way * agent.right[:, None], axis=0)
    ahead = jnp.sum(way * agent.heading[:, None], axis=0)
    height = bodies.centre[2] - (agent_hull(agent.centre).low[2])
    near = (distance < REACH) & (ahead > 0.3) & (jnp.abs(aside) < ASIDE * ahead) & (height < HIGHEST)
    middle = jnp.sum(way * agent.look[:, None], axis=0) / jnp.maximum(distance, 1e-3)
    middle = jnp.where(near & level.liftable & (bodies.half[2] > 0.0), middle, -2.0)
    best = jnp.argmax(middle).astype(jnp.int32)
    can = (middle[best] > -2.0) & ~is_hidden(agent.eye, bodies.centre[:, best], fixed)
    return jnp.where(can, best, -1), distance[best]


def is_hidden(eye: Array, point: Array, fixed: Boxes) -> Array:
    """Whether something fixed stands between the eye and a point."""
    way = (point - eye)[:, None]
    way = jnp.where(jnp.abs(way) < 1e-6, 1e-6, way)
    first, second = (fixed.low - eye[:, None]) / way, (fixed.high - eye[:, None]) / way
    enters = jnp.max(jnp.minimum(first, second), axis=0)
    leaves = jnp.min(jnp.maximum(first, second), axis=0)
    return jnp.any((enters < leaves) & (leaves > 0.0) & (enters < 1.0) & (fixed.half[2] > 0.0))


def _turn(world: World, angle: Array, fixed: Boxes) -> Bodies:
    """The body in the hand turned, if its hull has the room."""
    bodies, held = world.bodies, world.hand.held
    wanted = bodies._replace(yaw=jnp.where(holds(world.hand), bodies.yaw + angle, bodies.yaw))
    before, after = bodies.hull, wanted.hull
    everything = joined(fixed, agent_hull(world.agent.centre), before)
    is_itself = jnp.arange(everything.half.shape[1]) == everything.half.shape[1] - BODIES + held
    depth = after.half[:, held][:, None] + everything.half
    depth = jnp.min(depth - jnp.abs(after.centre[:, held][:, None] - everything.centre), axis=0)
    fits = ~jnp.any((depth > 0.5 * SKIN) & ~is_itself & (everything.half[2] > 0.0))
    return bodies._replace(yaw=jnp.where(fits, wanted.yaw, bodies.yaw))
