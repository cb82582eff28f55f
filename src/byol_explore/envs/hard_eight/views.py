"""From a world to a scene for the ray caster, and the three views: first person, top-down, over the shoulder."""

import jax.numpy as jnp

from byol_explore.envs.hard_eight.interactions import held_mask
from byol_explore.envs.hard_eight.raycaster import Camera, FieldOfView, Scene, render
from byol_explore.envs.hard_eight.world import (
    AGENT_HALF,
    APPLES,
    COLOUR_INDEX,
    COLOURS,
    CRATES,
    DOORS,
    SENSORS,
    STATIC,
    Agent,
    Boxes,
    Level,
    World,
    concat_boxes,
    obstacles,
    segment_crosses,
)
from byol_explore.types import Array

_RGB = jnp.array(list(COLOURS.values()), jnp.float32)
_BRIGHT, _DARK = 250.0, 40.0  # edge colour of the held body, and of a white held body
BODY_GLOW, HELD_GLOW = 0.25, 0.6  # glow of movable bodies, and of the held one
SENSOR_ON_GLOW, SENSOR_OFF_GLOW = 1.0, 0.35  # glow of sensors
DOOR_GLOW, APPLE_GLOW = 0.45, 0.6
DOOR_PATTERN = 0.35  # strength of the chequered pattern of doors
EDGE_SHADE = 0.45  # factor on an object's colour at its edges


def make_scene(level: Level, world: World) -> Scene:
    """Return the scene: boxes without edges (S), boxes with edges (D doors, K sensors, crates), then balls (A apples,
    balls).
    """
    bodies = world.bodies
    crates = Boxes(bodies.centre[:, :CRATES], bodies.half[:, :CRATES])
    boxes = concat_boxes(obstacles(level, world.door_open), level.sensors.boxes, crates)
    held = jnp.where(held_mask(world.hand), HELD_GLOW, BODY_GLOW)
    sensor_colour = jnp.where(world.sensor_on, COLOUR_INDEX["white"], level.sensors.colour)
    apple_colour = jnp.full((APPLES,), COLOUR_INDEX["apple"], jnp.int32)
    colour = [level.paint.colour, level.doors.colour, sensor_colour, level.colour[:CRATES], apple_colour]
    sensor_glow = jnp.where(world.sensor_on, SENSOR_ON_GLOW, SENSOR_OFF_GLOW)
    glow = [level.paint.glow, jnp.full((DOORS,), DOOR_GLOW), sensor_glow, held[:CRATES]]
    glow += [jnp.full((APPLES,), APPLE_GLOW), held[CRATES:]]
    pattern = jnp.concatenate([level.paint.pattern, jnp.full((DOORS,), DOOR_PATTERN)])
    rgb = _RGB[jnp.concatenate([*colour, level.colour[CRATES:]])]
    return Scene(
        *boxes,
        yaw=jnp.pad(bodies.yaw[:CRATES], (STATIC + DOORS + SENSORS, 0)),
        ball_centre=jnp.concatenate([level.apples.centre, bodies.centre[:, CRATES:]], axis=1),
        radius=jnp.concatenate([jnp.where(world.apple_eaten, 0.0, level.apples.radius), bodies.half[0, CRATES:]]),
        rgb=rgb,
        glow=jnp.concatenate(glow),
        pattern=jnp.pad(pattern, (0, rgb.shape[0] - pattern.shape[0])),
        edge=_edges(level, world),
    )


def _edges(level: Level, world: World) -> Array:
    """[D + K + crates, 3] edge colours: darker than the object, bright if held, a lit sensor's own colour."""
    doors, sensors, crates = (_RGB[colour] for colour in (level.doors.colour, level.sensors.colour, level.colour))
    sensors = jnp.where(world.sensor_on[:, None], sensors, EDGE_SHADE * sensors)
    in_hand = jnp.where(level.colour == COLOUR_INDEX["white"], _DARK, _BRIGHT)
    crates = jnp.where(held_mask(world.hand)[:, None], in_hand[:, None], EDGE_SHADE * crates)
    return jnp.concatenate([EDGE_SHADE * doors, sensors, crates[:CRATES]])


def first_person_camera(agent: Agent) -> Camera:
    return Camera(agent.eye, agent.yaw, agent.pitch)


SIZE = (216, 288)  # height and width of a view in pixels
CAMERA_BACK, CAMERA_UP = 2.6, 2.0  # metres, position of the shoulder camera relative to the eye
CAMERA_PITCH = 0.5  # radians by which the shoulder camera looks down
PLAN_HEIGHT = 2.15  # metres; the plan is cut above the ball on its plinth and below the lintels
SIDE_MARGIN = 1.0  # metres around an occluding wall within which neighbouring walls are cut as well
STUMP_HEIGHT = 0.1  # metres, height of cut walls
_PLAN_CAMERA_HEIGHT = 40.0  # metres; from this height walls show no perspective
_AGENT_RGB = (50, 54, 70)
_DOWN = -jnp.pi / 2 + 1e-4


