"""The eight level generators: `sample_level` draws a solvable level at the start of each episode.

A generator draws a level in one orientation and returns it packed into an array [F] (`Builder.level`). Then the level
is reflected at random (`level_parts.random_orientation`). Sizes are chosen so that random actions reach the first stage
now and then, and the apple hardly ever. Sizes and positions are our own, because those of DM-HARD-8 are not public.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight import level_parts as parts
from byol_explore.envs.hard_eight.builder import WALL_HALF, Builder, unpack_level
from byol_explore.envs.hard_eight.level_parts import CHAMBER, DOOR, PLATE, RandomDraws
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.hard_eight.world import ABYSS, CEILING, KEYS, WALLS, Level
from byol_explore.types import Array

NORTH = jnp.pi / 2  # yaw


def wall_sensor(builder: Builder, draws: RandomDraws) -> Array:
    """Touch the sensor with the object of its colour to open the door."""
    half = 2.6
    [colour, other, *_], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    way_out = draws.between(0.2, 1.6)
    parts.room(builder, (-half, -half), (half, half), wall, way_out)
    own_xy, other_xy, agent, *_ = draws.jittered_grid((-1.2, 0.0, 1.2), (-1.2, 0.0, 1.2), 0.2)
    keys = parts.random_object(builder, draws, own_xy, colour)
    parts.random_object(builder, draws, other_xy, other)
    sensor = parts.sensor_plate(builder, -half, draws.between(-1.8, 0.2), 1.75, colour, keys, half=(0.2, 0.2))
    parts.apple_room(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), draws.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def wall_sensor_stack(builder: Builder, draws: RandomDraws) -> Array:
    """Stack two crates below the sensor, so that the upper one keeps touching it."""
    half, tall = 3.0, 0.35
    [colour, *others], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    way_out = draws.between(0.0, 1.5)
    parts.room(builder, (-half, -half), (half, half), wall, way_out)
    first, second, agent, *_ = draws.jittered_grid((0.0, 1.0, 2.0), (-1.5, 0.0, 1.5), 0.15)
    size = (0.25, 0.25, tall)
    crates = [builder.crate((*xy, tall), size, other) for xy, other in zip((first, second), others, strict=False)]
    sensor = parts.sensor_plate(
        builder, -half, draws.between(-1.3, 1.3), 1.3, colour, crates, half=(0.1, 0.06), momentary=True
    )
    parts.apple_room(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), draws.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def push_blocks(builder: Builder, draws: RandomDraws) -> Array:
    """Push the block of the sensor's colour into the recess. No block can be lifted; the others are distractors."""
    east, north = 2.6, 2.2
    [colour, *others], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    way_out = draws.between(-1.9, -0.6)
    columns = draws.jittered_grid((-0.4, 0.4, 1.2), (0.0,), 0.06)
    rows = draws.jittered_grid((0.0,), (-1.25, 0.0, 1.25), 0.04)
    aside = jnp.where(draws.bernoulli(), 1.0, -1.0) * draws.between(0.6, 0.65)
    # The recess is opposite to the right block or to none, so that no other block stands in the way.
    recess = jnp.where(draws.bernoulli(), rows[0][1], aside)
    parts.room(builder, (-east, -north), (east, north), wall, way_out, recess)
    positions = [(x, y, 0.24) for (x, _), (_, y) in zip(columns, rows, strict=True)]
    paints = (colour, *others[:2])
    blocks = [builder.crate(xyz, (0.24,) * 3, paint, liftable=False)
              for xyz, paint in zip(positions, paints, strict=True)]  # fmt: skip
    back = (east + parts.RECESS[1] - WALL_HALF - PLATE, recess, 0.3)
    sensor = builder.sensor(back, (PLATE, 0.3, 0.25), colour, blocks[:1])
    parts.apple_room(builder, way_out, north, wall, colour, [sensor])
    agent = (-2.0, draws.between(-1.5, 1.5), 0.0)
    return builder.level(agent, draws.between(-1.0, 1.0), (-east - 1.0, -north), (east + 1.0, north + CHAMBER))


