"""What a Hard-Eight world is made of: records with a fixed number of slots, so that all tasks share one program.

A `Level` is drawn at the start of an episode and stays; a `World` is what changes. Coordinates are metres to the east,
to the north and up; the feet of an agent on the ground are at height 0. Arrays keep the three axes first and the slots
last, which is what vector units like. A slot that a task does not need holds something without size, far below.

Axis letters: S static boxes, D doors, K sensors, M bodies, A apples, Z zones, L landmarks.
"""

from typing import NamedTuple

import jax.numpy as jnp

from byol_explore.types import Array

STATIC, DOORS, SENSORS, CRATES, BALLS, APPLES, ZONES, LANDMARKS = 28, 4, 4, 12, 2, 6, 4, 4
BODIES = CRATES + BALLS  # crates are boxes that may be turned (the bat is one), balls are round

FAR_BELOW = -100.0  # where unused slots are
CEILING = 3.0  # nothing gets higher
ABYSS = -3.0  # nor lower
AGENT_HALF = (0.2, 0.2, 0.6)  # of the agent's hull
EYE = 0.5  # above the middle of the agent


class Boxes(NamedTuple):
    """Upright boxes that are not turned."""

    centre: Array  # [3, N]
    half: Array  # [3, N]

    @property
    def low(self) -> Array:
        return self.centre - self.half

    @property
    def high(self) -> Array:
        return self.centre + self.half


class Paint(NamedTuple):
    """How things look: a colour of the palette, light of their own (0 to 1), and how strong the pattern on them is."""

    colour: Array  # [N] int32
    glow: Array  # [N]
    pattern: Array  # [N]


class Sensors(NamedTuple):
    """Plates that bodies can touch, and what a touch does."""

    boxes: Boxes  # [3, K]
    colour: Array  # [K] int32
    accepts: Array  # [K, M] whether a body moves it
    uses_up: Array  # [K] whether the body disappears
    must_stay: Array  # [K] whether it is on only while a body that nobody holds touches it


class Doors(NamedTuple):
    """Boxes with two places: shut and open. A bridge is a door that lies across a gap when it is open."""

    shut: Boxes  # [3, D]
    open: Boxes  # [3, D]
    colour: Array  # [D] int32
    needs: Array  # [D, K] sensors that must all be on


class Apples(NamedTuple):
    """What is eaten by touching it."""

    centre: Array  # [3, A]
    radius: Array  # [A]
    reward: Array  # [A]


class Zones(NamedTuple):
    """Parts of the floor that cost something whenever they are entered."""

    boxes: Boxes  # [3, Z] from the floor up to where an agent is
    reward: Array  # [Z]


class Bodies(NamedTuple):
    """What can be moved. Collisions are those of hulls: the upright boxes around them that are not turned."""

    centre: Array  # [3, M]
    half: Array  # [3, M] of the body itself, before it is turned
    yaw: Array  # [M]
    velocity: Array  # [3, M]

    @property
    def hull(self) -> Boxes:
        """The upright boxes around them; a ball's is a cube."""
        cos, sin = jnp.abs(jnp.cos(self.yaw)), jnp.abs(jnp.sin(self.yaw))
        east, north, up = self.half
        turned = jnp.stack([cos * east + sin * north, sin * east + cos * north, up])
        is_ball = jnp.arange(self.yaw.shape[0]) >= CRATES
        return Boxes(self.centre, jnp.where(is_ball, self.half, turned))


class Agent(NamedTuple):
    """The body that sees and acts."""

    centre: Array  # [3]
    velocity: Array  # [3]
    yaw: Array  # [] of the way it looks, 0 is east, counter-clockwise
    pitch: Array  # [] upwards
    stands: Array  # [] whether something carries it

    @property
    def eye(self) -> Array:
        return self.centre + jnp.array([0.0, 0.0, EYE])

    @property
    def heading(self) -> Array:
        """[3] to the front, level."""
        return jnp.stack([jnp.cos(self.yaw), jnp.sin(self.yaw), jnp.zeros_like(self.yaw)])

    @property
    def right(self) -> Array:
        """[3] to its right hand, level."""
        return jnp.stack([jnp.sin(self.yaw), -jnp.cos(self.yaw), jnp.zeros_like(self.yaw)])

    @property
    def look(self) -> Array:
        """[3] where it looks, of length one."""
        return jnp.cos(self.pitch) * self.heading + jnp.sin(self.pitch) * jnp.array([0.0, 0.0, 1.0])


class Hand(NamedTuple):
    """What is held, and how."""

    held: Array  # [] int32, a body, or -1
    distance: Array  # [] from the eye, at which it is to be
    force: Array  # [] how much it resists; it is dropped at 1


class Level(NamedTuple):
    """What an episode keeps."""

    task: Array  # [] int32
    static: Boxes  # [3, S]
    paint: Paint  # [S]
    doors: Doors
    sensors: Sensors
    apples: Apples
    zones: Zones
    colour: Array  # [M] int32, of the bodies
    liftable: Array  # [M]
    low: Array  # [3] the world's bounds
    high: Array  # [3]
    start: Bodies  # where bodies are at first, and again after a fall
    entrance: Array  # [3] where the agent is at first, and again after a fall
    heading: Array  # [] its yaw there
    landmarks: Array  # [3, L] doorways and the like in the order in which one passes them, for experts and pages


class World(NamedTuple):
    """What changes."""

    agent: Agent
    hand: Hand
    bodies: Bodies
    is_on: Array  # [K] sensors
    is_open: Array  # [D]
    eaten: Array  # [A]
    inside: Array  # [Z] whether the agent stands in a zone


def begin(level: Level) -> World:
    """The world of a level before anything has happened."""
    nothing, zero = jnp.zeros((3,)), jnp.zeros(())
    return World(
        agent=Agent(level.entrance, nothing, level.heading, zero, jnp.array(True)),
        hand=Hand(jnp.full((), -1, jnp.int32), zero, zero),
        bodies=level.start,
        is_on=jnp.zeros((SENSORS,), bool),
        is_open=jnp.zeros((DOORS,), bool),
        eaten=level.apples.reward == 0.0,
        inside=jnp.zeros((ZONES,), bool),
    )


def joined(*boxes: Boxes) -> Boxes:
    """All of them, one after the other."""
    return Boxes(
        jnp.concatenate([each.centre for each in boxes], axis=1), jnp.concatenate([each.half for each in boxes], axis=1)
    )


def doors_now(level: Level, is_open: Array) -> Boxes:
    """Where the doors are."""
    return Boxes(
        jnp.where(is_open, level.doors.open.centre, level.doors.shut.centre),
        jnp.where(is_open, level.doors.open.half, level.doors.shut.half),
    )


def obstacles(level: Level, is_open: Array) -> Boxes:
    """[3, S + D] all that does not move: static boxes and doors."""
    return joined(level.static, doors_now(level, is_open))


def agent_hull(centre: Array) -> Boxes:
    """[3, 1] the agent as a box."""
    return Boxes(centre[:, None], jnp.array(AGENT_HALF)[:, None])


def overlaps(first: Boxes, second: Boxes, margin: float = 0.0) -> Array:
    """[N, P] whether two boxes share more than a skin, or come closer than a margin if that is positive."""
    depth = first.half[:, :, None] + second.half[:, None, :]
    depth = depth - jnp.abs(first.centre[:, :, None] - second.centre[:, None, :])
    is_there = (first.half[2] > 0.0)[:, None] & (second.half[2] > 0.0)[None]
    return jnp.all(depth > -margin, axis=0) & is_there
