"""Building a level: things are put in one after the other, and become slots in the end.

Numbers may be those of a trace: how many things there are of a kind is fixed for a task, and where they are is not.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight.palette import NUMBERS
from byol_explore.envs.worlds.hard_eight.world import (
    ABYSS,
    AGENT_HALF,
    APPLES,
    BALLS,
    BODIES,
    CEILING,
    CRATES,
    DOORS,
    FAR_BELOW,
    LANDMARKS,
    SENSORS,
    STATIC,
    ZONES,
    Apples,
    Bodies,
    Boxes,
    Doors,
    Level,
    Paint,
    Sensors,
    Zones,
)
from byol_explore.types import Array

Number = Any  # a float or a scalar of a trace
Point = Sequence[Number]
THICKNESS = 0.1  # of walls


class _Box(NamedTuple):
    centre: Point
    half: Point
    colour: Number
    glow: float = 0.0
    pattern: float = 0.0


class _Body(NamedTuple):
    box: _Box
    yaw: Number
    liftable: bool


class Builder:
    """A level in the making. Corners are the lower and the upper one of a box: (west, south, bottom), (east, ...)."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._static: list[_Box] = []
        self._crates: list[_Body] = []
        self._balls: list[_Body] = []
        self._sensors: list[tuple[_Box, list[int], bool, bool]] = []
        self._doors: list[tuple[_Box, _Box, list[int]]] = []
        self._apples: list[tuple[Point, float, float]] = []
        self._zones: list[tuple[_Box, float]] = []
        self._landmarks: list[Point] = []

    def box(self, low: Point, high: Point, colour: Number, *, pattern: float = 0.25, glow: float = 0.0) -> None:
        """Something that stays where it is."""
        self._static.append(_between(low, high, _number(colour), glow, pattern))

    def floor(
        self, west: Number, south: Number, east: Number, north: Number, *, bottom: float = -0.5
    ) -> None:  # fmt: skip
        self.box((west, south, bottom), (east, north, 0.0), "floor")

    def wall(
        self, start: Point, end: Point, colour: Number, *, bottom: Number = 0.0, top: Number = CEILING
    ) -> None:  # fmt: skip
        """From one point of the plan to another, west to east or south to north."""
        low = (start[0] - THICKNESS, start[1] - THICKNESS, bottom)
        self.box(low, (end[0] + THICKNESS, end[1] + THICKNESS, top), colour, pattern=0.15)

    def crate(
        self, centre: Point, half: Point, colour: Number, *,
        yaw: Number = 0.0, liftable: bool = True, exists: Number = True,
    ) -> int:  # fmt: skip
        """A box that can be moved; its number among the bodies."""
        self._crates.append(_Body(_if(exists, _Box(centre, half, _number(colour))), yaw, liftable))
        return len(self._crates) - 1

    def ball(self, centre: Point, radius: Number, colour: Number, *, exists: Number = True) -> int:
        self._balls.append(_Body(_if(exists, _Box(centre, (radius,) * 3, _number(colour))), 0.0, True))
        return CRATES + len(self._balls) - 1

    def sensor(
        self, centre: Point, half: Point, colour: Number, accepts: Sequence[int], *,
        uses_up: bool = False, must_stay: bool = False,
    ) -> int:  # fmt: skip
        """A plate that some bodies switch by touching it."""
        self._sensors.append((_Box(centre, half, _number(colour)), list(accepts), uses_up, must_stay))
        return len(self._sensors) - 1

    def door(self, shut: tuple[Point, Point], opened: tuple[Point, Point], colour: Number, needs: Sequence[int]) -> int:
        """A box that goes from one place to another, both by their corners, while these sensors are all on."""
        number = _number(colour)
        self._doors.append((_between(*shut, number), _between(*opened, number), list(needs)))
        return len(self._doors) - 1

    def apple(self, centre: Point, reward: float) -> None:
        self._apples.append((centre, 0.28 if reward >= 10.0 else 0.16, reward))

    def zone(self, low: Point, high: Point, reward: float) -> None:
        """A strip of the floor that costs something, from this corner to that; it is as high as its paint."""
        self.box(low, high, "strip", pattern=0.0, glow=0.3)
        tall = _between((low[0], low[1], low[2]), (high[0], high[1], high[2] + 0.3), 0)
        self._zones.append((tall, reward))

    def landmark(self, place: Point) -> None:
        """A place that whoever knows the level goes by."""
        self._landmarks.append(place)

    def level(self, entrance: Point, heading: Number, low: Point, high: Point) -> Level:
        """All of it; the agent stands at the entrance (its feet), and the plan goes from one point to another."""
        self._numbers = jax.tree.leaves(self._records(entrance, heading, low, high))
        return unpacked(self.packed)

    @property
    def packed(self) -> Array:
        """[F] all numbers of the level in one array, which is much faster to compile than one of each."""
        numbers = [number for record in self._numbers for number in record.flat]
        drawn = [index for index, number in enumerate(numbers) if isinstance(number, jax.Array)]
        constants = np.array([0 if isinstance(number, jax.Array) else number for number in numbers], np.float32)
        if not drawn:
            return jnp.asarray(constants)
        place = np.arange(len(numbers))
        place[drawn] = len(numbers) + np.arange(len(drawn))
        return jnp.concatenate([constants, jnp.stack([jnp.asarray(numbers[i], jnp.float32) for i in drawn])])[place]

    def _records(self, entrance: Point, heading: Number, low: Point, high: Point) -> Level:
        """A level whose arrays are of objects."""
        bodies = [*_filled(self._crates, CRATES, _NO_BODY), *_filled(self._balls, BALLS, _NO_BODY)]
        boxes = [body.box for body in bodies]
        start = Bodies(
            *_boxes(boxes), yaw=_array([body.yaw for body in bodies]), velocity=_points([(0.0,) * 3] * BODIES)
        )
        static = _filled(self._static, STATIC, _NOTHING)
        places, radii, rewards = zip(*_filled(self._apples, APPLES, ((0.0, 0.0, FAR_BELOW), 0.0, 0.0)), strict=True)
        zones = _filled(self._zones, ZONES, (_NOTHING, 0.0))
        x, y, z = entrance
        return Level(
            task=_array([self._task]),
            static=_boxes(static),
            paint=Paint(_colours(static), _array([b.glow for b in static]), _array([b.pattern for b in static])),
            doors=self._make_doors(),
            sensors=self._make_sensors(),
            apples=Apples(_points(places), _array(radii), _array(rewards)),
            zones=Zones(_boxes([zone[0] for zone in zones]), _array([zone[1] for zone in zones])),
            colour=_colours(boxes),
            liftable=_array([body.liftable for body in bodies]),
            low=_array([*low, ABYSS]),
            high=_array([*high, CEILING]),
            start=start,
            entrance=_array([x, y, z + AGENT_HALF[2]]),
            heading=_array([heading]),
            landmarks=_points(_filled(self._landmarks, LANDMARKS, (0.0, 0.0, FAR_BELOW))),
        )  # fmt: skip

    def _make_sensors(self) -> Sensors:
        sensors = _filled(self._sensors, SENSORS, (_NOTHING, [], False, False))
        boxes = [sensor[0] for sensor in sensors]
        accepts = _array([body in sensor[1] for sensor in sensors for body in range(BODIES)])
        uses_up, must_stay = (_array([sensor[field] for sensor in sensors]) for field in (2, 3))
        return Sensors(_boxes(boxes), _colours(boxes), accepts, uses_up, must_stay)

    def _make_doors(self) -> Doors:
        doors = _filled(self._doors, DOORS, (_NOTHING, _NOTHING, []))
        needs = _array([sensor in door[2] for door in doors for sensor in range(SENSORS)])
        shut, opened = [door[0] for door in doors], [door[1] for door in doors]
        return Doors(_boxes(shut), _boxes(opened), _colours(shut), needs)