def remember_sensor(builder: Builder, draws: RandomDraws) -> Array:
    """Read the sensor's colour, walk down the hall and around the corner, and bring back the crate of that colour."""
    [colour, *others], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    corner, end = 8.2, 11.0  # x at which the hall turns, and at which it ends
    builder.floor(-5.0, -1.4, end, 5.0)
    builder.wall((-5.0, -1.4), (-5.0, 1.4), wall)
    builder.wall((-5.0, -1.4), (end, -1.4), wall)
    builder.wall((end, -1.4), (end, 4.0), wall)
    builder.wall((corner, 4.0), (end, 4.0), wall)
    builder.wall((corner, 0.6), (corner, 4.0), wall)
    builder.wall((-2.4, 0.6), (corner, 0.6), wall)
    builder.wall((-2.4, 0.6), (-2.4, 1.4), wall)
    way_out = draws.between(-3.9, -3.6)
    builder.wall((-5.0, 1.4), (way_out - DOOR - WALL_HALF, 1.4), wall)
    builder.wall((way_out + DOOR + WALL_HALF, 1.4), (-2.4, 1.4), wall)
    positions = draws.jittered_grid((corner + 0.9, end - 0.8), (1.4, 2.4, 3.3), 0.12)[:4]
    paints = (colour, *others[:3])
    crates = [parts.random_crate(builder, draws, xy, paint) for xy, paint in zip(positions, paints, strict=True)]
    sensor = parts.sensor_plate(builder, -5.0, draws.between(-0.7, 0.7), 1.1, colour, crates[:1])
    for index in range(4):
        x, south = -1.2 + 0.25 * (corner - 0.8) * index, jnp.where(draws.bernoulli(), -1.3, -0.4)
        builder.zone((x, south, 0.0), (x + 0.5, south + 0.9, 0.02 + 0.001 * index), -0.2)
    parts.apple_room(builder, way_out, 1.4, wall, colour, [sensor])
    builder.landmark((-2.0, -0.4, 0.0))
    builder.landmark((corner + 1.4, -0.4, 0.0))
    return builder.level((-3.4, draws.between(-0.4, 0.4), 0.0), jnp.pi, (-6.0, -2.0), (end + 1.0, 5.0))


