"""Views for people: from above and over the shoulder. The agent never sees them."""

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.palette import COLOURS
from byol_explore.envs.worlds.hard_eight.rendering import HALF_HEIGHT, HALF_WIDTH, Camera, Scene, render
from byol_explore.envs.worlds.hard_eight.scenes import scene_of, through_the_eyes
from byol_explore.envs.worlds.hard_eight.world import AGENT_HALF, Level, World
from byol_explore.types import Array

SIZE = (216, 288)  # of a view, height and width
BEHIND, ABOVE = 2.2, 1.3  # metres, where one looks over the shoulder from
_SKIN = (60, 60, 70)
_DOWN = -jnp.pi / 2 + 1e-3


def first_person(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """What the agent sees, in more detail."""
    return render(scene_of(level, world), through_the_eyes(world.agent), *size)


def from_above(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """The whole level, its longer side across the picture; the nose shows where the agent looks."""
    middle, extent = 0.5 * (level.low + level.high), level.high - level.low
    is_wide = extent[0] >= extent[1]
    across, along = jnp.maximum(extent[0], extent[1]), jnp.minimum(extent[0], extent[1])
    height = jnp.maximum(0.5 * across / HALF_WIDTH, 0.5 * along / HALF_HEIGHT) + 1.5
    eye = jnp.stack([middle[0], middle[1], height])
    camera = Camera(eye, jnp.where(is_wide, jnp.pi / 2, 0.0), jnp.asarray(_DOWN))
    return render(with_agent(scene_of(level, world), world), camera, *size)


def over_the_shoulder(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """The agent from behind, as near as the bounds of the level allow; walls in between are looked through."""
    agent = world.agent
    eye = agent.eye - BEHIND * agent.heading + ABOVE * jnp.array([0.0, 0.0, 1.0])
    camera = Camera(eye, agent.yaw, agent.pitch - 0.45)
    return render(_without_blinds(with_agent(scene_of(level, world), world), eye, agent.centre), camera, *size)


def picture(level: Level, world: World) -> Array:
    """What the agent sees, and beside it the level from above."""
    return jnp.concatenate([first_person(level, world), from_above(level, world)], axis=1)


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
    )


def _without_blinds(scene: Scene, eye: Array, agent: Array) -> Scene:
    """Without the boxes that stand between the eye and the agent."""
    way = (agent - eye)[:, None]
    way = jnp.where(jnp.abs(way) < 1e-6, 1e-6, way)
    low, high = scene.centre - scene.half - eye[:, None], scene.centre + scene.half - eye[:, None]
    enters = jnp.max(jnp.minimum(low / way, high / way), axis=0)
    leaves = jnp.min(jnp.maximum(low / way, high / way), axis=0)
    blinds = (enters < leaves) & (leaves > 0.0) & (enters < 0.7)
    return scene._replace(half=jnp.where(blinds, 0.0, scene.half), centre=jnp.where(blinds, -100.0, scene.centre))
