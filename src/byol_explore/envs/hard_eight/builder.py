"""Level builder: adds objects one by one and packs them into the fixed slots of a `Level`.

Coordinates may be traced values: a task fixes how many objects of each kind there are, the random draws fix where.
Until a level is packed, the records of `world` hold numbers instead of arrays; a point is a tuple (x, y, z).
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.hard_eight.world import (
    ABYSS,
    AGENT_HALF,
    APPLES,
    BALLS,
    BODIES,
    CEILING,
    COLOUR_INDEX,
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

Scalar = Any  # a number or a traced scalar
Point = Sequence[Scalar]  # (x, y) or (x, y, z) in metres
WALL_HALF = 0.1  # half the thickness of a wall, metres


class Builder:
    """A level under construction. A box is given by two corners: (west, south, bottom) and (east, north, top)."""

    def __init__(self, task: int) -> None:
        self._task = task
        # Records of numbers, one per object.
        self._static: list[tuple[Boxes, Paint]] = []
        self._crates: list[tuple[Bodies, Scalar, bool]] = []  # with the colour, and whether a hand can lift it
        self._balls: list[tuple[Bodies, Scalar, bool]] = []
        self._sensors: list[Sensors] = []
        self._doors: list[Doors] = []
        self._apples: list[Apples] = []
        self._zones: list[Zones] = []
        self._landmarks: list[Point] = []

    def box(self, low: Point, high: Point, colour: Scalar, *, pattern: float = 0.25, glow: float = 0.0) -> None:
        """Add a static box."""
        self._static.append((_box_from_corners(low, high), _record(Paint, _colour_index(colour), glow, pattern)))

    def floor(
        self, west: Scalar, south: Scalar, east: Scalar, north: Scalar, *, bottom: float = -0.5
    ) -> None:  # fmt: skip
        self.box((west, south, bottom), (east, north, 0.0), "floor")

    def wall(self, start: Point, end: Point, colour: Scalar, *, bottom: Scalar = 0.0) -> None:
        """Add a wall between two points of the plan, from west to east or from south to north."""
        low = (start[0] - WALL_HALF, start[1] - WALL_HALF, bottom)
        self.box(low, (end[0] + WALL_HALF, end[1] + WALL_HALF, CEILING), colour, pattern=0.15)

    def crate(
        self, centre: Point, half: Point, colour: Scalar, *,
        yaw: Scalar = 0.0, liftable: bool = True, exists: Scalar = True,
    ) -> int:  # fmt: skip
        """Add a movable box. Returns its index among the bodies."""
        self._crates.append((_body(centre, half, yaw, exists), _colour_index(colour), liftable))
        return len(self._crates) - 1

    def ball(self, centre: Point, radius: Scalar, colour: Scalar, *, exists: Scalar = True) -> int:
        """Add a ball. Returns its index among the bodies."""
        self._balls.append((_body(centre, (radius,) * 3, 0.0, exists), _colour_index(colour), True))
        return CRATES + len(self._balls) - 1

    def sensor(
        self, centre: Point, half: Point, colour: Scalar, accepts: Sequence[int], *,
        consumes_key: bool = False, momentary: bool = False,
    ) -> int:  # fmt: skip
        """Add a plate that the bodies `accepts` switch on by touching it. Returns its index among the sensors."""
        accepted = tuple(body in accepts for body in range(BODIES))
        box = _record(Boxes, tuple(centre), tuple(half))
        self._sensors.append(_record(Sensors, box, _colour_index(colour), accepted, consumes_key, momentary))
        return len(self._sensors) - 1

    def door(self, shut: tuple[Point, Point], opened: tuple[Point, Point], colour: Scalar, needs: Sequence[int]) -> int:
        """Add a box that is at `opened` while all sensors in `needs` are on, else at `shut`. Returns its index."""
        needed = tuple(sensor in needs for sensor in range(SENSORS))
        boxes = _box_from_corners(*shut), _box_from_corners(*opened)
        self._doors.append(_record(Doors, *boxes, _colour_index(colour), needed))
        return len(self._doors) - 1

    def apple(self, centre: Point, reward: float) -> None:
        """Add an apple. The large one (reward 10) is drawn larger and ends the episode."""
        self._apples.append(_record(Apples, tuple(centre), 0.28 if reward >= 10.0 else 0.16, reward))

    def zone(self, low: Point, high: Point, reward: float) -> None:
        """Add a visible strip of floor between two corners that pays `reward` each time the agent enters it."""
        self.box(low, high, "strip", pattern=0.0, glow=0.3)
        # The trigger box is 0.3 m higher than the visible strip, so that the hull of an agent on the strip overlaps it.
        self._zones.append(_record(Zones, _box_from_corners(low, (*high[:2], high[2] + 0.3)), reward))

    def landmark(self, point: Point) -> None:
        """Add a waypoint for the scripted expert of the task."""
        self._landmarks.append(tuple(point))

    def level(self, entrance: Point, heading: Scalar, low: Point, high: Point) -> Array:
        """Return the level as one array [F] float32, for `unpack_level`.

        One array compiles much faster than one array per field: constants become a single literal, and only traced
        numbers are stacked.

        Args:
          entrance: (x, y, z) of the agent's feet.
          heading: its yaw, in radians.
          low: (x, y) lower bound of the plan.
          high: (x, y) upper bound of the plan.
        """
        numbers = jax.tree.leaves(self._fill_slots(entrance, heading, low, high))
        traced = [index for index, number in enumerate(numbers) if isinstance(number, jax.Array)]
        constants = np.array([0 if isinstance(number, jax.Array) else number for number in numbers], np.float32)
        if not traced:
            return jnp.asarray(constants)
        place = np.arange(len(numbers))
        place[traced] = len(numbers) + np.arange(len(traced))
        return jnp.concatenate([constants, jnp.stack([jnp.asarray(numbers[i], jnp.float32) for i in traced])])[place]

    def _fill_slots(self, entrance: Point, heading: Scalar, low: Point, high: Point) -> Level:
        """Return a Level of numbers, points, and lists of numbers over the slots."""
        static, paint = _stack(_fill(self._static, STATIC, (_EMPTY_BOX, _record(Paint, 0, 0.0, 0.0))))
        bodies = [*_fill(self._crates, CRATES, _EMPTY_BODY), *_fill(self._balls, BALLS, _EMPTY_BODY)]
        initial_bodies, colour, liftable = _stack(bodies)
        x, y, z = entrance
        return _record(
            Level,
            task=self._task,
            static=static,
            paint=paint,
            doors=_stack(_fill(self._doors, DOORS, _EMPTY_DOOR)),
            sensors=_stack(_fill(self._sensors, SENSORS, _EMPTY_SENSOR)),
            apples=_stack(_fill(self._apples, APPLES, _record(Apples, _EMPTY_BOX.centre, 0.0, 0.0))),
            zones=_stack(_fill(self._zones, ZONES, _record(Zones, _EMPTY_BOX, 0.0))),
            colour=colour,
            liftable=liftable,
            low=(*low, ABYSS),
            high=(*high, CEILING),
            initial_bodies=initial_bodies,
            spawn=(x, y, z + AGENT_HALF[2]),
            spawn_yaw=heading,
            landmarks=_stack(_fill(self._landmarks, LANDMARKS, _EMPTY_BOX.centre)),
        )


def _record(kind: Any, *fields: Any, **named: Any) -> Any:
    """Return a record of `world` whose fields are not arrays yet."""
    return kind(*fields, **named)


_EMPTY_BOX = _record(Boxes, (0.0, 0.0, FAR_BELOW), (0.0, 0.0, 0.0))
_EMPTY_BODY = _record(Bodies, *_EMPTY_BOX, 0.0, (0.0, 0.0, 0.0)), 0, False
_EMPTY_DOOR = _record(Doors, _EMPTY_BOX, _EMPTY_BOX, 0, (False,) * SENSORS)
_EMPTY_SENSOR = _record(Sensors, _EMPTY_BOX, 0, (False,) * BODIES, False, False)


def _body(centre: Point, half: Point, yaw: Scalar, exists: Scalar) -> Any:
    """Return a body at rest; an empty slot where `exists` is False."""
    box = _record(Boxes, tuple(centre), tuple(half))
    if exists is not True:
        box = jax.tree.map(partial(jnp.where, exists), box, _EMPTY_BOX)
    return _record(Bodies, *box, yaw, (0.0, 0.0, 0.0))


def _colour_index(colour: Scalar) -> Scalar:
    return COLOUR_INDEX[colour] if isinstance(colour, str) else colour


def _box_from_corners(low: Point, high: Point) -> Boxes:
    pairs = list(zip(low, high, strict=True))
    return _record(Boxes, tuple(0.5 * (a + b) for a, b in pairs), tuple(0.5 * (b - a) for a, b in pairs))


def _fill(entries: list[Any], slots: int, empty: Any) -> list[Any]:
    if len(entries) > slots:
        raise ValueError(f"{len(entries)} entries do not fit into {slots} slots")
    return [*entries, *[empty] * (slots - len(entries))]


def _stack(entries: list[Any]) -> Any:
    """Return one record with lists for numbers, so that the slots are the last axis."""
    return jax.tree.map(lambda *numbers: list(numbers), *entries)


@cache
def _empty_level() -> Level:
    """Return a level without objects as NumPy arrays. All levels have its shapes and types."""
    level = Builder(0)._fill_slots((0.0, 0.0, 0.0), 0.0, (0.0, 0.0), (0.0, 0.0))
    return jax.tree.map(np.array, level, is_leaf=lambda node: type(node) in (list, tuple))


def unpack_level(numbers: Array) -> Level:
    """Unpack the numbers [F] of `Builder.level` into a Level."""
    fields, tree = jax.tree.flatten(_empty_level())
    parts = jnp.split(numbers, np.cumsum([field.size for field in fields])[:-1])
    return tree.unflatten([
        part.reshape(field.shape).astype(jax.dtypes.canonicalize_dtype(field.dtype))
        for part, field in zip(parts, fields, strict=True)
    ])  # fmt: skip
