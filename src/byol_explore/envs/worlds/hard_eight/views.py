"""Views for people: from above and over the shoulder. The agent never sees them."""

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.palette import COLOURS
from byol_explore.envs.worlds.hard_eight.rendering import Camera, Lens, Scene, render
from byol_explore.envs.worlds.hard_eight.scenes import scene_of, through_the_eyes
from byol_explore.envs.worlds.hard_eight.world import AGENT_HALF, STATIC, Level, World
from byol_explore.types import Array

SIZE = (216, 288)  # of a view, height and width
BEHIND, ABOVE = 2.6, 2.0  # metres, where one looks over the shoulder from
DOWNWARDS = 0.5  # radians, how one looks from there
PLAN = 2.15  # height at which the plan is cut: over the ball on its plinth, under lintels
BESIDE = 1.0  # metres from walls that are in the way
STUMP = 0.1  # height of walls that would be in the way
_HIGH = 40.0  # metres, from where a level is seen as on a plan: walls do not lean
_SKIN = (50, 54, 70)
_DOWN = -jnp.pi / 2 + 1e-4


def first_person(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """What the agent sees, in more detail."""
    return render(scene_of(level, world), through_the_eyes(world.agent), *size)


def from_above(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """The whole level without lintels, its longer side across the picture; the nose shows where the agent looks."""
    is_there = level.static.half[2] > 0.0
    low = jnp.min(jnp.where(is_there, level.static.low, jnp.inf), axis=1)
    high = jnp.max(jnp.where(is_there, level.static.high, -jnp.inf), axis=1)
    middle, extent = 0.5 * (low + high), 0.5 * (high - low) + 0.1
    is_wide = extent[0] >= extent[1]
    across, along = jnp.maximum(extent[0], extent[1]), jnp.minimum(extent[0], extent[1])
    shape = size[0] / size[1]
    width = jnp.maximum(across, along / shape) / _HIGH
    camera = Camera(middle.at[2].set(_HIGH), jnp.where(is_wide, jnp.pi / 2, 0.0), jnp.asarray(_DOWN))
    scene = _cut(with_agent(scene_of(level, world), world), jnp.full((STATIC,), PLAN))
    return render(scene, camera, *size, Lens(width, shape * width, fade=0.0))


def over_the_shoulder(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """The agent from behind and above; walls between it and who looks are cut down to stumps."""
    agent = world.agent
    eye = agent.eye - BEHIND * agent.heading + ABOVE * jnp.array([0.0, 0.0, 1.0])
    camera = Camera(eye, agent.yaw, 0.5 * agent.pitch - DOWNWARDS)
    scene = with_agent(scene_of(level, world), world)
    return render(_cut(scene, jnp.where(_in_the_way(level, eye, agent.eye), STUMP, jnp.inf)), camera, *size)


def picture(level: Level, world: World) -> Array:
    """What the agent sees, and beside it the agent over its shoulder and the level from above."""
    views = (first_person, over_the_shoulder, from_above)
    return jnp.concatenate([view(level, world) for view in views], axis=1)


def with_agent(scene: Scene, world: World) -> Scene:
    """With the agent in it: a box with a nose."""
    agent = world.agent
    nose = agent.eye + 0.25 * agent.look
    centre = jnp.stack([agent.centre, nose], axis=1)
    half = jnp.stack([jnp.array(AGENT_HALF), jnp.array([0.12, 0.07, 0.07])], axis=1)
    paints = jnp.array([_SKIN, COLOURS["white"]], jnp.float32)
    count = scene.yaw.shape[0]

    def inserted(old: Array, new: Array) -> Array:
        return jnp.concatenate([old[:count], new, old[count:]])

    return scene._replace(
        centre=jnp.concatenate([scene.centre, centre], axis=1),
        half=jnp.concatenate([scene.half, half], axis=1),
        yaw=jnp.concatenate([scene.yaw, jnp.stack([agent.yaw, agent.yaw])]),
        rgb=inserted(scene.rgb, paints),
        glow=inserted(scene.glow, jnp.zeros(2)),
        pattern=inserted(scene.pattern, jnp.zeros(2)),
        edge=jnp.concatenate([scene.edge, jnp.broadcast_to(paints[1], (2, 3))]),
    )


def _cut(scene: Scene, height: Array) -> Scene:
    """Static boxes [S] as far as they reach up to a height each; the floor and what lies lower stays as it is."""
    low = scene.centre[2, :STATIC] - scene.half[2, :STATIC]
    high = jnp.minimum(scene.centre[2, :STATIC] + scene.half[2, :STATIC], height)
    half = jnp.maximum(0.5 * (high - low), 0.0)
    is_left = high > low
    gone = jnp.where(is_left, scene.half[:, :STATIC].at[2].set(half), 0.0)
    return scene._replace(
        centre=scene.centre.at[2, :STATIC].set(jnp.where(is_left, 0.5 * (low + high), -100.0)),
        half=scene.half.at[:, :STATIC].set(gone),
    )


def _in_the_way(level: Level, eye: Array, agent: Array) -> Array:
    """[S] walls between two points or beside one that is, and if there are any, those that the eye is close to."""
    static = level.static
    is_wall = (jnp.minimum(static.half[0], static.half[1]) < 0.25) & (static.high[2] > 0.4)
    longer = jnp.where(static.half[:2] == jnp.max(static.half[:2], axis=0), BESIDE, 0.0)
    low, high = static.low[:2] - longer - eye[:2, None], static.high[:2] + longer - eye[:2, None]
    way = (agent - eye)[:2, None]
    way = jnp.where(jnp.abs(way) < 1e-6, 1e-6, way)
    enters = jnp.max(jnp.minimum(low / way, high / way), axis=0)
    leaves = jnp.min(jnp.maximum(low / way, high / way), axis=0)
    between = is_wall & (enters < leaves) & (leaves > 0.0) & (enters < 1.0)
    apart = jnp.max(jnp.maximum(low, -high), axis=0)
    return between | (is_wall & (apart < BESIDE) & jnp.any(between))