def first_person(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """[H, W, 3] uint8, the agent's view at a larger size."""
    return render(make_scene(level, world), first_person_camera(world.agent), *size)


def top_down(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """[H, W, 3] uint8, plan of the level without lintels, the longer side horizontal. The nose shows the view axis."""
    is_there = level.static.half[2] > 0.0
    low = jnp.min(jnp.where(is_there, level.static.low, jnp.inf), axis=1)
    high = jnp.max(jnp.where(is_there, level.static.high, -jnp.inf), axis=1)
    middle, extent = 0.5 * (low + high), 0.5 * (high - low) + 0.1
    is_wide = extent[0] >= extent[1]
    across, along = jnp.maximum(extent[0], extent[1]), jnp.minimum(extent[0], extent[1])
    shape = size[0] / size[1]
    width = jnp.maximum(across, along / shape) / _PLAN_CAMERA_HEIGHT
    camera = Camera(middle.at[2].set(_PLAN_CAMERA_HEIGHT), jnp.where(is_wide, jnp.pi / 2, 0.0), jnp.asarray(_DOWN))
    scene = _cut_walls(add_agent(make_scene(level, world), world), jnp.full((STATIC,), PLAN_HEIGHT))
    return render(scene, camera, *size, FieldOfView(width, shape * width, fade=0.0))


def over_the_shoulder(level: Level, world: World, size: tuple[int, int] = SIZE) -> Array:
    """[H, W, 3] uint8, the agent from behind and above. Walls between the camera and the agent are cut."""
    agent = world.agent
    eye = agent.eye - CAMERA_BACK * agent.heading + CAMERA_UP * jnp.array([0.0, 0.0, 1.0])
    camera = Camera(eye, agent.yaw, 0.5 * agent.pitch - CAMERA_PITCH)
    scene = add_agent(make_scene(level, world), world)
    return render(
        _cut_walls(scene, jnp.where(_occluding_walls(level, eye, agent.eye), STUMP_HEIGHT, jnp.inf)), camera, *size
    )


def human_view(level: Level, world: World) -> Array:
    """[H, 3 W, 3] uint8, the three views side by side."""
    views = (first_person, over_the_shoulder, top_down)
    return jnp.concatenate([view(level, world) for view in views], axis=1)


def add_agent(scene: Scene, world: World) -> Scene:
    """Add the agent to a scene, as a box with a nose."""
    agent = world.agent
    nose = agent.eye + 0.25 * agent.look
    half = jnp.array([AGENT_HALF, (0.12, 0.07, 0.07)]).T
    boxes = concat_boxes(Boxes(scene.centre, scene.half), Boxes(jnp.stack([agent.centre, nose], axis=1), half))
    paints = jnp.array([_AGENT_RGB, COLOURS["white"]], jnp.float32)
    count = scene.yaw.shape[0]

    def insert(old: Array, new: Array) -> Array:
        return jnp.concatenate([old[:count], new, old[count:]])

    return scene._replace(
        centre=boxes.centre,
        half=boxes.half,
        yaw=jnp.concatenate([scene.yaw, jnp.stack([agent.yaw, agent.yaw])]),
        rgb=insert(scene.rgb, paints),
        glow=insert(scene.glow, jnp.zeros(2)),
        pattern=insert(scene.pattern, jnp.zeros(2)),
        edge=jnp.concatenate([scene.edge, jnp.broadcast_to(paints[1], (2, 3))]),
    )


def _cut_walls(scene: Scene, height: Array) -> Scene:
    """Cut static boxes [S] off at a height [S] each; boxes that are entirely lower do not change."""
    low = scene.centre[2, :STATIC] - scene.half[2, :STATIC]
    high = jnp.minimum(scene.centre[2, :STATIC] + scene.half[2, :STATIC], height)
    half = jnp.maximum(0.5 * (high - low), 0.0)
    is_left = high > low
    gone = jnp.where(is_left, scene.half[:, :STATIC].at[2].set(half), 0.0)
    return scene._replace(
        centre=scene.centre.at[2, :STATIC].set(jnp.where(is_left, 0.5 * (low + high), -100.0)),
        half=scene.half.at[:, :STATIC].set(gone),
    )


def _occluding_walls(level: Level, eye: Array, agent: Array) -> Array:
    """[S] walls between the eye and the agent, or beside such a wall; if there are any, also walls close to the eye."""
    static = level.static
    is_wall = (jnp.minimum(static.half[0], static.half[1]) < 0.25) & (static.high[2] > 0.4)
    longer = jnp.where(static.half[:2] == jnp.max(static.half[:2], axis=0), SIDE_MARGIN, 0.0)
    low, high = static.low[:2] - longer - eye[:2, None], static.high[:2] + longer - eye[:2, None]
    between = is_wall & segment_crosses(low, high, (agent - eye)[:2, None])
    apart = jnp.max(jnp.maximum(low, -high), axis=0)
    return between | (is_wall & (apart < SIDE_MARGIN) & jnp.any(between))
