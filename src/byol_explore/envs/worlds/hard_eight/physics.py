"""How things move: hulls that are swept along one axis after the other, each as far as the gap ahead allows.

Nothing overlaps, by construction and at any speed. Along an axis a mover i wants to go w_i, and the gap to whatever
lies ahead of it (and meets it on the other two axes) is g_ij >= 0. Movers go m_i with

    m_i <= g_ij / 2    if j wants to come towards i
    m_i <= g_ij + m_j  if j goes the same way, m_j being what j surely goes
    m_i <= g_ij        if j is fixed

so that no gap ever becomes negative. Rows are pushed in the same manner: who wants to go further than the gap wants
whatever is ahead to go the rest, as often as there may be bodies in a row. Hulls that already overlap by more than a
skin do not see each other on their way out: what is let go inside something else separates before it collides.

Vector units want long rows of numbers to which the same is done, and there are only a few movers. So a batch of worlds
is swept with its axis last, wherever `vmap` had it: all shapes here may go on with axes of batches.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from byol_explore.envs.worlds.hard_eight.world import Boxes
from byol_explore.types import Array, PyTree

TICK = 1.0 / 15.0  # seconds
GRAVITY = 9.8
ROW = 6  # bodies that can be pushed in a row
STEP = 0.32  # metres that the agent climbs
SKIN = 1e-3  # of overlap by rounding, which is none
BLOCKED = 1e-5  # metres that a mover must fall short of what it wanted

_FAR = 1e6


class Movers(NamedTuple):
    """What moves: the agent and the bodies, as hulls."""

    hulls: Boxes  # [3, N]
    wish: Array  # [3, N] where they want to go within a tick
    yields: Array  # [N] whether they can be pushed


@custom_vmap
def sweep(movers: Movers, fixed: Boxes, low: Array, high: Array) -> Array:
    """[3, N] where the movers go: east or west first, then north or south, then up or down."""
    centre = movers.hulls.centre
    for axis in range(3):
        hulls = Boxes(centre, movers.hulls.half)
        moved = _along(axis, hulls, movers.wish[axis], movers.yields & (axis < 2), fixed, low[axis], high[axis])
        centre = centre.at[axis].add(moved)
    return centre - movers.hulls.centre


@sweep.def_vmap
def _sweep_batch(size: int, is_batched: PyTree, *arguments: PyTree) -> tuple[Array, bool]:
    """The same with the axis of the batch last."""
    del size
    last = jax.tree.map(lambda x, has: jnp.moveaxis(x, 0, -1) if has else x[..., None], arguments, tuple(is_batched))
    return jnp.moveaxis(sweep(*last), -1, 0), True


def room(hulls: Boxes, fixed: Boxes, axis: int, wish: Array, low: Array, high: Array) -> Array:
    """[N] how far hulls can go among what is fixed, along an axis in the direction of their wish."""
    side = jnp.where(wish >= 0.0, 1.0, -1.0)
    away = side[:, None] * (fixed.centre[axis] - hulls.centre[axis][:, None])
    gap = away - fixed.half[axis] - hulls.half[axis][:, None]
    ahead = _meets(hulls, fixed, axis) & (gap >= -SKIN)
    to_bound = jnp.where(wish >= 0.0, high - hulls.high[axis], hulls.low[axis] - low)
    return jnp.maximum(jnp.minimum(to_bound, jnp.min(jnp.where(ahead, gap, _FAR), axis=1)), 0.0)


def _along(axis: int, hulls: Boxes, wish: Array, yields: Array, fixed: Boxes, low: Array, high: Array) -> Array:
    """[N] how far movers go along one axis."""
    gap = hulls.centre[axis][None] - hulls.centre[axis][:, None] - hulls.half[axis][None] - hulls.half[axis][:, None]
    itself = jnp.eye(wish.shape[0], dtype=bool).reshape(wish.shape[0], -1, *[1] * (wish.ndim - 1))
    meets = _meets(hulls, hulls, axis) & ~itself
    gap = jnp.where(meets & (gap >= -SKIN), jnp.maximum(gap, 0.0), _FAR)  # [i, j] if j lies on the upper side of i
    if axis < 2:
        wish = _pushed(wish, gap, yields)
    upwards = (wish >= 0.0)[:, None]
    side = jnp.where(upwards, 1.0, -1.0)
    gap = jnp.where(upwards, gap, gap.swapaxes(0, 1))  # [i, j] if j lies ahead of i
    comes = side * wish < 0.0
    limit = jnp.minimum(jnp.abs(wish), room(hulls, fixed, axis, wish, low, high))
    limit = jnp.minimum(limit, jnp.min(jnp.where(comes, 0.5 * gap, _FAR), axis=1))
    goes = jnp.minimum(limit, jnp.min(jnp.where(comes, _FAR, gap), axis=1))
    for _ in range(ROW):
        goes = jnp.minimum(limit, jnp.min(jnp.where(comes, _FAR, gap + goes), axis=1))
    return side[:, 0] * goes


def _pushed(wish: Array, gap: Array, yields: Array) -> Array:
    """[N] wishes after those who want to go further than the gap have asked whatever is ahead to go on."""
    for _ in range(ROW):
        up = jnp.max(wish[:, None] - gap, axis=0)
        down = jnp.max(-wish[:, None] - gap.swapaxes(0, 1), axis=0)
        asked = jnp.maximum(jnp.maximum(wish, up), 0.0) - jnp.maximum(jnp.maximum(-wish, down), 0.0)
        wish = jnp.where(yields, asked, wish)
    return wish


def _meets(first: Boxes, second: Boxes, axis: int) -> Array:
    """[N, P] whether boxes would meet if only this axis kept them apart."""
    result = (first.half[2] > 0.0)[:, None] & (second.half[2] > 0.0)[None]
    for other in range(3):
        if other != axis:
            between = jnp.abs(first.centre[other][:, None] - second.centre[other][None])
            result &= first.half[other][:, None] + second.half[other][None] - between > 0.5 * SKIN
    return result
