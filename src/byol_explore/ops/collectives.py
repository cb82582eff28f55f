"""Sums over a batch that is spread over devices.

Every statistic of this package is of the whole batch. Where the batch is split over a named axis of devices the
functions that reduce over it take the name as `axis`; None means that this device holds all of it.
"""

from typing import TypeVar

import jax
from jaxtyping import Array

Axis = str | None
Tree = TypeVar("Tree")


def copies(tree: Tree, axis: Axis) -> Tree:
    """Parameters as each device's own, so that their gradient is summed over devices once and not at every use."""
    return tree if axis is None else jax.tree.map(lambda x: jax.lax.pcast(x, axis, to="varying"), tree)


def global_sum(tree: Tree, axis: Axis) -> Tree:
    """The sum over all devices of what each has summed up."""
    return tree if axis is None else jax.lax.psum(tree, axis)


def global_values(x: Array, axis: Axis) -> Array:
    """The values of all devices, one after the other."""
    return x if axis is None else jax.lax.all_gather(x, axis, tiled=True)


def own_values(x: Array, axis: Axis) -> Array:
    """What of the values of all devices is this one's."""
    if axis is None:
        return x
    size = x.shape[0] // jax.lax.axis_size(axis)
    return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(axis) * size, size)


def global_max(x: Array, axis: Axis) -> Array:
    """The largest of what each device found; no gradient."""
    x = jax.lax.stop_gradient(x)
    return x if axis is None else jax.lax.pmax(x, axis)
