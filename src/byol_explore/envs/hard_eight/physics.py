"""Physics of one tick: turn, move the hand, sweep all hulls, apply contacts.

Hulls are swept along x, then y, then z, each as far as the gap ahead allows, so nothing overlaps at any speed. Along
one axis mover i wants to travel w_i, and the gap to j ahead of it (overlapping i on the other two axes) is g_ij >= 0.
Movers travel m_i with

    m_i <= g_ij / 2    if j wants to move towards i
    m_i <= g_ij + m_j  if j moves the same way, m_j being a lower bound of the travel of j
    m_i <= g_ij        if j is fixed

so no gap becomes negative. Pushes propagate in the same manner: a mover that wants to travel further than the gap makes
the body ahead want the rest; PUSH_PASSES passes cover a row of as many bodies. Hulls that already overlap by more than
SKIN ignore each other: a body that is released inside another one separates before it collides again.

A world has few movers, but vector units need long rows. A batch of worlds is therefore swept with the batch axis last,
wherever `vmap` put it: every shape below may be followed by batch axes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from byol_explore.envs.hard_eight import interactions
from byol_explore.envs.hard_eight.interactions import TickResult
from byol_explore.envs.hard_eight.tasks import TICK
from byol_explore.envs.hard_eight.world import (
    BODIES,
    CRATES,
    SKIN,
    Agent,
    Bodies,
    Boxes,
    Control,
    Level,
    World,
    agent_hull,
    concat_boxes,
    obstacles,
)
from byol_explore.types import Array, PyTree

GRAVITY = 9.8  # m/s^2
PUSH_PASSES = 6  # bodies in a row that can be pushed
STEP_HEIGHT = 0.32  # metres that the agent can step up
WALK_SPEED = 3.0  # m/s
TURN_SPEED = 2.6  # rad/s
PITCH_SPEED = 1.6  # rad/s
MAX_PITCH = 1.1  # rad, up and down
MAX_SPEED = 12.0  # m/s, of anything
MIN_FALL_SPEED = 1e-3  # m/s; tells a body in the air from one that lies on something
VELOCITY_KEPT = (0.3, 0.97)  # fraction of their velocity that crates and balls keep per tick on the ground
BLOCKED = 1e-5  # metres by which a mover falls short of its desired move when something blocks it

_FAR = 1e6


class MovingBodies(NamedTuple):
    """Everything that moves: the hulls of the agent and of the bodies."""

    hulls: Boxes  # [3, N]
    displacement: Array  # [3, N] desired displacement within the tick
    pushable: Array  # [N] bool, whether others can push it


@custom_vmap
def sweep(movers: MovingBodies, fixed: Boxes, low: Array, high: Array) -> Array:
    """[3, N] displacement of the movers within the bounds `low` [3] and `high` [3], swept along x, then y, then z."""
    centre = movers.hulls.centre
    for axis in range(3):
        hulls = Boxes(centre, movers.hulls.half)
        pushable = movers.pushable & (axis < 2)  # nothing is pushed upwards
        moved = _sweep_axis(axis, hulls, movers.displacement[axis], pushable, fixed, low[axis], high[axis])
        centre = centre.at[axis].add(moved)
    return centre - movers.hulls.centre


@sweep.def_vmap
def _sweep_batch(size: int, is_batched: PyTree, *arguments: PyTree) -> tuple[Array, bool]:
    """`sweep` under `vmap`, with the batch axis last."""
    del size
    last = jax.tree.map(lambda x, has: jnp.moveaxis(x, 0, -1) if has else x[..., None], arguments, tuple(is_batched))
    return jnp.moveaxis(sweep(*last), -1, 0), True


def free_distance(hulls: Boxes, fixed: Boxes, axis: int, desired: Array, low: Array, high: Array) -> Array:
    """[N] distance that each hull can travel along an axis, in the direction of `desired` [N], before it hits `fixed`
    [3, P] or a bound.
    """
    side = jnp.where(desired >= 0.0, 1.0, -1.0)  # [N]
    away = side[:, None] * (fixed.centre[axis] - hulls.centre[axis][:, None])  # [N, P]
    gap = away - fixed.half[axis] - hulls.half[axis][:, None]  # [N, P]
    ahead = _overlap_on_other_axes(hulls, fixed, axis) & (gap >= -SKIN)
    to_bound = jnp.where(desired >= 0.0, high - hulls.high[axis], hulls.low[axis] - low)
    return jnp.maximum(jnp.minimum(to_bound, jnp.min(jnp.where(ahead, gap, _FAR), axis=1)), 0.0)


def _sweep_axis(
    axis: int, hulls: Boxes, desired: Array, pushable: Array, fixed: Boxes, low: Array, high: Array
) -> Array:
    """[N] signed travel of the movers along one axis."""
    gap = hulls.centre[axis][None] - hulls.centre[axis][:, None] - hulls.half[axis][None] - hulls.half[axis][:, None]
    itself = jnp.eye(desired.shape[0], dtype=bool).reshape(desired.shape[0], -1, *[1] * (desired.ndim - 1))
    meets = _overlap_on_other_axes(hulls, hulls, axis) & ~itself
    gap = jnp.where(
        meets & (gap >= -SKIN), jnp.maximum(gap, 0.0), _FAR
    )  # [i, j] gap if j lies on the positive side of i
    if axis < 2:
        desired = _propagate_pushes(desired, gap, pushable)
    upwards = (desired >= 0.0)[:, None]
    side = jnp.where(upwards, 1.0, -1.0)
    gap = jnp.where(upwards, gap, gap.swapaxes(0, 1))  # [i, j] gap if j lies ahead of i
    approaches = side * desired < 0.0  # [i, j] j moves towards i
    limit = jnp.minimum(jnp.abs(desired), free_distance(hulls, fixed, axis, desired, low, high))
    limit = jnp.minimum(limit, jnp.min(jnp.where(approaches, 0.5 * gap, _FAR), axis=1))
    # Start from the travel that is certain even if the mover ahead stays, and add its certain travel in each pass.
    travel = jnp.minimum(limit, jnp.min(jnp.where(approaches, _FAR, gap), axis=1))
    for _ in range(PUSH_PASSES):
        travel = jnp.minimum(limit, jnp.min(jnp.where(approaches, _FAR, gap + travel), axis=1))
    return side[:, 0] * travel


def _propagate_pushes(desired: Array, gap: Array, pushable: Array) -> Array:
    """[N] desired moves after movers that want to travel further than the gap [N, N] have pushed the bodies ahead."""
    for _ in range(PUSH_PASSES):
        up = jnp.max(desired[:, None] - gap, axis=0)
        down = jnp.max(-desired[:, None] - gap.swapaxes(0, 1), axis=0)
        requested = jnp.maximum(jnp.maximum(desired, up), 0.0) - jnp.maximum(jnp.maximum(-desired, down), 0.0)
        desired = jnp.where(pushable, requested, desired)
    return desired


def _overlap_on_other_axes(first: Boxes, second: Boxes, axis: int) -> Array:
    """[N, P] whether boxes overlap on the two axes other than `axis`; False for empty slots."""
    result = (first.half[2] > 0.0)[:, None] & (second.half[2] > 0.0)[None]
    for other in range(3):
        if other != axis:
            between = jnp.abs(first.centre[other][:, None] - second.centre[other][None])
            result &= first.half[other][:, None] + second.half[other][None] - between > 0.5 * SKIN
    return result


def tick(level: Level, world: World, control: Control) -> tuple[World, TickResult]:
    """Advance a world by one tick of 1/15 s."""
    fixed = obstacles(level, world.door_open)
    agent_turn = -TURN_SPEED * TICK * control.turn_right
    world = world._replace(agent=_rotate_agent(world.agent, agent_turn, control))
    world = interactions.update_hand(level, world, control, agent_turn, fixed)
    return interactions.apply_contacts(level, _move(level, world, control, fixed))


def _rotate_agent(agent: Agent, agent_turn: Array, control: Control) -> Agent:
    pitch = jnp.clip(agent.pitch - PITCH_SPEED * TICK * control.look_down, -MAX_PITCH, MAX_PITCH)
    yaw = agent.yaw + agent_turn
    return agent._replace(yaw=jnp.arctan2(jnp.sin(yaw), jnp.cos(yaw)), pitch=pitch)


def _move(level: Level, world: World, control: Control, fixed: Boxes) -> World:
    """Sweep the agent and the bodies, then update velocities and the strain of the hand."""
    agent, bodies = world.agent, world.bodies
    # The agent is lifted before the sweep and lowered by its last axis, so that low obstacles do not stop it.
    lift = jnp.where(agent.on_ground, _headroom(level, world, fixed), 0.0)
    desired = _desired_moves(world, control).at[2, 0].add(-lift)
    raised = agent.centre + lift * jnp.array([0.0, 0.0, 1.0])
    hulls = interactions.moving_hulls(world._replace(agent=agent._replace(centre=raised)))
    pushable = jnp.arange(BODIES + 1) > 0
    moved = sweep(MovingBodies(hulls, desired, pushable), fixed, level.low, level.high)
    held = interactions.held_mask(world.hand)
    in_hand = jnp.where(held, 1.0, 0.0)
    new_hand = interactions.update_strain(world.hand, desired[:, 1:] @ in_hand, moved[:, 1:] @ in_hand)
    return world._replace(
        agent=_update_agent(agent, raised + moved[:, 0], moved[2, 0] > desired[2, 0] + BLOCKED),
        bodies=_update_bodies(bodies, desired[2, 1:], moved[:, 1:], held),
        hand=new_hand,
    )


def _headroom(level: Level, world: World, fixed: Boxes) -> Array:
    """[] height that the agent can step up here, metres."""
    hull, above = agent_hull(world.agent.centre), concat_boxes(fixed, world.bodies.hull)
    return jnp.minimum(STEP_HEIGHT, free_distance(hull, above, 2, jnp.ones((1,)), level.low[2], level.high[2])[0])


def _desired_moves(world: World, control: Control) -> Array:
    """[3, 1 + M] desired displacements of the agent and of the bodies within the tick."""
    agent, bodies = world.agent, world.bodies
    way = control.move * agent.heading + control.strafe * agent.right
    way = way / jnp.maximum(1.0, jnp.sqrt(jnp.sum(way * way)))
    fall = jnp.array([0.0, 0.0, -GRAVITY * TICK])
    walk = TICK * (WALK_SPEED * way + agent.velocity * jnp.array([0.0, 0.0, 1.0]) + fall)
    reach = interactions.HAND_SPEED * TICK
    held = interactions.hold_point(agent, world.hand)[:, None] - bodies.centre  # [3, M]
    held = jnp.clip(held, -reach, reach) + TICK * WALK_SPEED * way[:, None]
    # The agent must not lift itself by raising a body that it stands on.
    held = held.at[2].set(jnp.where(_under_feet(world), jnp.minimum(held[2], 0.0), held[2]))
    free = TICK * jnp.clip(bodies.velocity + fall[:, None], -MAX_SPEED, MAX_SPEED)  # [3, M]
    free = jnp.where(bodies.half[2] > 0.0, free, 0.0)
    bodies = jnp.where(interactions.held_mask(world.hand), held, free)
    return jnp.concatenate([walk[:, None], bodies], axis=1)


def _under_feet(world: World) -> Array:
    """[M] bodies below the agent."""
    hull, agent = world.bodies.hull, agent_hull(world.agent.centre)
    aside = jnp.abs(hull.centre - agent.centre) - hull.half - agent.half
    return jnp.all(aside[:2] < SKIN, axis=0) & (hull.centre[2] < agent.low[2])


def _update_agent(agent: Agent, centre: Array, on_ground: Array) -> Agent:
    """Return the agent at `centre`, with the velocity of its displacement."""
    velocity = (centre - agent.centre) / TICK
    upwards = jnp.where(on_ground, 0.0, jnp.clip(velocity[2], -MAX_SPEED, 0.0))  # a step up must not become a jump
    return agent._replace(centre=centre, velocity=velocity.at[2].set(upwards), on_ground=on_ground)


def _update_bodies(bodies: Bodies, fall: Array, moved: Array, held: Array) -> Bodies:
    """Return the bodies after displacements `moved` [3, M], with the velocities of those; the ground slows them down.

    Only a body that lies on something gets a vertical velocity of exactly 0 (`interactions.is_resting` reads it): one
    that the ceiling stops or that a hand holds still gets -MIN_FALL_SPEED, because it is about to fall.
    """
    on_ground = (moved[2] > fall + BLOCKED) & (fall < 0.0)
    slides = jnp.where(jnp.arange(BODIES) < CRATES, *VELOCITY_KEPT)
    keeps = jnp.where(on_ground & ~held, slides, 1.0)
    velocity = jnp.clip(moved / TICK * keeps, -MAX_SPEED, MAX_SPEED)
    in_the_air = jnp.where((velocity[2] == 0.0) & (bodies.half[2] > 0.0), -MIN_FALL_SPEED, velocity[2])
    velocity = velocity.at[2].set(jnp.where(on_ground & ~held, 0.0, in_the_air))
    return bodies._replace(centre=bodies.centre + moved, velocity=velocity)
