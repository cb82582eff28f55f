"""Slow reference ray tracer in double precision: one object after the other, one depth per pixel."""

from typing import Any, NamedTuple

import numpy as np

from byol_explore.envs.hard_eight import raycaster
from byol_explore.envs.hard_eight.raycaster import Camera, FieldOfView, Scene


class Hits(NamedTuple):
    """Intersections of the rays with one object."""

    depth: np.ndarray  # [H, W] infinite where they do not
    normal: np.ndarray  # [H, W, 3]
    is_edge: np.ndarray  # [H, W]


def trace(scene: Scene, camera: Camera, height: int, width: int, lens: FieldOfView = raycaster.EYE) -> np.ndarray:
    """[H, W, 3] float colours."""
    scene, camera = _doubles(scene), _doubles(camera)
    forward, right, up = _axes(float(camera.yaw), float(camera.pitch))
    row, column = np.mgrid[:height, :width]
    u = ((column + 0.5) / width * 2 - 1) * lens.width
    v = (1 - (row + 0.5) / height * 2) * lens.height
    rays = forward + u[..., None] * right + v[..., None] * up
    picture = np.broadcast_to(np.array(raycaster.SKY, float), rays.shape)
    nearest = np.full((height, width), np.inf)
    boxes = [_box(scene, index, camera.eye, rays) for index in range(len(scene.yaw))]
    balls = [_ball(scene, index, camera.eye, rays) for index in range(len(scene.radius))]
    for thing, hits in enumerate([*boxes, *balls]):
        is_nearer = (hits.depth < nearest)[..., None]
        picture = np.where(is_nearer, _colours(scene, thing, hits, camera.eye, rays, lens.fade), picture)
        nearest = np.minimum(hits.depth, nearest)
    return picture


def _doubles(record: Any) -> Any:
    return type(record)(*[np.asarray(field, np.float64) for field in record])


def _axes(yaw: float, pitch: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    forward = np.array([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)])
    right = np.array([np.sin(yaw), -np.cos(yaw), 0.0])
    return forward, right, np.cross(right, forward)


def _colours(scene: Scene, thing: int, hits: Hits, eye: Any, rays: np.ndarray, fade: float) -> np.ndarray:
    depth = np.where(np.isfinite(hits.depth), hits.depth, 1.0)
    light = raycaster.AMBIENT + raycaster.DIFFUSE * (hits.normal @ raycaster.LIGHT)
    glow, pattern = float(scene.glow[thing]), float(scene.pattern[thing])
    cell = np.floor((eye + depth[..., None] * rays + raycaster.SHIFT) * raycaster.CELLS).sum(-1)
    light = (glow + (1 - glow) * light) * (1 - pattern * (cell % 2)) / (1 + fade * depth)
    edged = thing - len(scene.yaw) + len(scene.edge)
    edge = np.asarray(scene.edge[edged] if 0 <= edged < len(scene.edge) else scene.rgb[thing])
    rgb = np.where(hits.is_edge[..., None], edge, np.asarray(scene.rgb[thing]))
    return np.clip(rgb * light[..., None], 0, 255)


def _box(scene: Scene, index: int, eye: Any, rays: np.ndarray) -> Hits:
    """Slab test: a ray is inside the box once it has entered all three slabs and left none."""
    first, left, up = np.stack(_axes(float(scene.yaw[index]), 0.0)) * np.array([[1], [-1], [1]])
    enters, leaves = np.full(rays.shape[:2], -np.inf), np.full(rays.shape[:2], np.inf)
    normal = np.zeros(rays.shape)
    halves, ends = scene.half[:, index], np.zeros(rays.shape[:2])
    for axis, half in zip((first, left, up), halves, strict=True):
        speed, place = rays @ axis, axis @ (eye - scene.centre[:, index])
        with np.errstate(divide="ignore", invalid="ignore"):
            planes = np.sort([(-half - place) / speed, (half - place) / speed], axis=0)
        normal = np.where((planes[0] > enters)[..., None], -np.sign(speed)[..., None] * axis, normal)
        enters, leaves = np.maximum(enters, planes[0]), np.minimum(leaves, planes[1])
    is_hit = (enters > 0) & (enters < leaves)
    depth = np.where(is_hit, enters, 1.0)
    for axis, half in zip((first, left, up), halves, strict=True):
        place = (eye - scene.centre[:, index] + depth[..., None] * rays) @ axis
        ends += np.abs(place) > half - raycaster.EDGE * np.sort(halves)[1]
    return Hits(np.where(is_hit, depth, np.inf), normal, ends >= 2)


def _ball(scene: Scene, index: int, eye: Any, rays: np.ndarray) -> Hits:
    """Solve |eye + t ray - centre| = radius for t."""
    offset, radius = eye - scene.ball_centre[:, index], float(scene.radius[index])
    a, b, c = (rays * rays).sum(-1), rays @ offset, offset @ offset - radius**2
    root = b * b - a * c
    depth = (-b - np.sqrt(np.maximum(root, 0))) / a
    is_hit = (root > 0) & (depth > 0) & (c > 0) & (radius > 0)
    normal = (offset + depth[..., None] * rays) / max(radius, 1e-9)
    return Hits(np.where(is_hit, depth, np.inf), normal, np.zeros(is_hit.shape, bool))
