"""Time and environments as one axis.

Environments go first: they are what is spread over devices, and of two axes that become one only the outer one stays
spread. The other way round every device would be sent the whole batch, and do the work of all.
"""

import jax.numpy as jnp

from byol_explore.types import Array


def flat(x: Array) -> Array:
    """[B * T, ...] of [T, B, ...]."""
    return jnp.swapaxes(x, 0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def timed(x: Array, steps: int) -> Array:
    """[T, B, ...] of [B * T, ...]."""
    return jnp.swapaxes(x.reshape(-1, steps, *x.shape[1:]), 0, 1)
