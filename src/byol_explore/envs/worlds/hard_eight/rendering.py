"""What the agent sees: a ray-caster over boxes that may be turned and over balls.

The ray of the pixel (u, v) is d = forward + u right + v up, not of length one. Where it meets a plane n . p = c, seen
from the eye e, the inverse depth

    1/t = (n . d) / (c - n . e)

is linear in u and v: no divisions for pixels, and one n . d for both planes of a slab. A ray is inside a slab between
two planes for 1/t in an interval [far, near]; it hits a box at the smallest `near` of its three slabs if that is larger
than every `far`. Slabs that the eye is in have no `near`. A point of a face is on an edge of the box if it is close to
the ends of at least two slabs, which again needs no division: |n . (e + t d)| > w is |n . e / t + n . d| > w / t.

Positive floats are ordered as the integers of the same bits. So the slot, the edge and the face go into the lowest nine
bits of the inverse depth, and the nearest hit of all is one integer maximum per box, which a loop carries along. A
look-up at the end turns them into a colour. The relative error of the depth is 2^-14.

Most boxes are empty slots, behind the eye or beside the picture: of 48, four or five are in sight. Where things go by
one after the other, those in sight come first and the loop ends with the last of them (`nearest.py`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from byol_explore.envs.worlds.hard_eight.nearest import nearest
from byol_explore.types import Array

LIGHT = np.array([0.48, 0.28, 0.83]) / np.linalg.norm([0.48, 0.28, 0.83])  # where it comes from
AMBIENT, DIFFUSE = 0.83, 0.2
EDGE = 0.2  # width of edges, of the middle one of a box's three halves
SKY = (150, 180, 205)
CELLS = (2.0, 2.0, 2.0)  # of the pattern, per metre along each axis
SHIFT = (0.137, 0.211, 0.173)  # keeps walls at round numbers away from the borders of cells

_LOOKS = 8  # of a slot: two bits for the face (three slabs of a box, or a ball), one for the edge
_ON_EDGE = 4
_SLOTS = 64  # slot 0 is the sky
_LOW = _SLOTS * _LOOKS - 1  # all bits that are not of the depth
_NEVER = 1e9  # an inverse depth that is no bound
_SMALL = 1e-6


class Scene(NamedTuple):
    """All that can be seen: N boxes, then P balls; N + P < 64. Looks are of both, in that order."""

    centre: Array  # [3, N]
    half: Array  # [3, N]
    yaw: Array  # [N]
    ball_centre: Array  # [3, P]
    radius: Array  # [P] 0 where there is none
    rgb: Array  # [N + P, 3] 0 to 255
    glow: Array  # [N + P] 0 to 1, light of their own
    pattern: Array  # [N + P] 0 to 1, how dark the dark cells are
    edge: Array  # [E, 3] colours of the edges that the last E boxes have


class Lens(NamedTuple):
    """How much is seen: half the picture's width and height at distance 1, and how much darker a metre makes things."""

    width: Array | float = 0.8
    height: Array | float = 0.6
    fade: float = 0.03


EYE = Lens()  # 77 by 62 degrees


class Camera(NamedTuple):
    """An eye and the way it looks."""

    eye: Array  # [3]
    yaw: Array  # []
    pitch: Array  # []

    def axes(self) -> tuple[Array, Array, Array]:
        """Forward, right and up, [3] each."""
        cos, sin, level, rise = jnp.cos(self.yaw), jnp.sin(self.yaw), jnp.cos(self.pitch), jnp.sin(self.pitch)
        forward = jnp.stack([level * cos, level * sin, rise])
        up = jnp.stack([-rise * cos, -rise * sin, level])
        return forward, jnp.stack([sin, -cos, jnp.zeros_like(cos)]), up


