"""Small worlds for tests: a walled pen with bodies in it, played by one compiled program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.worlds.hard_eight.building import Builder
from byol_explore.envs.worlds.hard_eight.controls import Control
from byol_explore.envs.worlds.hard_eight.mechanisms import Effects, movers
from byol_explore.envs.worlds.hard_eight.ticking import tick
from byol_explore.envs.worlds.hard_eight.world import Level, World, begin, obstacles
from byol_explore.types import Array

SIZE = 3.0  # metres from the middle to each wall
STILL = Control(*[0.0] * 8, grip=False)  # pyright: ignore[reportArgumentType]


class Played(NamedTuple):
    """A world after each tick."""

    world: World  # [T, ...]
    effects: Effects  # [T, ...]
    overlap: Array  # [T] deepest of any two hulls


def pen(*, wall: float = 0.1) -> Builder:
    """A floor and four walls."""
    builder = Builder(0)
    builder.floor(-SIZE, -SIZE, SIZE, SIZE)
    for low, high in (
        ((-SIZE - wall, -SIZE), (-SIZE, SIZE)), ((SIZE, -SIZE), (SIZE + wall, SIZE)),
        ((-SIZE, -SIZE - wall), (SIZE, -SIZE)), ((-SIZE, SIZE), (SIZE, SIZE + wall)),
    ):  # fmt: skip
        builder.box((*low, 0.0), (*high, 3.0), "wall")
    return builder


def finish(builder: Builder, at: Sequence[float] = (0.0, 0.0), heading: float = 0.0) -> Level:
    """The pen as a level; beyond its walls is room enough to be seen to have left it."""
    return builder.level((*at, 0.0), heading, (-SIZE - 2.0, -SIZE - 2.0), (SIZE + 2.0, SIZE + 2.0))


def controls(*parts: tuple[int, dict[str, Any]]) -> Control:
    """So many ticks of each control, one after the other, [T] each."""
    rows = [STILL._replace(**values) for ticks, values in parts for _ in range(ticks)]
    return jax.tree.map(lambda *xs: jnp.asarray(xs), *rows)


def random_controls(seed: int, ticks: int) -> Control:
    """Wild ones: everything changes a few times a second, and pushes are as strong as they can be."""
    rng = np.random.default_rng(seed)
    held = np.repeat(rng.uniform(-1.0, 1.0, (ticks // 4 + 1, 8)), 4, axis=0)[:ticks]
    held[:, [0, 3, 7]] = np.sign(held[:, [0, 3, 7]])
    grip = np.repeat(rng.random(ticks // 12 + 1) < 0.7, 12)[:ticks]
    return Control(*jnp.asarray(held.T, jnp.float32), grip=jnp.asarray(grip))


def deepest(level: Level, world: World) -> Array:
    """How far any two hulls are inside each other, the agent and what is held included."""
    moving, fixed = movers(world), obstacles(level, world.is_open)
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
        return world, Played(world, effects, deepest(level, world))

    return jax.lax.scan(step, begin(level), control)[1]


def in_one_length(ticks: int) -> Callable[[Level, Control], Played]:
    """`play` with controls filled up to so many ticks, so that tests share one program; the rest is cut off again."""

    def run(level: Level, control: Control) -> Played:
        count = control.grip.shape[0]
        filled = jax.tree.map(lambda x: jnp.pad(x, (0, ticks - count)), control)
        return jax.tree.map(lambda x: np.asarray(x)[:count], play(level, filled))

    return run
