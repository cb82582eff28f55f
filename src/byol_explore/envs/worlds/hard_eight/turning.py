"""Levels seen in mirrors: each drawing of a level comes in eight orientations."""

import jax
import jax.numpy as jnp

from byol_explore.envs.worlds.hard_eight.world import Bodies, Boxes, Level
from byol_explore.types import Array


def in_any_orientation(level: Level, key: Array) -> Level:
    """Mirrored at the axes and at the diagonal, each or not."""
    east, north, diagonal = jax.random.bernoulli(key, shape=(3,))
    return _mirrored(level, jnp.where(east, -1.0, 1.0), jnp.where(north, -1.0, 1.0), diagonal)


def _mirrored(level: Level, east: Array, north: Array, diagonal: Array) -> Level:
    def point(points: Array) -> Array:
        return size(points * jnp.stack([east, north, jnp.ones(())]).reshape(3, *[1] * (points.ndim - 1)))

    def size(sizes: Array) -> Array:
        return jnp.where(diagonal, sizes[jnp.array([1, 0, 2])], sizes)

    def boxes(old: Boxes) -> Boxes:
        return Boxes(point(old.centre), size(old.half))

    def yaw(angle: Array) -> Array:
        heading = point(jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)]))
        return jnp.arctan2(heading[1], heading[0])

    def bodies(old: Bodies) -> Bodies:
        return Bodies(point(old.centre), old.half, yaw(old.yaw), point(old.velocity))

    low, high = point(level.low), point(level.high)
    return level._replace(
        static=boxes(level.static),
        doors=level.doors._replace(shut=boxes(level.doors.shut), open=boxes(level.doors.open)),
        sensors=level.sensors._replace(boxes=boxes(level.sensors.boxes)),
        apples=level.apples._replace(centre=point(level.apples.centre)),
        zones=level.zones._replace(boxes=boxes(level.zones.boxes)),
        low=jnp.minimum(low, high),
        high=jnp.maximum(low, high),
        start=bodies(level.start),
        entrance=point(level.entrance),
        heading=yaw(level.heading),
        landmarks=point(level.landmarks),
    )
