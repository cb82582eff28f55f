"""The eight levels: what is drawn at the start of an episode. All of them can be solved, whatever is drawn.

Each is drawn in one orientation, and then turned and mirrored (`turning.py`). Sizes are chosen so that random actions
now and then find the first thing to do, and hardly ever the apple. Sizes and places are ours: those of DM-HARD-8 are
not public.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.building import THICKNESS, Builder, unpacked
from byol_explore.envs.worlds.hard_eight.furnishing import (
    CHAMBER,
    DOOR,
    LINTEL,
    PLATE,
    RECESS,
    Dice,
    chamber,
    door,
    fetch,
    gate,
    plate,
    room,
    thing,
)
from byol_explore.envs.worlds.hard_eight.palette import KEYS, WALLS
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.turning import in_any_orientation
from byol_explore.envs.worlds.hard_eight.world import ABYSS, CEILING, Level
from byol_explore.types import Array

NORTH = jnp.pi / 2  # of headings


def wall_sensor(builder: Builder, dice: Dice) -> Level:
    """Touch the sensor with the thing of its colour; the door opens."""
    half = 2.6
    [colour, other, *_], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    way_out = dice.between(0.2, 1.6)
    room(builder, (-half, -half), (half, half), wall, way_out)
    mine, its, agent, *_ = dice.spots((-1.2, 0.0, 1.2), (-1.2, 0.0, 1.2), 0.2)
    keys = thing(builder, dice, mine, colour)
    thing(builder, dice, its, other)
    sensor = plate(builder, -half, dice.between(-1.8, 0.2), 1.75, colour, keys, half=(0.2, 0.2))
    chamber(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), dice.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def wall_sensor_stack(builder: Builder, dice: Dice) -> Level:
    """Put one crate on the other below the sensor, so that the upper one keeps touching it."""
    half, tall = 3.0, 0.35
    [colour, *others], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    way_out = dice.between(0.0, 1.5)
    room(builder, (-half, -half), (half, half), wall, way_out)
    first, second, agent, *_ = dice.spots((0.0, 1.0, 2.0), (-1.5, 0.0, 1.5), 0.15)
    size = (0.25, 0.25, tall)
    crates = [builder.crate((*place, tall), size, other) for place, other in zip((first, second), others, strict=False)]
    sensor = plate(builder, -half, dice.between(-1.3, 1.3), 1.3, colour, crates, half=(0.1, 0.06), must_stay=True)
    chamber(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), dice.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def push_blocks(builder: Builder, dice: Dice) -> Level:
    """Push the block of the sensor's colour into the recess; none can be lifted, and a wrong one is in the way."""
    east, north = 2.6, 2.2
    [colour, *others], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    way_out = dice.between(-1.9, -0.6)
    columns = dice.spots((-0.4, 0.4, 1.2), (0.0,), 0.06)
    rows = dice.spots((0.0,), (-1.25, 0.0, 1.25), 0.04)
    aside = jnp.where(dice.coin(), 1.0, -1.0) * dice.between(0.6, 0.65)
    recess = jnp.where(dice.coin(), rows[0][1], aside)  # opposite to the right block or to none: no other is in the way
    room(builder, (-east, -north), (east, north), wall, way_out, recess)
    places = [(x, y, 0.24) for (x, _), (_, y) in zip(columns, rows, strict=True)]
    paints = (colour, *others[:2])
    blocks = [builder.crate(at, (0.24,) * 3, paint, liftable=False) for at, paint in zip(places, paints, strict=True)]
    back = (east + RECESS[1] - THICKNESS - PLATE, recess, 0.3)
    sensor = builder.sensor(back, (PLATE, 0.3, 0.25), colour, blocks[:1])
    chamber(builder, way_out, north, wall, colour, [sensor])
    agent = (-2.0, dice.between(-1.5, 1.5), 0.0)
    return builder.level(agent, dice.between(-1.0, 1.0), (-east - 1.0, -north), (east + 1.0, north + CHAMBER))


