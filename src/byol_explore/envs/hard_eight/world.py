"""State of a Hard-Eight world: records with fixed slots, so that all tasks share one compiled program.

A `Level` is drawn at the start of an episode and is constant; a `World` changes at each tick. Coordinates are metres to
the east, to the north and up; the feet of an agent on the ground are at height 0. Arrays have the three coordinates
first and the slots last, which suits vector units. An unused slot holds an object of size 0, far below the level.

Axis letters: S static boxes, D doors, K sensors, M bodies, A apples, Z zones, L landmarks.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight.tasks import ACTION_TABLE
from byol_explore.types import Action, Array

STATIC, DOORS, SENSORS, CRATES, BALLS, APPLES, ZONES, LANDMARKS = 28, 4, 4, 12, 2, 6, 4, 4
BODIES = CRATES + BALLS  # crates are boxes with a yaw (the bat is one)

FAR_BELOW = -100.0  # height of unused slots, metres
CEILING = 3.0  # upper bound of every world, metres
ABYSS = -3.0  # lower bound
AGENT_HALF = (0.2, 0.2, 0.6)  # half extents of the agent's hull, metres
SKIN = 1e-3  # metres; a smaller overlap is rounding
EYE = 0.5  # height of the eye above the agent's centre, metres


class Boxes(NamedTuple):
    """Axis-aligned boxes."""

    centre: Array  # [3, N]
    half: Array  # [3, N] half extents

    @property
    def low(self) -> Array:
        return self.centre - self.half

    @property
    def high(self) -> Array:
        return self.centre + self.half


class Paint(NamedTuple):
    """Appearance of boxes."""

    colour: Array  # [N] int32, index into COLOURS
    glow: Array  # [N] 0 to 1, emitted fraction of the light
    pattern: Array  # [N] 0 to 1, strength of the chequered pattern


class Sensors(NamedTuple):
    """Plates that bodies can touch."""

    boxes: Boxes  # [3, K]
    colour: Array  # [K] int32
    accepts: Array  # [M, K] bool, whether a body can switch it on
    consumes_key: Array  # [K] bool, whether the touching body disappears
    momentary: Array  # [K] bool, whether it is on only while touched, and moves doors only while a resting body does


class Doors(NamedTuple):
    """Boxes with two positions, shut and open. A bridge is a door that lies across a gap when it is open."""

    shut: Boxes  # [3, D]
    open: Boxes  # [3, D]
    colour: Array  # [D] int32
    needs: Array  # [K, D] bool, sensors that must all be active


class Apples(NamedTuple):
    """Apples, eaten at a touch of the agent."""

    centre: Array  # [3, A]
    radius: Array  # [A]
    reward: Array  # [A]


class Zones(NamedTuple):
    """Parts of the floor that pay a (negative) reward each time the agent enters them."""

    boxes: Boxes  # [3, Z] from the floor into the hull of an agent on it
    reward: Array  # [Z]


class Bodies(NamedTuple):
    """Movable crates and balls. They collide as hulls, their axis-aligned bounding boxes."""

    centre: Array  # [3, M]
    half: Array  # [3, M] half extents before the rotation by yaw; 0 for empty slots
    yaw: Array  # [M]
    velocity: Array  # [3, M]

    @property
    def hull(self) -> Boxes:
        """[3, M] axis-aligned bounding boxes; a ball's is a cube."""
        cos, sin = jnp.abs(jnp.cos(self.yaw)), jnp.abs(jnp.sin(self.yaw))
        east, north, up = self.half
        turned = jnp.stack([cos * east + sin * north, sin * east + cos * north, up])
        is_ball = jnp.arange(self.yaw.shape[0]) >= CRATES
        return Boxes(self.centre, jnp.where(is_ball, self.half, turned))


class Agent(NamedTuple):
    """Pose and velocity of the agent."""

    centre: Array  # [3]
    velocity: Array  # [3]
    yaw: Array  # [] radians, 0 is east, counter-clockwise
    pitch: Array  # [] radians, positive upwards
    on_ground: Array  # [] bool, whether it stands on something

    @property
    def eye(self) -> Array:
        return self.centre + jnp.array([0.0, 0.0, EYE])

    @property
    def heading(self) -> Array:
        """[3] horizontal unit vector forward."""
        return jnp.stack([jnp.cos(self.yaw), jnp.sin(self.yaw), jnp.zeros_like(self.yaw)])

    @property
    def right(self) -> Array:
        """[3] horizontal unit vector to the right."""
        return jnp.stack([jnp.sin(self.yaw), -jnp.cos(self.yaw), jnp.zeros_like(self.yaw)])

    @property
    def look(self) -> Array:
        """[3] unit vector of the view axis."""
        return jnp.cos(self.pitch) * self.heading + jnp.sin(self.pitch) * jnp.array([0.0, 0.0, 1.0])


class Hand(NamedTuple):
    """State of the hand."""

    held: Array  # [] int32, index of the held body, or -1
    distance: Array  # [] metres from the eye at which the body is held
    strain: Array  # [] resistance of the held body; it is dropped at 1


