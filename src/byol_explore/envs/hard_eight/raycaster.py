"""Inverse-depth ray caster over rotated boxes and balls.

Inverse depth: the ray of pixel (u, v) is d = forward + u right + v up (not normalised). Where it meets the plane
n . p = c, seen from the eye e, the inverse depth

    1/t = (n . d) / (c - n . e)

is linear in u and v: no division per pixel, and one n . d for both planes of a slab. A ray is inside a slab between two
planes for 1/t in an interval [far, near]. It hits a box at the smallest `near` of the three slabs if that is larger
than every `far`; a slab that contains the eye has no `near`. A point of a face lies on an edge of the box if it is
close to the ends of at least two slabs. This needs no division either: |n . (e + t d)| > w is
|n . e / t + n . d| > w / t.

Packed hits: positive floats are ordered like the integers with the same bits. The lowest nine bits of the inverse depth
are replaced by slot, edge and face, so that the nearest hit is one integer maximum per box. A table look-up at the end
turns the code into a colour. The relative error of the depth is 2^-14.

Visible first: most boxes are empty slots, behind the eye or outside the picture; of 48, four or five are visible. On a
CPU `nearest_hit` loops over primitives one at a time, which keeps the picture in the cache, puts the visible ones first
and stops after the last of them. A batch of pictures shares one loop, as long as the fullest picture needs. The loop
must know its batch for that, but `vmap` hides it; `custom_vmap` makes it visible.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from byol_explore.types import Array, PyTree

LIGHT = np.array([0.48, 0.28, 0.83]) / np.linalg.norm([0.48, 0.28, 0.83])  # unit vector towards the light
AMBIENT, DIFFUSE = 0.83, 0.2
EDGE = 0.2  # width of edges, as a fraction of the median of a box's three half extents
SKY = (150, 180, 205)
CELLS = (2.0, 2.0, 2.0)  # cells of the chequered pattern per metre along each axis
SHIFT = (0.137, 0.211, 0.173)  # metres; keeps walls at round coordinates away from the borders of cells

_CODES = 8  # codes per slot: two bits for the face (three slabs of a box, or a ball), one bit for the edge
_ON_EDGE = 4
_SLOTS = 64  # slot 0 is the sky
_CODE_MASK = _SLOTS * _CODES - 1  # the nine low bits that hold slot, edge and face
_UNREACHABLE = 1e9  # inverse depth, larger than any hit
_SMALL = 1e-6


class Scene(NamedTuple):
    """Everything visible: N boxes, then P balls, N + P < 64. Arrays over N + P list boxes first."""

    centre: Array  # [3, N]
    half: Array  # [3, N]
    yaw: Array  # [N]
    ball_centre: Array  # [3, P]
    radius: Array  # [P] 0 for empty slots
    rgb: Array  # [N + P, 3] 0 to 255
    glow: Array  # [N + P] 0 to 1, emitted fraction of the light
    pattern: Array  # [N + P] 0 to 1, darkness of the dark cells
    edge: Array  # [E, 3] edge colours of the last E boxes; the others have no edges


class FieldOfView(NamedTuple):
    """Half the picture's width and height at distance 1, and the darkening per metre."""

    width: Array | float = 0.8
    height: Array | float = 0.6
    fade: float = 0.03


EYE = FieldOfView()  # 77 by 62 degrees


class Camera(NamedTuple):
    """Position and direction of view."""

    eye: Array  # [3]
    yaw: Array  # []
    pitch: Array  # []

    def axes(self) -> tuple[Array, Array, Array]:
        """Return the unit vectors forward, right and up, [3] each."""
        cos, sin, level, rise = jnp.cos(self.yaw), jnp.sin(self.yaw), jnp.cos(self.pitch), jnp.sin(self.pitch)
        forward = jnp.stack([level * cos, level * sin, rise])
        up = jnp.stack([-rise * cos, -rise * sin, level])
        return forward, jnp.stack([sin, -cos, jnp.zeros_like(cos)]), up


def render(scene: Scene, camera: Camera, height: int, width: int, lens: FieldOfView = EYE) -> Array:
    """[height, width, 3] uint8 picture of the scene."""
    columns, rows = (jnp.asarray(grid, jnp.float32) for grid in pixel_grid(height, width))
    u, v = lens.width * columns, lens.height * rows
    boxes, balls = visible_mask(scene, camera, lens)
    hits = jnp.maximum(_nearest_box(scene, camera, boxes, u, v), _nearest_ball(scene, camera, balls, u, v))
    return _shade(scene, camera, hits, u, v, lens.fade)