def remember_sensor(builder: Builder, dice: Dice) -> Level:
    """See the sensor's colour, go down the hall and around the corner, bring the crate of that colour back."""
    [colour, *others], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    corner, end = 8.2, 11.0  # where the hall turns, and where it is over
    builder.floor(-5.0, -1.4, end, 5.0)
    builder.wall((-5.0, -1.4), (-5.0, 1.4), wall)
    builder.wall((-5.0, -1.4), (end, -1.4), wall)
    builder.wall((end, -1.4), (end, 4.0), wall)
    builder.wall((corner, 4.0), (end, 4.0), wall)
    builder.wall((corner, 0.6), (corner, 4.0), wall)
    builder.wall((-2.4, 0.6), (corner, 0.6), wall)
    builder.wall((-2.4, 0.6), (-2.4, 1.4), wall)
    way_out = dice.between(-3.9, -3.6)
    builder.wall((-5.0, 1.4), (way_out - DOOR - THICKNESS, 1.4), wall)
    builder.wall((way_out + DOOR + THICKNESS, 1.4), (-2.4, 1.4), wall)
    places = dice.spots((corner + 0.9, end - 0.8), (1.4, 2.4, 3.3), 0.12)[:4]
    crates = [fetch(builder, dice, place, paint) for place, paint in zip(places, (colour, *others[:3]), strict=True)]
    sensor = plate(builder, -5.0, dice.between(-0.7, 0.7), 1.1, colour, crates[:1])
    for index in range(4):
        x, south = -1.2 + 0.25 * (corner - 0.8) * index, jnp.where(dice.coin(), -1.3, -0.4)
        builder.zone((x, south, 0.0), (x + 0.5, south + 0.9, 0.02 + 0.001 * index), -0.2)
    chamber(builder, way_out, 1.4, wall, colour, [sensor])
    builder.landmark((-2.0, -0.4, 0.0))
    builder.landmark((corner + 1.4, -0.4, 0.0))
    return builder.level((-3.4, dice.between(-0.4, 0.4), 0.0), jnp.pi, (-6.0, -2.0), (end + 1.0, 5.0))


