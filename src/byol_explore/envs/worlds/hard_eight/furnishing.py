"""Parts of levels: dice, rooms with a way out, the chamber with the large apple, sensors, things to carry."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight.building import THICKNESS, Builder, Number, Point
from byol_explore.envs.worlds.hard_eight.palette import NUMBERS
from byol_explore.envs.worlds.hard_eight.world import ABYSS, CEILING
from byol_explore.types import Array

DOOR = 0.5  # half the width of a doorway
LINTEL = 2.2  # its height
PLATE = 0.02  # half of how thick sensors are
DRAWS = 96  # random numbers of a level
RECESS = (0.5, 0.55)  # half the width of a recess, and how deep it is
CHAMBER = 4.0  # how deep the room with the large apple is


class Dice:
    """Random numbers one after the other, all of them drawn at once: a program of many small draws compiles slowly."""

    def __init__(self, numbers: Array) -> None:
        self._numbers, self._used = numbers, 0

    @staticmethod
    def throw(key: Array) -> Array:
        """[DRAWS] as many numbers between 0 and 1 as any level needs."""
        return jax.random.uniform(key, (DRAWS,))

    def take(self, count: int) -> Array:
        self._used += count
        if self._used > DRAWS:
            raise ValueError(f"a level needs more than {DRAWS} random numbers")
        return self._numbers[self._used - count : self._used]

    def between(self, low: float, high: float) -> Array:
        return low + (high - low) * self.take(1)[0]

    def angle(self) -> Array:
        return self.between(-math.pi, math.pi)

    def coin(self) -> Array:
        return self.take(1)[0] < 0.5

    def order(self, count: int) -> Array:
        """[count] a permutation: the ranks of random numbers, which compile faster than a sort."""
        numbers, index = self.take(count), np.arange(count)
        smaller = numbers[None] < numbers[:, None]
        equal = (numbers[None] == numbers[:, None]) & (index[None] < index[:, None])
        return jnp.sum(smaller | equal, axis=1)

    def colours(self, names: Sequence[str]) -> list[Array]:
        """The numbers of all these colours, shuffled."""
        return list(jnp.array([NUMBERS[name] for name in names])[self.order(len(names))])

    def spots(self, xs: Sequence[float], ys: Sequence[float], jitter: float) -> list[tuple[Array, Array]]:
        """The points of a grid, shuffled and moved a little."""
        grid = jnp.array([(x, y) for x in xs for y in ys])
        grid = grid[self.order(len(grid))]
        grid += jitter * (2.0 * self.take(grid.size).reshape(grid.shape) - 1.0)
        return [(x, y) for x, y in grid]


def room(
    builder: Builder, low: Point, high: Point, colour: Number, way_out: Number, recess: Number | None = None
) -> None:  # fmt: skip
    """A floor and four walls, the northern one with a doorway at x = `way_out`, the eastern one with a recess at y."""
    (west, south), (east, north) = low, high
    builder.floor(west, south, east, north)
    builder.wall((west, south), (west, north), colour)
    builder.wall((west, south), (east, south), colour)
    builder.wall((west, north), (way_out - DOOR - THICKNESS, north), colour)
    builder.wall((way_out + DOOR + THICKNESS, north), (east, north), colour)
    if recess is None:
        builder.wall((east, south), (east, north), colour)
        return
    half, depth = RECESS
    builder.floor(east, recess - half, east + depth, recess + half)
    builder.wall((east, south), (east, recess - half - THICKNESS), colour)
    builder.wall((east, recess + half + THICKNESS), (east, north), colour)
    builder.box((east, recess - half, 0.8), (east + depth, recess + half, CEILING), "frame", pattern=0.15)
    for side in (-1.0, 1.0):
        line = recess + side * (half + THICKNESS)
        builder.wall((east, line), (east + depth, line), "frame")
    builder.wall((east + depth, recess - half), (east + depth, recess + half), "frame")


def chamber(builder: Builder, x: Number, y: Number, colour: Number, door_colour: Number, needs: Sequence[int]) -> None:
    """A small room with the large apple behind a door at (x, y) that leads to the north."""
    lintel = (x - DOOR, y - THICKNESS, LINTEL), (x + DOOR, y + THICKNESS, CEILING)
    builder.box(*lintel, door_colour, pattern=0.0, glow=0.4)
    door(builder, (x - DOOR, y - THICKNESS), (x + DOOR, y + THICKNESS), door_colour, needs)
    builder.floor(x - 1.0, y, x + 1.0, y + CHAMBER)
    builder.wall((x - 1.0, y + 0.2), (x - 1.0, y + CHAMBER), colour)
    builder.wall((x + 1.0, y + 0.2), (x + 1.0, y + CHAMBER), colour)
    builder.wall((x - 1.0, y + CHAMBER), (x + 1.0, y + CHAMBER), colour)
    builder.apple((x, y + CHAMBER - 0.6, 0.4), 10.0)
    builder.landmark((x, y, 0.0))


def door(builder: Builder, low: Point, high: Point, colour: Number, needs: Sequence[int]) -> None:
    """A door that sinks into the ground."""
    builder.door(((*low, 0.0), (*high, LINTEL)), ((*low, -LINTEL - 0.6), (*high, -0.6)), colour, needs)


def gate(
    builder: Builder, bridge: tuple[Point, Point, int], ends: tuple[float, float], colour: Number, paint: Number,
    needs: Sequence[int],
) -> None:  # fmt: skip
    """A drawbridge, by its corners and its axis, that stands in the gate of a wall beyond it, which has two ends.

    The wall comes up from the abyss: what is on one side of it gets to the other only over the bridge.
    """
    (low, high, axis), across = bridge, 1 - bridge[2]
    edge, height = high[axis], high[axis] - low[axis]

    def at(along: Number, aside: Number) -> Point:
        return (along, aside) if axis == 0 else (aside, along)

    line = edge + THICKNESS
    builder.wall(at(line, ends[0]), at(line, low[across] - THICKNESS), colour, bottom=ABYSS)
    builder.wall(at(line, high[across] + THICKNESS), at(line, ends[1]), colour, bottom=ABYSS)
    top = (*at(edge, low[across]), height), (*at(line + THICKNESS, high[across]), CEILING)
    builder.box(*top, paint, pattern=0.0, glow=0.4)
    raised = (*at(edge, low[across]), 0.0), (*at(line, high[across]), height)
    builder.door(raised, ((*low, -THICKNESS), (*high, 0.0)), paint, needs)
    builder.landmark((0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), 0.0))


def plate(
    builder: Builder, wall: Number, y: Number, z: float, colour: Number, accepts: Sequence[int], *,
    half: tuple[float, float] = (0.3, 0.3), must_stay: bool = False,
) -> int:  # fmt: skip
    """A sensor on the eastern face of a wall that runs from south to north at x = `wall`."""
    place, size = (wall + THICKNESS + PLATE, y, z), (PLATE, *half)
    return builder.sensor(place, size, colour, accepts, must_stay=must_stay)


def thing(builder: Builder, dice: Dice, place: tuple[Number, Number], colour: Number) -> list[int]:
    """Something to carry, a crate or a ball of some size; both of its numbers, one of which is nothing."""
    x, y = place
    east, north, up = (dice.between(0.17, 0.24) for _ in range(3))
    is_ball, radius = dice.coin(), dice.between(0.2, 0.24)
    crate = builder.crate((x, y, up), (east, north, up), colour, yaw=dice.angle(), exists=~is_ball)
    return [crate, builder.ball((x, y, radius), radius, colour, exists=is_ball)]


def fetch(builder: Builder, dice: Dice, place: tuple[Number, Number], colour: Number) -> int:
    """A crate of some size and turn that can be carried."""
    x, y = place
    east, north, up = (dice.between(0.17, 0.24) for _ in range(3))
    return builder.crate((x, y, up), (east, north, up), colour, yaw=dice.angle())