def visible_mask(scene: Scene, camera: Camera, lens: FieldOfView) -> tuple[Array, Array]:
    """Return masks of the boxes [N] and balls [P] that may be visible.

    A primitive is invisible if it is empty, or entirely on the outer side of one of the four planes through the eye and
    an edge of the picture.
    """
    forward, right, up = camera.axes()
    inwards = [lens.width * forward - right, lens.width * forward + right]
    inwards += [lens.height * forward - up, lens.height * forward + up]
    boxes, balls = jnp.all(scene.half > 0.0, axis=0), scene.radius > 0.0
    for normal in inwards:
        reach = jnp.sum(jnp.abs(_to_box_frame(normal[:, None], scene.yaw)) * scene.half, axis=0)
        boxes &= normal @ (scene.centre - camera.eye[:, None]) + reach > 0.0
        length = jnp.sqrt(jnp.sum(normal * normal))
        balls &= normal @ (scene.ball_centre - camera.eye[:, None]) + length * scene.radius > 0.0
    return boxes, balls


def pixel_grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pixel centres in [-1, 1]: columns [1, W] to the right, rows [H, 1] up."""
    columns = (np.arange(width) + 0.5) / width * 2.0 - 1.0
    rows = 1.0 - (np.arange(height) + 0.5) / height * 2.0
    return columns[None, :], rows[:, None]


class _Slabs(NamedTuple):
    """Slabs of N boxes in the box's own frame. An inverse depth is n . d times an inverse distance to a plane."""

    direction: Array  # [N, 3, 3] coefficients of 1, u and v in n . d, per axis of the box
    near: Array  # [N, 3] 1 / distance to the plane where rays enter; 0 if the eye is in the slab
    never: Array  # [N, 3] _UNREACHABLE if the eye is in the slab, else 0
    far: Array  # [N, 3] 1 / distance to the plane where rays leave
    other: Array  # [N, 3] the same for the second plane, if the eye is in the slab
    eye: Array  # [N, 3] n . e, from the centre of the box
    inner: Array  # [N, 3] distance from the centre to where edges begin


def _nearest_box(scene: Scene, camera: Camera, visible: Array, u: Array, v: Array) -> Array:
    """[H, W] int32 packed hit of the nearest box: inverse depth, with slot, edge and face in its low bits; 0: miss."""
    plain = scene.yaw.shape[0] - scene.edge.shape[0]
    slots = jnp.arange(1, scene.yaw.shape[0] + 1, dtype=jnp.int32)
    primitives = _slabs(scene, camera), slots

    def select(part: slice) -> tuple[tuple[_Slabs, Array], Array]:
        return jax.tree.map(lambda x: x[part], (primitives, visible))

    without_edges = nearest_hit(_hit, *select(slice(None, plain)), u, v)
    return jnp.maximum(without_edges, nearest_hit(partial(_hit, edges=True), *select(slice(plain, None)), u, v))


def _slabs(scene: Scene, camera: Camera) -> _Slabs:
    """Return the slabs of all boxes, relative to the eye."""
    directions = [_to_box_frame(axis[:, None], scene.yaw) for axis in camera.axes()]  # [3, N] of forward, right, up
    eye = _to_box_frame(camera.eye[:, None] - scene.centre, scene.yaw)
    side = jnp.where(eye > 0.0, 1.0, -1.0)
    outside = jnp.abs(eye) > scene.half

    def inverse(where: Array) -> Array:
        """[3, N] inverse distance to the planes at `where` half extents; an eye in a plane is on its right side."""
        gap = jnp.maximum(jnp.abs(where * scene.half - eye), _SMALL)
        return jnp.where(outside, -side, where) / gap

    x, y, z = scene.half
    middle = jnp.maximum(jnp.minimum(x, y), jnp.minimum(jnp.maximum(x, y), z))
    numbers = (
        jnp.where(outside, inverse(side), 0.0),
        jnp.where(outside, 0.0, _UNREACHABLE),
        *(inverse(jnp.where(outside, -side, plane)) for plane in (1.0, -1.0)),
        eye,
        scene.half - EDGE * middle,
    )
    return _Slabs(jnp.moveaxis(jnp.stack(directions, axis=-1), 0, 1), *[number.T for number in numbers])


def _to_box_frame(vector: Array, yaw: Array) -> Array:
    """[3, N] a vector [3, N or 1] in the frames of boxes with yaw [N]."""
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    x, y, z = vector
    return jnp.stack([cos * x + sin * y, cos * y - sin * x, jnp.broadcast_to(z, yaw.shape)])


