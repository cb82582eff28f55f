"""The nearest of many things, pixel by pixel.

What a thing is and where rays hit it is the caller's business; hits are integers, and the nearest is the largest. On a
CPU things go by one after the other, so that the picture stays in the cache, and only as many as are in sight. A batch
of pictures goes through one loop together, as long as the fullest of them needs: for that the loop must know its batch,
which `vmap` hides from it, and is told by `custom_vmap`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from byol_explore.types import Array, PyTree

Hit = Callable[..., Array]  # of one thing and the rays u [1, W] and v [H, 1]: [H, W] int32, 0 where it is not hit


def nearest(hit: Hit, things: tuple[PyTree, ...], seen: Array, u: Array, v: Array) -> Array:
    """[H, W] the maximum of hits over things [N, ...]; those that are not `seen` [N] are known to be hit by no ray."""
    if jax.default_backend() != "cpu" or seen.size == 0:  # all at once
        return jnp.max(jax.vmap(hit, (0,) * len(things) + (None, None))(*things, u, v), axis=0, initial=0)
    order = jnp.argsort(~seen, stable=True)
    in_order = jax.tree.map(lambda x: x[order], things)
    return _over_first(hit)(in_order, jnp.sum(seen, dtype=jnp.int32), u, v)


def _over_first(hit: Hit) -> Callable[..., Array]:
    """The maximum over the first things of each picture; all that it is given has the same leading axes."""

    @custom_vmap
    def maximum(things: tuple[PyTree, ...], count: Array, u: Array, v: Array) -> Array:
        batch = count.ndim
        by_thing = jax.tree.map(lambda x: jnp.moveaxis(x, batch, 0), things)
        hits = hit
        for _ in range(batch):
            hits = jax.vmap(hits)

        def further(index: Array, best: Array) -> Array:
            thing = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index, keepdims=False), by_thing)
            return jnp.maximum(best, hits(*thing, u, v))

        return lax.fori_loop(0, jnp.max(count), further, jnp.zeros(jnp.broadcast_shapes(u.shape, v.shape), jnp.int32))

    @maximum.def_vmap
    def _(size: int, is_batched: Any, *arguments: Any) -> tuple[Array, bool]:
        spread = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (size, *x.shape)), arguments, tuple(is_batched)
        )
        return maximum(*spread), True

    return maximum
