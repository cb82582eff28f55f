"""From a world to what can be seen of it."""

import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.hand import holds
from byol_explore.envs.worlds.hard_eight.palette import COLOURS, NUMBERS
from byol_explore.envs.worlds.hard_eight.rendering import Camera, Scene
from byol_explore.envs.worlds.hard_eight.world import APPLES, CRATES, Agent, Level, World, doors_now
from byol_explore.types import Array

_RGB = jnp.array(list(COLOURS.values()), jnp.float32)
_BRIGHT, _DARK = 250.0, 40.0  # edges of what is held, and of white things in the hand
BODY_LIGHT, IN_HAND = 0.25, 0.6  # light of what can be moved, and of what is held
LIT, UNLIT = 1.0, 0.35  # light of sensors
DOOR_LIGHT, APPLE_LIGHT = 0.45, 0.6
SHADE = 0.45  # of a thing's colour, on its edges


def scene_of(level: Level, world: World) -> Scene:
    """Static boxes; doors, sensors and crates, which have edges; apples and balls."""
    doors, bodies = doors_now(level, world.is_open), world.bodies
    sensors = level.sensors.boxes
    held = jnp.where(holds(world.hand), IN_HAND, BODY_LIGHT)
    sensor_colour = jnp.where(world.is_on, NUMBERS["white"], level.sensors.colour)
    apple_colour = jnp.full((APPLES,), NUMBERS["apple"], jnp.int32)
    colour = [level.paint.colour, level.doors.colour, sensor_colour, level.colour[:CRATES], apple_colour]
    glow = [level.paint.glow, jnp.full_like(doors.half[0], DOOR_LIGHT), jnp.where(world.is_on, LIT, UNLIT)]
    glow += [held[:CRATES], jnp.full((APPLES,), APPLE_LIGHT), held[CRATES:]]
    pattern = jnp.concatenate([level.paint.pattern, jnp.full_like(doors.half[0], 0.35)])
    rgb = _RGB[jnp.concatenate([*colour, level.colour[CRATES:]])]
    return Scene(
        centre=jnp.concatenate([level.static.centre, doors.centre, sensors.centre, bodies.centre[:, :CRATES]], axis=1),
        half=jnp.concatenate([level.static.half, doors.half, sensors.half, bodies.half[:, :CRATES]], axis=1),
        yaw=jnp.pad(bodies.yaw[:CRATES], (level.static.half.shape[1] + doors.half.shape[1] + sensors.half.shape[1], 0)),
        ball_centre=jnp.concatenate([level.apples.centre, bodies.centre[:, CRATES:]], axis=1),
        radius=jnp.concatenate([_uneaten(level, world), bodies.half[0, CRATES:]]),
        rgb=rgb,
        glow=jnp.concatenate(glow),
        pattern=jnp.pad(pattern, (0, rgb.shape[0] - pattern.shape[0])),
        edge=_edges(level, world),
    )


def _edges(level: Level, world: World) -> Array:
    """[D + K + crates, 3] darker than the thing itself; bright in the hand; a sensor that is on keeps its colour."""
    doors, sensors, crates = (_RGB[colour] for colour in (level.doors.colour, level.sensors.colour, level.colour))
    sensors = jnp.where(world.is_on[:, None], sensors, SHADE * sensors)
    in_hand = jnp.where(level.colour == NUMBERS["white"], _DARK, _BRIGHT)
    crates = jnp.where(holds(world.hand)[:, None], in_hand[:, None], SHADE * crates)
    return jnp.concatenate([SHADE * doors, sensors, crates[:CRATES]])


def _uneaten(level: Level, world: World) -> Array:
    """[A] radii of the apples that are left."""
    return jnp.where(world.eaten, 0.0, level.apples.radius)


def through_the_eyes(agent: Agent) -> Camera:
    return Camera(agent.eye, agent.yaw, agent.pitch)