def _hit(slabs: _Slabs, slot: Array, u: Array, v: Array, *, edges: bool = False) -> Array:
    """[H, W] packed hits of rays with one box; with `edges`, including whether they lie on an edge."""
    along = [(c[0] + c[2] * v) + c[1] * u for c in slabs.direction]  # n . d, [H, W] per axis
    near = [_bits(along[axis] * slabs.near[axis] + slabs.never[axis]) & ~3 | axis for axis in range(3)]
    first = jnp.minimum(jnp.minimum(near[0], near[1]), near[2])
    far = [jnp.maximum(along[axis] * slabs.far[axis], along[axis] * slabs.other[axis]) for axis in range(3)]
    last = _bits(jnp.maximum(jnp.maximum(far[0], far[1]), jnp.maximum(far[2], 0.0)))
    packed = first & ~_CODE_MASK | slot * _CODES | first & 3
    if edges:
        packed |= jnp.where(_is_edge(slabs, along, _floats(first)), _ON_EDGE, 0)
    return jnp.where((first > last) & (first < _bits(jnp.float32(0.5 * _UNREACHABLE))), packed, 0)


def _is_edge(slabs: _Slabs, along: list[Array], inverse: Array) -> Array:
    """[H, W] whether a hit lies close to the ends of at least two slabs; it always does for one."""
    a, b, c = (jnp.abs(slabs.eye[i] * inverse + along[i]) > slabs.inner[i] * inverse for i in range(3))
    return (a & b) | (c & (a | b))


def _bits(x: Array) -> Array:
    return lax.bitcast_convert_type(x, jnp.int32)


