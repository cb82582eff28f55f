"""A straightforward renderer of Hard-Eight scenes for comparison: every ray against every box, vectors last."""

import jax
import jax.numpy as jnp

from byol_explore.envs.hard_eight.raycaster import AMBIENT, CELLS, DIFFUSE, EDGE, EYE, LIGHT, SHIFT, SKY, Camera, Scene
from byol_explore.types import Array


def render(scene: Scene, camera: Camera, height: int, width: int) -> Array:
    """[height, width, 3] uint8 image of the boxes of a scene, equal to that of `raycaster.render`."""
    rays = _rays(camera, height, width)  # [H, W, 3]
    frames = jax.vmap(_frame)(scene.yaw)  # [N, 3, 3]
    origin = jnp.einsum("nij,nj->ni", frames, camera.eye - scene.centre.T)  # [N, 3]
    direction = jnp.einsum("nij,hwj->hwni", frames, rays)  # [H, W, N, 3]
    half = scene.half.T
    planes = jnp.stack([(-half - origin) / direction, (half - origin) / direction])
    enters, leaves = jnp.min(planes, axis=0), jnp.max(planes, axis=0)
    first, last = jnp.max(enters, axis=-1), jnp.min(leaves, axis=-1)  # [H, W, N]
    depth = jnp.where((first > 0.0) & (first < last), first, jnp.inf)
    box = jnp.argmin(depth, axis=-1)  # [H, W]
    depth = jnp.min(depth, axis=-1)
    here = (box[..., None, None], 2)
    axis = jnp.argmax(jnp.take_along_axis(enters, here[0], axis=2)[:, :, 0], axis=-1)  # of the face
    along = jnp.take_along_axis(direction, here[0], axis=2)[:, :, 0]
    colour = _colours(scene, box, origin[box] + depth[..., None] * along)
    normal = -jnp.sign(jnp.take_along_axis(along, axis[..., None], axis=-1)) * frames[box, axis]
    light = AMBIENT + DIFFUSE * normal @ jnp.asarray(LIGHT, jnp.float32)
    light = scene.glow[box] + (1.0 - scene.glow[box]) * light
    cells = jnp.floor((camera.eye + depth[..., None] * rays + jnp.array(SHIFT)) * jnp.array(CELLS))
    light *= (1.0 - scene.pattern[box] * (jnp.sum(cells, axis=-1) % 2)) / (1.0 + EYE.fade * depth)
    image = jnp.where(jnp.isfinite(depth)[..., None], colour * light[..., None], jnp.array(SKY, jnp.float32))
    return jnp.clip(image, 0.0, 255.0).astype(jnp.uint8)


def _rays(camera: Camera, height: int, width: int) -> Array:
    u = ((jnp.arange(width) + 0.5) / width * 2.0 - 1.0) * EYE.width
    v = (1.0 - (jnp.arange(height) + 0.5) / height * 2.0) * EYE.height
    forward, right, up = camera.axes()
    return forward + u[None, :, None] * right + v[:, None, None] * up


def _frame(yaw: Array) -> Array:
    """[3, 3] axes of a box with a yaw."""
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    return jnp.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])


def _colours(scene: Scene, box: Array, point: Array) -> Array:
    """[H, W, 3] colours of boxes or their edges at points in the frames of the boxes."""
    plain = scene.yaw.shape[0] - scene.edge.shape[0]
    inner = scene.half.T - EDGE * jnp.median(scene.half, axis=0)[:, None]
    is_edge = (jnp.sum(jnp.abs(point) > inner[box], axis=-1) >= 2) & (box >= plain)
    return jnp.where(is_edge[..., None], scene.edge[box - plain], scene.rgb[box])