class Level(NamedTuple):
    """Constants of an episode."""

    task: Array  # [] int32
    static: Boxes  # [3, S]
    paint: Paint  # [S]
    doors: Doors
    sensors: Sensors
    apples: Apples
    zones: Zones
    colour: Array  # [M] int32, of the bodies
    liftable: Array  # [M] bool
    low: Array  # [3] lower bounds of the world
    high: Array  # [3] upper bounds
    initial_bodies: Bodies  # at the start, and again after a fall
    spawn: Array  # [3] centre of the agent at the start, and again after a fall
    spawn_yaw: Array  # [] initial yaw
    landmarks: Array  # [3, L] waypoints such as doorways in the order of the solution, for the experts


class World(NamedTuple):
    """State that changes at each tick."""

    agent: Agent
    hand: Hand
    bodies: Bodies
    sensor_on: Array  # [K] bool
    door_open: Array  # [D] bool
    apple_eaten: Array  # [A] bool; True for empty slots
    in_zone: Array  # [Z] bool, whether the agent stands in the zone


def init_world(level: Level) -> World:
    """Return the initial world of a level."""
    nothing, zero = jnp.zeros((3,)), jnp.zeros(())
    return World(
        agent=Agent(level.spawn, nothing, level.spawn_yaw, zero, jnp.array(True)),
        hand=Hand(jnp.full((), -1, jnp.int32), zero, zero),
        bodies=level.initial_bodies,
        sensor_on=jnp.zeros((SENSORS,), bool),
        door_open=jnp.zeros((DOORS,), bool),
        apple_eaten=level.apples.reward == 0.0,
        in_zone=jnp.zeros((ZONES,), bool),
    )


def concat_boxes(*boxes: Boxes) -> Boxes:
    """Concatenate boxes along their slots."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *boxes)


def current_doors(level: Level, is_open: Array) -> Boxes:
    """[3, D] the doors in their current positions."""
    return jax.tree.map(partial(jnp.where, is_open), level.doors.open, level.doors.shut)


def obstacles(level: Level, is_open: Array) -> Boxes:
    """[3, S + D] everything that is fixed during a tick: static boxes and doors."""
    return concat_boxes(level.static, current_doors(level, is_open))


def agent_hull(centre: Array) -> Boxes:
    """[3, 1] hull of an agent with its centre at [3]."""
    return Boxes(centre[:, None], jnp.array(AGENT_HALF)[:, None])


def overlaps(first: Boxes, second: Boxes, margin: float = 0.0) -> Array:
    """[N, P] whether two boxes overlap or are closer than `margin`; False for empty slots."""
    depth = first.half[:, :, None] + second.half[:, None, :]
    depth = depth - jnp.abs(first.centre[:, :, None] - second.centre[:, None, :])
    is_there = (first.half[2] > 0.0)[:, None] & (second.half[2] > 0.0)[None]
    return jnp.all(depth > -margin, axis=0) & is_there


def segment_crosses(low: Array, high: Array, way: Array) -> Array:
    """[N] whether the segment from the origin along `way` [D, 1] intersects the boxes from `low` to `high` [D, N].

    Slab test: the point t way is inside a box for max(enters) < t < min(leaves) over the axes.
    """
    way = jnp.where(jnp.abs(way) < 1e-6, 1e-6, way)  # avoid division by zero
    first, second = low / way, high / way  # t at both planes of each slab
    enters = jnp.max(jnp.minimum(first, second), axis=0)
    leaves = jnp.min(jnp.maximum(first, second), axis=0)
    return (enters < leaves) & (leaves > 0.0) & (enters < 1.0)


COLOURS = {
    "floor": (146, 137, 123),
    "wall": (214, 206, 186),
    "stone": (124, 130, 152),
    "pit": (30, 26, 38),
    "strip": (235, 110, 20),
    "wood": (146, 96, 48),
    "apple": (120, 255, 40),
    "frame": (92, 88, 84),
    "mint wall": (182, 210, 194),
    "rose wall": (218, 190, 190),
    "red": (225, 40, 40),
    "blue": (50, 80, 245),
    "yellow": (245, 220, 40),
    "magenta": (220, 60, 220),
    "cyan": (50, 220, 235),
    "white": (240, 240, 240),
}
COLOUR_INDEX = {name: number for number, name in enumerate(COLOURS)}
WALLS = ("wall", "mint wall", "rose wall")
KEYS = ("red", "blue", "yellow", "magenta", "cyan")  # of bodies, sensors and doors


class Control(NamedTuple):
    """An action by name, each number in [-1, 1], in the order of `tasks.CONTINUOUS`."""

    move: Array  # [] forward
    strafe: Array  # [] to the right
    look_down: Array  # []
    turn_right: Array  # []
    roll: Array  # [] no effect: bodies stay upright
    tilt: Array  # [] no effect
    rotate_held: Array  # [] held body, around the vertical axis
    push_held: Array  # [] held body, away from the agent
    grip: Array  # [] bool


def decode_action(action: Action, kind: str) -> Control:
    """Decode an action of the set `kind` ("discrete" or "continuous"). NaNs count as 0."""
    if kind == "discrete":
        numbers = jnp.asarray(ACTION_TABLE)[action.discrete[0]]
    else:
        numbers = jnp.clip(jnp.nan_to_num(action.continuous, nan=0.0), -1.0, 1.0)
    return Control(*numbers, grip=action.discrete[-1] == 1)