def render(scene: Scene, camera: Camera, height: int, width: int, lens: Lens = EYE) -> Array:
    """[height, width, 3] uint8."""
    columns, rows = (jnp.asarray(grid, jnp.float32) for grid in pixels(height, width))
    u, v = lens.width * columns, lens.height * rows
    boxes, balls = in_sight(scene, camera, lens)
    hits = jnp.maximum(_nearest_box(scene, camera, boxes, u, v), _nearest_ball(scene, camera, balls, u, v))
    return _shade(scene, camera, hits, u, v, lens.fade)


def in_sight(scene: Scene, camera: Camera, lens: Lens) -> tuple[Array, Array]:
    """[N] boxes and [P] balls that have a size and are not all on the outer side of one edge of the picture."""
    forward, right, up = camera.axes()
    inwards = [lens.width * forward - right, lens.width * forward + right]
    inwards += [lens.height * forward - up, lens.height * forward + up]
    boxes, balls = jnp.all(scene.half > 0.0, axis=0), scene.radius > 0.0
    for normal in inwards:
        reach = jnp.sum(jnp.abs(_turned(normal[:, None], scene.yaw)) * scene.half, axis=0)
        boxes &= normal @ (scene.centre - camera.eye[:, None]) + reach > 0.0
        length = jnp.sqrt(jnp.sum(normal * normal))
        balls &= normal @ (scene.ball_centre - camera.eye[:, None]) + length * scene.radius > 0.0
    return boxes, balls