def navigate_cubes(builder: Builder, dice: Dice) -> Level:
    """Dig through the cubes, find the stairs, climb up to the apple."""
    [wall, *_] = dice.colours(WALLS)
    west, stairs_at, half = -3.0, 8.0, 1.6
    east = stairs_at + 2.5
    builder.floor(west, -half, east, half)
    for start, end in (((west, -half), (west, half)), ((east, -half), (east, half))):
        builder.wall(start, end, wall)
    for y in (-half, half):
        builder.wall((west, y), (east, y), wall)
    stairs = jnp.where(dice.coin(), 1.0, -1.0) * dice.between(0.7, 0.9)
    builder.box((stairs_at + 1.2, -half, 0.0), (east, half, 0.9), "stone")
    for step in (1, 2):
        corner = (stairs_at + 0.6 * (step - 1), stairs - 0.45, 0.0)
        builder.box(corner, (stairs_at + 1.2, stairs + 0.45, 0.3 * step), "stone")
    paints = dice.colours(KEYS)
    shift = dice.between(0.0, 3.0)
    size = 0.299
    for index in range(10):
        place = (shift + 0.62 * (index // 5), 0.6 * (index % 5 - 2), size)
        builder.crate(place, (size,) * 3, paints[(index + 2 * (index // 5)) % 5])  # neighbours differ
    top = dice.spots((0.0,), (-1.2, -0.6, 0.0, 0.6, 1.2), 0.0)[:2]
    for _, y in top:
        builder.crate((shift, y, 3 * size + 0.002), (size,) * 3, "white")
    builder.apple((east - 0.5, -stairs, 1.3), 10.0)
    for place in ((stairs_at - 0.6, stairs, 0.0), (stairs_at + 1.6, stairs, 0.9), (stairs_at - 0.6, 0.0, 0.0)):
        builder.landmark(place)
    agent = (dice.between(-2.4, -1.6), dice.between(-1.0, 1.0), 0.0)
    return builder.level(agent, dice.angle(), (west - 0.5, -half - 0.5), (east + 0.5, half + 0.5))


def throw_across(builder: Builder, dice: Dice) -> Level:
    """Throw one key across the gap, where all the floor is a plate; carry the other around through the first door."""
    [first, second, *_], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    west, edge, end, bend, north = -6.1, 2.7, 4.9, 1.2, 3.0
    way_out = dice.between(3.4, 3.9)
    builder.floor(west, -3.0, -edge, north, bottom=ABYSS)
    builder.floor(edge, -3.0, end, north, bottom=ABYSS)
    builder.floor(-edge, bend, edge, north, bottom=ABYSS)
    builder.box((-edge, -3.0, ABYSS), (edge, bend, ABYSS + 0.1), "pit")
    builder.wall((west, -3.0), (west, north), wall)
    builder.wall((end, -3.0), (end, north), wall)
    builder.wall((west, -3.0), (end, -3.0), wall, bottom=ABYSS)
    builder.wall((west, north), (way_out - DOOR - THICKNESS, north), wall)
    builder.wall((way_out + DOOR + THICKNESS, north), (end, north), wall)
    builder.wall((-edge, bend), (edge, bend), wall, bottom=ABYSS)
    for y in (bend + 0.3, north):
        builder.wall((0.0, y - 0.3), (0.0, y), wall)
    builder.box((-THICKNESS, 1.6, LINTEL), (THICKNESS, 2.6, CEILING), first, pattern=0.0, glow=0.4)
    mine, its, agent, *_ = dice.spots((west + 0.6, west + 1.5), (-2.2, -1.2, -0.2), 0.15)
    thrown, carried = fetch(builder, dice, mine, first), fetch(builder, dice, its, second)
    pad_half = (0.5 * (end - edge) - THICKNESS, north - THICKNESS, PLATE)
    pad = builder.sensor((0.5 * (end + edge), 0.0, PLATE), pad_half, first, [thrown], uses_up=True)
    sensor = builder.sensor(
        (end - THICKNESS - PLATE, dice.between(1.3, 2.2), 1.1), (PLATE, 0.3, 0.3), second, [carried]
    )
    door(builder, (-THICKNESS, 1.6), (THICKNESS, 2.6), first, [pad])
    chamber(builder, way_out, north, wall, second, [sensor])
    builder.landmark((0.0, 2.1, 0.0))
    builder.landmark((-edge - 0.45, -1.0, 0.0))
    return builder.level((*agent, 0.0), dice.angle(), (west - 0.5, -3.5), (end + 0.5, north + CHAMBER))


def baseball(builder: Builder, dice: Dice) -> Level:
    """Take the bat, knock the ball off its plinth, which is too high for a hand, and bring the ball to the sensor."""
    half, top, radius = 2.8, 1.85, 0.2
    [colour, *_], [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    way_out = dice.between(-1.6, 1.6)
    room(builder, (-half, -half), (half, half), wall, way_out)
    (x, y), (bat_x, bat_y), agent, *_ = dice.spots((-1.1, 0.0, 1.1), (-1.1, 0.0, 1.1), 0.1)
    builder.box((x - 0.25, y - 0.25, 0.0), (x + 0.25, y + 0.25, top), "stone", pattern=0.1)
    ball = builder.ball((x, y, top + radius), radius, colour)
    builder.crate((bat_x, bat_y, 0.06), (0.45, 0.06, 0.06), "wood", yaw=dice.angle())
    sensor = plate(builder, -half, dice.between(-1.8, 1.8), 1.1, colour, [ball])
    chamber(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), dice.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def drawbridge(builder: Builder, dice: Dice) -> Level:
    """Bring keys to sensors: each lowers the bridge of its colour and uses the key up. The fork has two ends.

    A wall with a gate, which the raised bridge fills, keeps keys from being thrown to where nobody can fetch them.
    """
    paints, [wall, *_] = dice.colours(KEYS), dice.colours(WALLS)
    islands = ((-1.8, -7.0, 1.8, -2.8), (-1.6, -1.2, 1.6, 2.2), (-1.3, 3.8, 1.3, 5.8), (3.2, -0.6, 5.2, 1.6))
    for island in islands:
        builder.floor(*island, bottom=ABYSS)
    builder.box((-2.6, -7.8, ABYSS), (6.0, 6.6, ABYSS + 0.1), "pit")
    for start, end in (((-2.6, -7.8), (-2.6, 6.6)), ((6.0, -7.8), (6.0, 6.6)), ((-2.6, -7.8), (6.0, -7.8)),
                       ((-2.6, 6.6), (6.0, 6.6))):  # fmt: skip
        builder.wall(start, end, wall, bottom=ABYSS)
    spots = dice.spots((-1.2, 0.0, 1.2), (-6.4, -5.5), 0.1)
    others = dice.spots((-1.0, 0.1), (0.4, 1.3), 0.1)
    keys = [fetch(builder, dice, place, "white") for place in (spots[0], *others[:2])]
    posts = [(1.4, -3.0, 0), (-1.0, 2.05, 0), (1.45, -0.6, 1)]
    bridges = [((-0.45, -2.8), (0.45, -1.2), 1), ((-0.45, 2.2), (0.45, 3.8), 1), ((1.6, 0.05), (3.2, 0.95), 0)]
    walls = ((-2.6, 6.0), (-2.6, 6.0), (-1.1, 3.9))  # from end to end of the hall, and between the first two
    for (x, y, faces_west), bridge, ends, paint in zip(posts, bridges, walls, paints[:3], strict=True):
        builder.box((x - 0.12, y - 0.12, 0.0), (x + 0.12, y + 0.12, 2.2), "stone", pattern=0.0)
        face, size = ((x - 0.14, y), (PLATE, 0.12)) if faces_west else ((x, y - 0.14), (0.12, PLATE))
        sensor = builder.sensor((*face, 1.95), (*size, 0.15), paint, keys, uses_up=True)
        gate(builder, bridge, ends, wall, paint, [sensor])
    is_north = dice.coin()
    branches = (0.0, 5.0), (4.4, 0.5)
    large = [jnp.where(is_north, a, b) for a, b in zip(*branches, strict=True)]
    small = [jnp.where(is_north, b, a) for a, b in zip(*branches, strict=True)]
    builder.apple((*large, 0.4), 10.0)
    for side in (-0.4, 0.4):
        builder.apple((small[0] + side, small[1] + side, 0.3), 1.0)
    return builder.level((*spots[1], 0.0), NORTH, (-3.0, -8.5), (6.5, 7.0))


LAYOUTS: dict[str, Callable[[Builder, Dice], Level]] = {
    "drawbridge": drawbridge,
    "remember-sensor": remember_sensor,
    "navigate-cubes": navigate_cubes,
    "wall-sensor": wall_sensor,
    "wall-sensor-stack": wall_sensor_stack,
    "push-blocks": push_blocks,
    "throw-across": throw_across,
    "baseball": baseball,
}


def draw(task: int | Array, key: Array) -> Level:
    """A level of a task, by its number."""
    content, orientation = jax.random.split(key)
    numbers = Dice.throw(content)
    if isinstance(task, int):
        drawn = _packed(task, numbers)
    else:
        drawn = jnp.stack([_packed(number, numbers) for number in range(len(TASKS))])[task]
    return in_any_orientation(unpacked(drawn), orientation)


def _packed(task: int, numbers: Array) -> Array:
    builder = Builder(task)
    LAYOUTS[TASKS[task]](builder, Dice(numbers))
    return builder.packed