def navigate_cubes(builder: Builder, draws: RandomDraws) -> Array:
    """Dig through the cubes, find the stairs and climb up to the apple."""
    [wall, *_] = draws.colours(WALLS)
    west, stairs_at, half = -3.0, 8.0, 1.6
    east = stairs_at + 2.5
    builder.floor(west, -half, east, half)
    for start, end in (((west, -half), (west, half)), ((east, -half), (east, half))):
        builder.wall(start, end, wall)
    for y in (-half, half):
        builder.wall((west, y), (east, y), wall)
    stairs = jnp.where(draws.bernoulli(), 1.0, -1.0) * draws.between(0.7, 0.9)
    builder.box((stairs_at + 1.2, -half, 0.0), (east, half, 0.9), "stone")
    for step in (1, 2):
        corner = (stairs_at + 0.6 * (step - 1), stairs - 0.45, 0.0)
        builder.box(corner, (stairs_at + 1.2, stairs + 0.45, 0.3 * step), "stone")
    paints = draws.colours(KEYS)
    shift = draws.between(0.0, 3.0)
    size = 0.299
    for index in range(10):
        position = (shift + 0.62 * (index // 5), 0.6 * (index % 5 - 2), size)
        builder.crate(position, (size,) * 3, paints[(index + 2 * (index // 5)) % 5])  # neighbours differ
    top = draws.jittered_grid((0.0,), (-1.2, -0.6, 0.0, 0.6, 1.2), 0.0)[:2]
    for _, y in top:
        builder.crate((shift, y, 3 * size + 0.002), (size,) * 3, "white")
    builder.apple((east - 0.5, -stairs, 1.3), 10.0)
    for position in ((stairs_at - 0.6, stairs, 0.0), (stairs_at + 1.6, stairs, 0.9), (stairs_at - 0.6, 0.0, 0.0)):
        builder.landmark(position)
    agent = (draws.between(-2.4, -1.6), draws.between(-1.0, 1.0), 0.0)
    return builder.level(agent, draws.angle(), (west - 0.5, -half - 0.5), (east + 0.5, half + 0.5))


def throw_across(builder: Builder, draws: RandomDraws) -> Array:
    """Throw one key across the gap onto a plate that covers the floor; carry the other through the first door."""
    [first, second, *_], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    west, edge, end, bend, north = -6.1, 2.7, 4.9, 1.2, 3.0
    way_out = draws.between(3.4, 3.9)
    builder.floor(west, -3.0, -edge, north, bottom=ABYSS)
    builder.floor(edge, -3.0, end, north, bottom=ABYSS)
    builder.floor(-edge, bend, edge, north, bottom=ABYSS)
    builder.box((-edge, -3.0, ABYSS), (edge, bend, ABYSS + 0.1), "pit")
    builder.wall((west, -3.0), (west, north), wall)
    builder.wall((end, -3.0), (end, north), wall)
    builder.wall((west, -3.0), (end, -3.0), wall, bottom=ABYSS)
    builder.wall((west, north), (way_out - DOOR - WALL_HALF, north), wall)
    builder.wall((way_out + DOOR + WALL_HALF, north), (end, north), wall)
    builder.wall((-edge, bend), (edge, bend), wall, bottom=ABYSS)
    for y in (bend + 0.3, north):
        builder.wall((0.0, y - 0.3), (0.0, y), wall)
    builder.box((-WALL_HALF, 1.6, parts.LINTEL), (WALL_HALF, 2.6, CEILING), first, pattern=0.0, glow=0.4)
    own_xy, other_xy, agent, *_ = draws.jittered_grid((west + 0.6, west + 1.5), (-2.2, -1.2, -0.2), 0.15)
    thrown = parts.random_crate(builder, draws, own_xy, first)
    carried = parts.random_crate(builder, draws, other_xy, second)
    pad_half = (0.5 * (end - edge) - WALL_HALF, north - WALL_HALF, PLATE)
    pad = builder.sensor((0.5 * (end + edge), 0.0, PLATE), pad_half, first, [thrown], consumes_key=True)
    sensor = builder.sensor(
        (end - WALL_HALF - PLATE, draws.between(1.3, 2.2), 1.1), (PLATE, 0.3, 0.3), second, [carried]
    )
    parts.door(builder, (-WALL_HALF, 1.6), (WALL_HALF, 2.6), first, [pad])
    parts.apple_room(builder, way_out, north, wall, second, [sensor])
    builder.landmark((0.0, 2.1, 0.0))
    builder.landmark((-edge - 0.45, -1.0, 0.0))
    return builder.level((*agent, 0.0), draws.angle(), (west - 0.5, -3.5), (end + 0.5, north + CHAMBER))


def baseball(builder: Builder, draws: RandomDraws) -> Array:
    """Knock the ball off its plinth, which is too high for a hand, with the bat; bring the ball to the sensor."""
    half, top, radius = 2.8, 1.85, 0.2
    [colour, *_], [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    way_out = draws.between(-1.6, 1.6)
    parts.room(builder, (-half, -half), (half, half), wall, way_out)
    (x, y), (bat_x, bat_y), agent, *_ = draws.jittered_grid((-1.1, 0.0, 1.1), (-1.1, 0.0, 1.1), 0.1)
    builder.box((x - 0.25, y - 0.25, 0.0), (x + 0.25, y + 0.25, top), "stone", pattern=0.1)
    ball = builder.ball((x, y, top + radius), radius, colour)
    builder.crate((bat_x, bat_y, 0.06), (0.45, 0.06, 0.06), "wood", yaw=draws.angle())
    sensor = parts.sensor_plate(builder, -half, draws.between(-1.8, 1.8), 1.1, colour, [ball])
    parts.apple_room(builder, way_out, half, wall, colour, [sensor])
    return builder.level((*agent, 0.0), draws.angle(), (-half - 1.0, -half), (half + 1.0, half + CHAMBER))


def drawbridge(builder: Builder, draws: RandomDraws) -> Array:
    """Bring keys to sensors; each uses up its key and lowers the bridge of its colour. The path forks into two ends.

    Behind each bridge stands a wall with a gate that the raised bridge fills: keys cannot be thrown out of reach.
    """
    paints, [wall, *_] = draws.colours(KEYS), draws.colours(WALLS)
    islands = ((-1.8, -7.0, 1.8, -2.8), (-1.6, -1.2, 1.6, 2.2), (-1.3, 3.8, 1.3, 5.8), (3.2, -0.6, 5.2, 1.6))
    for island in islands:
        builder.floor(*island, bottom=ABYSS)
    builder.box((-2.6, -7.8, ABYSS), (6.0, 6.6, ABYSS + 0.1), "pit")
    for start, end in (((-2.6, -7.8), (-2.6, 6.6)), ((6.0, -7.8), (6.0, 6.6)), ((-2.6, -7.8), (6.0, -7.8)),
                       ((-2.6, 6.6), (6.0, 6.6))):  # fmt: skip
        builder.wall(start, end, wall, bottom=ABYSS)
    spots = draws.jittered_grid((-1.2, 0.0, 1.2), (-6.4, -5.5), 0.1)
    others = draws.jittered_grid((-1.0, 0.1), (0.4, 1.3), 0.1)
    keys = [parts.random_crate(builder, draws, position, "white") for position in (spots[0], *others[:2])]
    posts = [(1.4, -3.0, 0), (-1.0, 2.05, 0), (1.45, -0.6, 1)]
    bridges = [((-0.45, -2.8), (0.45, -1.2), 1), ((-0.45, 2.2), (0.45, 3.8), 1), ((1.6, 0.05), (3.2, 0.95), 0)]
    walls = ((-2.6, 6.0), (-2.6, 6.0), (-1.1, 3.9))  # across the hall, and between the first two
    for (x, y, faces_west), bridge, ends, paint in zip(posts, bridges, walls, paints[:3], strict=True):
        builder.box((x - 0.12, y - 0.12, 0.0), (x + 0.12, y + 0.12, 2.2), "stone", pattern=0.0)
        face, size = ((x - 0.14, y), (PLATE, 0.12)) if faces_west else ((x, y - 0.14), (0.12, PLATE))
        sensor = builder.sensor((*face, 1.95), (*size, 0.15), paint, keys, consumes_key=True)
        parts.gate(builder, bridge, ends, wall, paint, [sensor])
    is_north = draws.bernoulli()
    branches = (0.0, 5.0), (4.4, 0.5)
    large = [jnp.where(is_north, a, b) for a, b in zip(*branches, strict=True)]
    small = [jnp.where(is_north, b, a) for a, b in zip(*branches, strict=True)]
    builder.apple((*large, 0.4), 10.0)
    for side in (-0.4, 0.4):
        builder.apple((small[0] + side, small[1] + side, 0.3), 1.0)
    return builder.level((*spots[1], 0.0), NORTH, (-3.0, -8.5), (6.5, 7.0))


LEVELS: dict[str, Callable[[Builder, RandomDraws], Array]] = {
    "drawbridge": drawbridge,
    "remember-sensor": remember_sensor,
    "navigate-cubes": navigate_cubes,
    "wall-sensor": wall_sensor,
    "wall-sensor-stack": wall_sensor_stack,
    "push-blocks": push_blocks,
    "throw-across": throw_across,
    "baseball": baseball,
}


def sample_level(task: int | Array, key: Array) -> Level:
    """Sample a level of the task with index `task`. A traced index builds all tasks and selects one."""
    content, orientation = jax.random.split(key)
    numbers = jax.random.uniform(content, (parts.DRAWS,))

    def generate(task: int) -> Array:
        return LEVELS[TASKS[task]](Builder(task), RandomDraws(numbers))

    packed = generate(task) if isinstance(task, int) else jnp.stack([generate(i) for i in range(len(TASKS))])[task]
    return parts.random_orientation(unpack_level(packed), orientation)
