"""Small worlds for tests: a walled arena with bodies in it, simulated by one compiled program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.hard_eight.builder import Builder, unpack_level
from byol_explore.envs.hard_eight.interactions import TickResult, moving_hulls
from byol_explore.envs.hard_eight.physics import tick
from byol_explore.envs.hard_eight.world import Control, Level, World, init_world, obstacles
from byol_explore.types import Array

SIZE = 3.0  # metres from the middle to each wall
STILL = Control(*[0.0] * 8, grip=False)  # pyright: ignore[reportArgumentType]


class Played(NamedTuple):
    """Trajectory of a world."""

    world: World  # [T, ...]
    effects: TickResult  # [T, ...]
    overlap: Array  # [T] max_overlap of any two hulls


def walled_arena(*, wall: float = 0.1) -> Builder:
    """Builder with a floor and four walls."""
    builder = Builder(0)
    builder.floor(-SIZE, -SIZE, SIZE, SIZE)
    for low, high in (
        ((-SIZE - wall, -SIZE), (-SIZE, SIZE)), ((SIZE, -SIZE), (SIZE + wall, SIZE)),
        ((-SIZE, -SIZE - wall), (SIZE, -SIZE)), ((-SIZE, SIZE), (SIZE, SIZE + wall)),
    ):  # fmt: skip
        builder.box((*low, 0.0), (*high, 3.0), "wall")
    return builder


def make_level(builder: Builder, at: Sequence[float] = (0.0, 0.0), heading: float = 0.0) -> Level:
    """The arena as a level. Its bounds lie 2 m beyond the walls, so that a body that leaves is seen outside."""
    bounds = (-SIZE - 2.0, -SIZE - 2.0), (SIZE + 2.0, SIZE + 2.0)
    return unpack_level(builder.level((*at, 0.0), heading, *bounds))


def controls(*parts: tuple[int, dict[str, Any]]) -> Control:
    """[T] controls from (number of ticks, values) parts."""
    rows = [STILL._replace(**values) for ticks, values in parts for _ in range(ticks)]
    return jax.tree.map(lambda *xs: jnp.asarray(xs), *rows)


def random_controls(seed: int, ticks: int) -> Control:
    """[T] random controls that change a few times per second, with pushes of full strength."""
    rng = np.random.default_rng(seed)
    held = np.repeat(rng.uniform(-1.0, 1.0, (ticks // 4 + 1, 8)), 4, axis=0)[:ticks]
    held[:, [0, 3, 7]] = np.sign(held[:, [0, 3, 7]])
    grip = np.repeat(rng.random(ticks // 12 + 1) < 0.7, 12)[:ticks]
    return Control(*jnp.asarray(held.T, jnp.float32), grip=jnp.asarray(grip))


def max_overlap(level: Level, world: World) -> Array:
    """Largest overlap of any two hulls, including the agent and the held body."""
    moving, fixed = moving_hulls(world), obstacles(level, world.door_open)
    centre = jnp.concatenate([moving.centre, fixed.centre], axis=1)
    half = jnp.concatenate([moving.half, fixed.half], axis=1)
    depth = moving.half[:, :, None] + half[:, None] - jnp.abs(moving.centre[:, :, None] - centre[:, None])
    count = moving.half.shape[1]
    different = jnp.arange(count)[:, None] != jnp.arange(half.shape[1])[None]
    there = (moving.half[2] > 0.0)[:, None] & (half[2] > 0.0)[None]
    return jnp.max(jnp.where(different & there, jnp.min(depth, axis=0), -1.0))


@jax.jit
def play(level: Level, control: Control) -> Played:
    def step(world: World, now: Control) -> tuple[World, Played]:
        world, effects = tick(level, world, now)
        return world, Played(world, effects, max_overlap(level, world))

    return jax.lax.scan(step, init_world(level), control)[1]


def padded_play(ticks: int) -> Callable[[Level, Control], Played]:
    """Return `play` with controls padded to `ticks` and the result cut again, so that tests share one program."""

    def run(level: Level, control: Control) -> Played:
        count = control.grip.shape[0]
        filled = jax.tree.map(lambda x: jnp.pad(x, (0, ticks - count)), control)
        return jax.tree.map(lambda x: np.asarray(x)[:count], play(level, filled))

    return run