_NOTHING = _Box((0.0, 0.0, FAR_BELOW), (0.0, 0.0, 0.0), 0)
_NO_BODY = _Body(_NOTHING, 0.0, False)


def _if(exists: Number, box: _Box) -> _Box:
    """The box, or nothing."""
    if exists is True:
        return box
    places = zip((*box.centre, *box.half), (*_NOTHING.centre, *_NOTHING.half), strict=True)
    numbers = [jnp.where(exists, place, nowhere) for place, nowhere in places]
    return box._replace(centre=numbers[:3], half=numbers[3:])


def _number(colour: Number) -> Number:
    return NUMBERS[colour] if isinstance(colour, str) else colour


def _between(low: Point, high: Point, colour: Number, glow: float = 0.0, pattern: float = 0.0) -> _Box:
    pairs = list(zip(low, high, strict=True))
    return _Box([0.5 * (a + b) for a, b in pairs], [0.5 * (b - a) for a, b in pairs], colour, glow, pattern)


def _filled(things: list[Any], slots: int, nothing: Any) -> list[Any]:
    if len(things) > slots:
        raise ValueError(f"{len(things)} things for {slots} slots")
    return [*things, *[nothing] * (slots - len(things))]


def _array(numbers: Sequence[Number]) -> Any:
    """Numbers of which some may be those of a trace."""
    array = np.empty(len(numbers), object)
    for index, number in enumerate(numbers):
        array[index] = number
    return array


def _points(points: Sequence[Point]) -> Any:
    return _array([number for axis in zip(*points, strict=True) for number in axis])


def _boxes(boxes: Sequence[_Box]) -> Boxes:
    return Boxes(_points([box.centre for box in boxes]), _points([box.half for box in boxes]))


def _colours(boxes: Sequence[_Box]) -> Any:
    return _array([box.colour for box in boxes])


def _shapes() -> Level:
    """A level with nothing but the shapes and types of its arrays."""

    def floats(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32)

    def whole(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.int32)

    def truths(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.bool_)

    def boxes(count: int) -> Boxes:
        return Boxes(floats(3, count), floats(3, count))

    return Level(
        task=whole(),
        static=boxes(STATIC),
        paint=Paint(whole(STATIC), floats(STATIC), floats(STATIC)),
        doors=Doors(boxes(DOORS), boxes(DOORS), whole(DOORS), truths(DOORS, SENSORS)),
        sensors=Sensors(boxes(SENSORS), whole(SENSORS), truths(SENSORS, BODIES), truths(SENSORS), truths(SENSORS)),
        apples=Apples(floats(3, APPLES), floats(APPLES), floats(APPLES)),
        zones=Zones(boxes(ZONES), floats(ZONES)),
        colour=whole(BODIES),
        liftable=truths(BODIES),
        low=floats(3),
        high=floats(3),
        start=Bodies(*boxes(BODIES), yaw=floats(BODIES), velocity=floats(3, BODIES)),
        entrance=floats(3),
        heading=floats(),
        landmarks=floats(3, LANDMARKS),
    )


def unpacked(numbers: Array) -> Level:
    """The level that all these numbers make up [F]."""
    shapes, tree = jax.tree.flatten(_shapes())
    ends = np.cumsum([math.prod(shape.shape) for shape in shapes])[:-1]
    parts = jnp.split(numbers, ends)
    return tree.unflatten(
        [part.reshape(shape.shape).astype(shape.dtype) for part, shape in zip(parts, shapes, strict=True)]
    )