def pixels(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels have their middles, from -1 to 1: of each column [1, W] to the right, of each row [H, 1] up."""
    columns = (np.arange(width) + 0.5) / width * 2.0 - 1.0
    rows = 1.0 - (np.arange(height) + 0.5) / height * 2.0
    return columns[None, :], rows[:, None]


class _Slabs(NamedTuple):
    """Boxes in frames of their own, [N, 3 axes] each. An inverse depth is n . d times that of a distance to a plane."""

    direction: Array  # [N, 3, 3] coefficients of 1, u and v of n . d
    near: Array  # 1 / distance to the plane by which rays enter, 0 if the eye is in the slab
    never: Array  # what no depth reaches if the eye is in the slab, else 0
    far: Array  # 1 / distance to the plane by which they leave
    other: Array  # of the second plane that they may leave by, if the eye is in the slab
    eye: Array  # n . e, from the middle
    inner: Array  # from the middle to where edges begin


def _nearest_box(scene: Scene, camera: Camera, seen: Array, u: Array, v: Array) -> Array:
    """[H, W] int32 inverse depth with slot, edge and face in its low bits, 0 where nothing is hit."""
    plain = scene.yaw.shape[0] - scene.edge.shape[0]
    slots = jnp.arange(1, scene.yaw.shape[0] + 1, dtype=jnp.int32)
    things = _slabs(scene, camera), slots

    def of(part: slice) -> tuple[tuple[_Slabs, Array], Array]:
        return jax.tree.map(lambda x: x[part], (things, seen))

    without_edges = nearest(_hit, *of(slice(None, plain)), u, v)
    return jnp.maximum(without_edges, nearest(_hit_with_edges, *of(slice(plain, None)), u, v))


def _slabs(scene: Scene, camera: Camera) -> _Slabs:
    """The planes of all boxes, seen from the eye in the frame of each box."""
    directions = [_turned(axis[:, None], scene.yaw) for axis in camera.axes()]  # [3, N] of forward, right, up
    eye = _turned(camera.eye[:, None] - scene.centre, scene.yaw)
    side = jnp.where(eye > 0.0, 1.0, -1.0)
    outside = jnp.abs(eye) > scene.half

    def inverse(where: Array) -> Array:
        """Of the distance to the plane at this share of the half; an eye in it counts as on its right side."""
        gap = jnp.maximum(jnp.abs(where * scene.half - eye), _SMALL)
        return jnp.where(outside, -side, where) / gap

    x, y, z = scene.half
    middle = jnp.maximum(jnp.minimum(x, y), jnp.minimum(jnp.maximum(x, y), z))
    numbers = (
        jnp.where(outside, inverse(side), 0.0),
        jnp.where(outside, 0.0, _NEVER),
        *(inverse(jnp.where(outside, -side, plane)) for plane in (1.0, -1.0)),
        eye,
        scene.half - EDGE * middle,
    )
    return _Slabs(jnp.moveaxis(jnp.stack(directions, axis=-1), 0, 1), *[number.T for number in numbers])


def _turned(vector: Array, yaw: Array) -> Array:
    """[3, N] in the frame of boxes that are turned by yaw."""
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    x, y, z = vector
    return jnp.stack([cos * x + sin * y, cos * y - sin * x, jnp.broadcast_to(z, yaw.shape)])


def _hit_with_edges(slabs: _Slabs, slot: Array, u: Array, v: Array) -> Array:
    """[H, W] where rays enter one box, whose edges are told from its faces."""
    return _hit(slabs, slot, u, v, edges=True)


def _hit(slabs: _Slabs, slot: Array, u: Array, v: Array, *, edges: bool = False) -> Array:
    """[H, W] where rays enter one box."""
    along = [(c[0] + c[2] * v) + c[1] * u for c in slabs.direction]  # n . d
    near = [_bits(along[axis] * slabs.near[axis] + slabs.never[axis]) & ~3 | axis for axis in range(3)]
    first = jnp.minimum(jnp.minimum(near[0], near[1]), near[2])
    far = [jnp.maximum(along[axis] * slabs.far[axis], along[axis] * slabs.other[axis]) for axis in range(3)]
    last = _bits(jnp.maximum(jnp.maximum(far[0], far[1]), jnp.maximum(far[2], 0.0)))
    packed = first & ~_LOW | slot * _LOOKS | first & 3
    if edges:
        packed |= jnp.where(_is_edge(slabs, along, _floats(first)), _ON_EDGE, 0)
    return jnp.where((first > last) & (first < _bits(jnp.float32(0.5 * _NEVER))), packed, 0)


def _is_edge(slabs: _Slabs, along: list[Array], inverse: Array) -> Array:
    """[H, W] whether a point of a box is close to the ends of two slabs; of one of them it always is."""
    a, b, c = (jnp.abs(slabs.eye[i] * inverse + along[i]) > slabs.inner[i] * inverse for i in range(3))
    return (a & b) | (c & (a | b))


def _bits(x: Array) -> Array:
    return lax.bitcast_convert_type(x, jnp.int32)


def _floats(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def _nearest_ball(scene: Scene, camera: Camera, seen: Array, u: Array, v: Array) -> Array:
    """As for boxes: 1/t = (sqrt((o.d)^2 - d.d (o.o - r^2)) - o.d) / (o.o - r^2), o from a ball's middle to the eye."""
    o = camera.eye[:, None] - scene.ball_centre
    along = jnp.stack([jnp.sum(o * axis[:, None], axis=0) for axis in camera.axes()], axis=-1)  # [P, 3]
    outside = jnp.sum(o * o, axis=0) - scene.radius**2
    outside = jnp.where((outside > 0.0) & (scene.radius > 0.0), outside, _NEVER)  # so far that it is not seen
    first_slot = scene.yaw.shape[0] + 1
    slots = jnp.arange(first_slot, first_slot + scene.radius.shape[0], dtype=jnp.int32)
    things = _Balls(along, outside, 1.0 / outside, slots)
    return nearest(_hit_ball, (things,), seen, u, v)


class _Balls(NamedTuple):
    """Balls, seen from the eye."""

    along: Array  # [P, 3] coefficients of 1, u and v of o . d
    outside: Array  # [P] o . o - r^2
    scale: Array  # [P] 1 / outside
    slot: Array  # [P]


def _hit_ball(ball: _Balls, u: Array, v: Array) -> Array:
    """[H, W] where rays meet one ball."""
    b = (ball.along[0] + ball.along[1] * u) + ball.along[2] * v
    root = b * b - (1.0 + u * u + v * v) * ball.outside
    inverse = (jnp.sqrt(jnp.maximum(root, 0.0)) - b) * ball.scale
    return jnp.where((root > 0.0) & (b < 0.0), _bits(inverse) & ~_LOW | ball.slot * _LOOKS | 3, 0)


def _shade(scene: Scene, camera: Camera, hits: Array, u: Array, v: Array, fade: float) -> Array:
    """Colours from the nearest hits: light, pattern and distance."""
    look = hits & _LOW
    inverse = _floats(jnp.maximum(hits, _bits(jnp.float32(1e-4))) & ~_LOW)
    depth = 1.0 / inverse
    forward, right, up = camera.axes()
    dark = jnp.zeros(hits.shape, jnp.int32)
    lit = jnp.zeros(hits.shape)
    for axis in range(3):
        place = camera.eye[axis] + depth * (forward[axis] + u * right[axis] + v * up[axis])
        lit += place * LIGHT[axis].astype(np.float32)
        dark += jnp.floor((place + SHIFT[axis]) * CELLS[axis]).astype(jnp.int32)
    plain, slope = _lights(scene, camera)
    cell = 2 * look + (dark & 1)
    light = (plain[cell] + slope[cell] * lit) * (inverse / (inverse + fade))
    light = jnp.where(look == 0, 1.0, light)
    return jnp.clip(_colours(scene)[look] * light[..., None], 0.0, 255.0).astype(jnp.uint8)


def _lights(scene: Scene, camera: Camera) -> tuple[Array, Array]:
    """Tables [1024] over slot, edge, face, and light or dark cells of the pattern: plain + slope (point . LIGHT).

    The light on a surface with the normal n is AMBIENT + DIFFUSE n . LIGHT, and n is the same all over a face; on a
    ball it is (point - middle) / radius.
    """
    light = jnp.asarray(LIGHT, jnp.float32)
    eye = _turned(camera.eye[:, None] - scene.centre, scene.yaw)
    facing = _turned(light[:, None], scene.yaw) * jnp.where(eye > 0.0, 1.0, -1.0)  # [3, N]
    boxes = jnp.pad(AMBIENT + DIFFUSE * facing.T, ((0, 0), (0, 1)))  # [N, 4]
    slope = jnp.where(scene.radius > 0.0, DIFFUSE / jnp.maximum(scene.radius, _SMALL), 0.0)  # [P]
    balls = AMBIENT - slope * jnp.sum(light[:, None] * scene.ball_centre, axis=0)
    glow, cells = scene.glow[:, None], jnp.stack([jnp.ones_like(scene.pattern), 1.0 - scene.pattern], axis=1)
    plain = jnp.concatenate([boxes, jnp.broadcast_to(balls[:, None], (balls.shape[0], 4))])
    plain = jnp.tile(glow + (1.0 - glow) * plain, 2)
    slopes = (1.0 - glow) * jnp.pad(slope, (boxes.shape[0], 0))[:, None]
    return _table(plain, cells), _table(slopes, cells)


def _colours(scene: Scene) -> Array:
    """[512, 3] of everything and its edges; the sky comes first."""
    count, edges = scene.yaw.shape[0], scene.edge.shape[0]
    edge = scene.rgb.at[count - edges : count].set(scene.edge)
    both = jnp.stack([scene.rgb, edge], axis=1)  # [N + P, 2, 3]
    both = jnp.concatenate([jnp.broadcast_to(jnp.array(SKY, jnp.float32), (1, 2, 3)), both])
    both = jnp.pad(both, ((0, _SLOTS - both.shape[0]), (0, 0), (0, 0)))
    return jnp.repeat(both.reshape(-1, 3), _ON_EDGE, axis=0)


def _table(values: Array, cells: Array) -> Array:
    """[1024] from numbers per thing and look [n, 8] or [n, 1], times those per thing and cell [n, 2]; first the sky."""
    values = jnp.broadcast_to(values[:, :, None] * cells[:, None], (values.shape[0], _LOOKS, 2))
    return jnp.pad(values, ((1, _SLOTS - 1 - values.shape[0]), (0, 0), (0, 0))).reshape(-1)