def _floats(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def _nearest_ball(scene: Scene, camera: Camera, visible: Array, u: Array, v: Array) -> Array:
    """[H, W] int32 packed hit of the nearest ball.

    1/t = (sqrt((o.d)^2 - d.d (o.o - r^2)) - o.d) / (o.o - r^2), with o from the ball's centre to the eye.
    """
    o = camera.eye[:, None] - scene.ball_centre
    along = jnp.stack([jnp.sum(o * axis[:, None], axis=0) for axis in camera.axes()], axis=-1)  # [P, 3]
    outside = jnp.sum(o * o, axis=0) - scene.radius**2
    outside = jnp.where((outside > 0.0) & (scene.radius > 0.0), outside, _UNREACHABLE)  # too far away to be hit
    first_slot = scene.yaw.shape[0] + 1
    slots = jnp.arange(first_slot, first_slot + scene.radius.shape[0], dtype=jnp.int32)
    primitives = _Balls(along, outside, 1.0 / outside, slots)
    return nearest_hit(_hit_ball, (primitives,), visible, u, v)


class _Balls(NamedTuple):
    """Balls relative to the eye."""

    along: Array  # [P, 3] coefficients of 1, u and v in o . d
    outside: Array  # [P] o . o - r^2
    scale: Array  # [P] 1 / outside
    slot: Array  # [P]


def _hit_ball(ball: _Balls, u: Array, v: Array) -> Array:
    """[H, W] packed hits of rays with one ball."""
    b = (ball.along[0] + ball.along[1] * u) + ball.along[2] * v
    root = b * b - (1.0 + u * u + v * v) * ball.outside
    inverse = (jnp.sqrt(jnp.maximum(root, 0.0)) - b) * ball.scale
    return jnp.where((root > 0.0) & (b < 0.0), _bits(inverse) & ~_CODE_MASK | ball.slot * _CODES | 3, 0)


def _shade(scene: Scene, camera: Camera, hits: Array, u: Array, v: Array, fade: float) -> Array:
    """[H, W, 3] uint8 colours of packed hits [H, W], from light, pattern and distance."""
    code = hits & _CODE_MASK
    inverse = _floats(jnp.maximum(hits, _bits(jnp.float32(1e-4))) & ~_CODE_MASK)
    depth = 1.0 / inverse
    forward, right, up = camera.axes()
    dark = jnp.zeros(hits.shape, jnp.int32)
    along_light = jnp.zeros(hits.shape)
    for axis in range(3):
        place = camera.eye[axis] + depth * (forward[axis] + u * right[axis] + v * up[axis])
        along_light += place * LIGHT[axis].astype(np.float32)
        dark += jnp.floor((place + SHIFT[axis]) * CELLS[axis]).astype(jnp.int32)
    plain, slope = _light_tables(scene, camera)
    cell = 2 * code + (dark & 1)
    light = (plain[cell] + slope[cell] * along_light) * (inverse / (inverse + fade))
    light = jnp.where(code == 0, 1.0, light)
    return jnp.clip(_colour_table(scene)[code] * light[..., None], 0.0, 255.0).astype(jnp.uint8)


def _light_tables(scene: Scene, camera: Camera) -> tuple[Array, Array]:
    """Return tables [1024] over (slot, edge, face, dark cell): the light is plain + slope (point . LIGHT).

    The light on a surface with normal n is AMBIENT + DIFFUSE n . LIGHT. n is constant on a face (slope 0), and
    (point - centre) / radius on a ball.
    """
    light = jnp.asarray(LIGHT, jnp.float32)
    eye = _to_box_frame(camera.eye[:, None] - scene.centre, scene.yaw)
    facing = _to_box_frame(light[:, None], scene.yaw) * jnp.where(eye > 0.0, 1.0, -1.0)  # [3, N]
    boxes = jnp.pad(AMBIENT + DIFFUSE * facing.T, ((0, 0), (0, 1)))  # [N, 4]
    slope = jnp.where(scene.radius > 0.0, DIFFUSE / jnp.maximum(scene.radius, _SMALL), 0.0)  # [P]
    balls = AMBIENT - slope * jnp.sum(light[:, None] * scene.ball_centre, axis=0)
    glow, cells = scene.glow[:, None], jnp.stack([jnp.ones_like(scene.pattern), 1.0 - scene.pattern], axis=1)
    plain = jnp.concatenate([boxes, jnp.broadcast_to(balls[:, None], (balls.shape[0], 4))])
    plain = jnp.tile(glow + (1.0 - glow) * plain, 2)
    slopes = (1.0 - glow) * jnp.pad(slope, (boxes.shape[0], 0))[:, None]
    return _table(plain, cells), _table(slopes, cells)


def _colour_table(scene: Scene) -> Array:
    """[512, 3] colours by code; slot 0 is the sky."""
    count, edges = scene.yaw.shape[0], scene.edge.shape[0]
    edge = scene.rgb.at[count - edges : count].set(scene.edge)
    both = jnp.stack([scene.rgb, edge], axis=1)  # [N + P, 2, 3]
    both = jnp.concatenate([jnp.broadcast_to(jnp.array(SKY, jnp.float32), (1, 2, 3)), both])
    both = jnp.pad(both, ((0, _SLOTS - both.shape[0]), (0, 0), (0, 0)))
    return jnp.repeat(both.reshape(-1, 3), _ON_EDGE, axis=0)


def _table(values: Array, cells: Array) -> Array:
    """[1024] table of values [n, 8 or 1] per primitive and code, times `cells` [n, 2] per primitive and cell."""
    values = jnp.broadcast_to(values[:, :, None] * cells[:, None], (values.shape[0], _CODES, 2))
    return jnp.pad(values, ((1, _SLOTS - 1 - values.shape[0]), (0, 0), (0, 0))).reshape(-1)


Hit = Callable[..., Array]  # (primitive, u [1, W], v [H, 1]) -> [H, W] int32 packed hits, 0 for a miss


def nearest_hit(hit: Hit, primitives: tuple[PyTree, ...], visible: Array, u: Array, v: Array) -> Array:
    """[H, W] maximum of the packed hits over primitives [N, ...]. No ray may hit one that is not `visible` [N]."""
    if jax.default_backend() != "cpu" or visible.size == 0:  # one vectorised pass
        return jnp.max(jax.vmap(hit, (0,) * len(primitives) + (None, None))(*primitives, u, v), axis=0, initial=0)
    order = jnp.argsort(~visible, stable=True)
    in_order = jax.tree.map(lambda x: x[order], primitives)
    return _max_over_visible(hit)(in_order, jnp.sum(visible, dtype=jnp.int32), u, v)


def _max_over_visible(hit: Hit) -> Callable[..., Array]:
    """Return a function: maximum over the first `count` primitives of each picture. All arguments share batch axes."""

    @custom_vmap
    def maximum(primitives: tuple[PyTree, ...], count: Array, u: Array, v: Array) -> Array:
        batch = count.ndim
        by_thing = jax.tree.map(lambda x: jnp.moveaxis(x, batch, 0), primitives)
        hits = hit
        for _ in range(batch):
            hits = jax.vmap(hits)

        def further(index: Array, best: Array) -> Array:
            primitive = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index, keepdims=False), by_thing)
            return jnp.maximum(best, hits(*primitive, u, v))

        return lax.fori_loop(0, jnp.max(count), further, jnp.zeros(jnp.broadcast_shapes(u.shape, v.shape), jnp.int32))

    @maximum.def_vmap
    def _(size: int, is_batched: Any, *arguments: Any) -> tuple[Array, bool]:
        spread = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (size, *x.shape)), arguments, tuple(is_batched)
        )
        return maximum(*spread), True

    return maximum
