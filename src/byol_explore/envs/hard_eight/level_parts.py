"""Parts that levels are made of: random draws, rooms, doors, bridges, sensors, objects, and random orientation."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.hard_eight.builder import WALL_HALF, Builder, Point, Scalar
from byol_explore.envs.hard_eight.world import ABYSS, CEILING, COLOUR_INDEX, Level
from byol_explore.types import Array

# Lengths in metres.
DOOR = 0.5  # half the width of a doorway
LINTEL = 2.2  # height of a doorway
PLATE = 0.02  # half the thickness of a sensor
DRAWS = 96  # random numbers per level, enough for any
RECESS = (0.5, 0.55)  # half the width of a recess, and its depth
CHAMBER = 4.0  # depth of the room with the large apple


class RandomDraws:
    """Hand out uniform numbers [DRAWS] that were all drawn at once. Many small draws would compile slowly."""

    def __init__(self, numbers: Array) -> None:
        self._numbers, self._used = numbers, 0

    def take(self, count: int) -> Array:
        self._used += count
        if self._used > DRAWS:
            raise ValueError(f"a level needs more than {DRAWS} random numbers")
        return self._numbers[self._used - count : self._used]

    def between(self, low: float, high: float) -> Array:
        return low + (high - low) * self.take(1)[0]

    def angle(self) -> Array:
        return self.between(-math.pi, math.pi)

    def bernoulli(self) -> Array:
        return self.take(1)[0] < 0.5

    def permutation(self, count: int) -> Array:
        """[count] a random permutation: the ranks of uniform numbers, which compile faster than a sort."""
        numbers, index = self.take(count), np.arange(count)
        smaller = numbers[None] < numbers[:, None]
        equal = (numbers[None] == numbers[:, None]) & (index[None] < index[:, None])
        return jnp.sum(smaller | equal, axis=1)

    def colours(self, names: Sequence[str]) -> list[Array]:
        """Return the palette indices of the named colours, shuffled."""
        return list(jnp.array([COLOUR_INDEX[name] for name in names])[self.permutation(len(names))])

    def jittered_grid(self, xs: Sequence[float], ys: Sequence[float], jitter: float) -> list[tuple[Array, Array]]:
        """Return the points of a grid, shuffled, each moved by up to `jitter` metres per axis."""
        grid = jnp.array([(x, y) for x in xs for y in ys])
        grid = grid[self.permutation(len(grid))]
        grid += jitter * (2.0 * self.take(grid.size).reshape(grid.shape) - 1.0)
        return [(x, y) for x, y in grid]


def room(
    builder: Builder, low: Point, high: Point, colour: Scalar, way_out: Scalar, recess: Scalar | None = None
) -> None:  # fmt: skip
    """Add a floor and four walls. The northern wall has a doorway at x = `way_out`, the eastern one an optional recess
    at y = `recess`.
    """
    (west, south), (east, north) = low, high
    builder.floor(west, south, east, north)
    builder.wall((west, south), (west, north), colour)
    builder.wall((west, south), (east, south), colour)
    builder.wall((west, north), (way_out - DOOR - WALL_HALF, north), colour)
    builder.wall((way_out + DOOR + WALL_HALF, north), (east, north), colour)
    if recess is None:
        builder.wall((east, south), (east, north), colour)
        return
    half, depth = RECESS
    builder.floor(east, recess - half, east + depth, recess + half)
    builder.wall((east, south), (east, recess - half - WALL_HALF), colour)
    builder.wall((east, recess + half + WALL_HALF), (east, north), colour)
    builder.box((east, recess - half, 0.8), (east + depth, recess + half, CEILING), "frame", pattern=0.15)
    for side in (-1.0, 1.0):
        line = recess + side * (half + WALL_HALF)
        builder.wall((east, line), (east + depth, line), "frame")
    builder.wall((east + depth, recess - half), (east + depth, recess + half), "frame")


def apple_room(
    builder: Builder, x: Scalar, y: Scalar, colour: Scalar, door_colour: Scalar, needs: Sequence[int]
) -> None:
    """Add a small room with the large apple, north of a door at (x, y)."""
    lintel = (x - DOOR, y - WALL_HALF, LINTEL), (x + DOOR, y + WALL_HALF, CEILING)
    builder.box(*lintel, door_colour, pattern=0.0, glow=0.4)
    door(builder, (x - DOOR, y - WALL_HALF), (x + DOOR, y + WALL_HALF), door_colour, needs)
    builder.floor(x - 1.0, y, x + 1.0, y + CHAMBER)
    builder.wall((x - 1.0, y + 0.2), (x - 1.0, y + CHAMBER), colour)
    builder.wall((x + 1.0, y + 0.2), (x + 1.0, y + CHAMBER), colour)
    builder.wall((x - 1.0, y + CHAMBER), (x + 1.0, y + CHAMBER), colour)
    builder.apple((x, y + CHAMBER - 0.6, 0.4), 10.0)
    builder.landmark((x, y, 0.0))


def door(builder: Builder, low: Point, high: Point, colour: Scalar, needs: Sequence[int]) -> None:
    """Add a door that opens by sinking into the ground."""
    builder.door(((*low, 0.0), (*high, LINTEL)), ((*low, -LINTEL - 0.6), (*high, -0.6)), colour, needs)


def gate(
    builder: Builder, bridge: tuple[Point, Point, int], ends: tuple[float, float], colour: Scalar, paint: Scalar,
    needs: Sequence[int],
) -> None:  # fmt: skip
    """Add a drawbridge (low corner, high corner, axis) and, behind it, a wall between two `ends` with a gate.

    The raised bridge fills the gate, and the wall starts at the bottom of the abyss: the only way to the other side is
    over the lowered bridge.
    """
    (low, high, axis), across = bridge, 1 - bridge[2]
    edge, height = high[axis], high[axis] - low[axis]

    def at(along: Scalar, aside: Scalar) -> Point:
        return (along, aside) if axis == 0 else (aside, along)

    line = edge + WALL_HALF
    builder.wall(at(line, ends[0]), at(line, low[across] - WALL_HALF), colour, bottom=ABYSS)
    builder.wall(at(line, high[across] + WALL_HALF), at(line, ends[1]), colour, bottom=ABYSS)
    top = (*at(edge, low[across]), height), (*at(line + WALL_HALF, high[across]), CEILING)
    builder.box(*top, paint, pattern=0.0, glow=0.4)
    raised = (*at(edge, low[across]), 0.0), (*at(line, high[across]), height)
    builder.door(raised, ((*low, -WALL_HALF), (*high, 0.0)), paint, needs)
    builder.landmark((0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), 0.0))


def sensor_plate(
    builder: Builder, wall: Scalar, y: Scalar, z: float, colour: Scalar, accepts: Sequence[int], *,
    half: tuple[float, float] = (0.3, 0.3), momentary: bool = False,
) -> int:  # fmt: skip
    """Add a sensor on the eastern face of a wall that runs from south to north at x = `wall`. Returns its index."""
    position, size = (wall + WALL_HALF + PLATE, y, z), (PLATE, *half)
    return builder.sensor(position, size, colour, accepts, momentary=momentary)


def random_object(builder: Builder, draws: RandomDraws, position: tuple[Scalar, Scalar], colour: Scalar) -> list[int]:
    """Add a liftable crate or ball of random size. Returns the body indices of both, one of which is an empty slot."""
    x, y = position
    east, north, up = (draws.between(0.17, 0.24) for _ in range(3))
    is_ball, radius = draws.bernoulli(), draws.between(0.2, 0.24)
    crate = builder.crate((x, y, up), (east, north, up), colour, yaw=draws.angle(), exists=~is_ball)
    return [crate, builder.ball((x, y, radius), radius, colour, exists=is_ball)]


def random_crate(builder: Builder, draws: RandomDraws, position: tuple[Scalar, Scalar], colour: Scalar) -> int:
    """Add a liftable crate of random size and yaw. Returns its body index."""
    x, y = position
    east, north, up = (draws.between(0.17, 0.24) for _ in range(3))
    return builder.crate((x, y, up), (east, north, up), colour, yaw=draws.angle())


def random_orientation(level: Level, key: Array) -> Level:
    """Reflect a level at the x axis, the y axis and the diagonal, each with probability 1/2."""
    east, north, diagonal = jax.random.bernoulli(key, shape=(3,))
    return _reflect(level, jnp.where(east, -1.0, 1.0), jnp.where(north, -1.0, 1.0), diagonal)


def _reflect(level: Level, east: Array, north: Array, diagonal: Array) -> Level:
    """Multiply x by `east` and y by `north` (+1 or -1), then swap both axes if `diagonal`."""

    def reflect_point(points: Array) -> Array:
        return reflect_size(points * jnp.stack([east, north, jnp.ones(())]).reshape(3, *[1] * (points.ndim - 1)))

    def reflect_size(sizes: Array) -> Array:
        return jnp.where(diagonal, sizes[jnp.array([1, 0, 2])], sizes)

    def reflect_yaw(angle: Array) -> Array:
        heading = reflect_point(jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)]))
        return jnp.arctan2(heading[1], heading[0])

    transforms = dict.fromkeys(("centre", "velocity", "spawn", "landmarks", "low", "high"), reflect_point)
    transforms |= {"half": reflect_size, "yaw": reflect_yaw, "spawn_yaw": reflect_yaw}
    # All other fields, such as colours and radii, do not depend on the orientation.
    new = jax.tree_util.tree_map_with_path(lambda path, x: transforms.get(path[-1].name, jnp.asarray)(x), level)
    return new._replace(
        low=jnp.minimum(new.low, new.high),
        high=jnp.maximum(new.low, new.high),
        initial_bodies=new.initial_bodies._replace(half=level.initial_bodies.half),  # yaw turns the body
    )
