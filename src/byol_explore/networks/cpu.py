"""The residual network's pieces in the forms that XLA's CPU backend runs fast: equal values, other gradients.

XLA compiles the plain layers well for accelerators, but on a CPU it is slow in four places, each with its remedy:

- The weight gradient of a convolution. Here a 3 x 3 convolution is one matrix product from the three rows above
  each other to the three columns next to each other, [3 inputs] -> [3 outputs], and an addition of shifted slices.
  Both gradients are then products of the same shape, and nothing is ever unfolded nine times.
- The gradient of max-pooling. Here the maximum is taken along the columns, then along the rows, and its gradient
  is a choice between slices.
- Memory. Activations of hundreds of images do not fit into the cache and are new pages from the operating system at
  every call. Here the network takes a few images at a time.
- Rearranging pixels. A transposition is fused with the arithmetic after it, whose loop then works out the place of
  every pixel by itself, twenty times as slow as moving the bytes. Here it is kept `apart`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

CHUNK = 8  # images at a time: their activations stay in the cache, and each product is still worth two threads
FEW = 8  # input channels; below this several columns share one row of the matrix product
COLUMNS = 4  # that share it

_plain: ContextVar[bool] = ContextVar("plain", default=False)


def chosen() -> bool:
    """Whether to trace these forms: on the CPU, and not within `plain_layers`."""
    return jax.default_backend() == "cpu" and not _plain.get()


@contextmanager
def plain_layers() -> Iterator[None]:
    """Trace the accelerators' form on the CPU too, to compare with it."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def in_chunks(
    function: Callable[[Any, Array], Array], network: Any, images: Shaped[Array, "n ..."]
) -> Shaped[Array, "n ..."]:
    """A network applied to a few images at a time, in equal chunks; the last is filled up with zeros.

    The gradient computes a chunk's activations again: quicker than to fetch them from memory.
    """
    count = images.shape[0]
    chunks = -(-count // CHUNK)
    if chunks <= 1:
        return function(network, images)
    size = -(-count // chunks)
    filled = _pad(images, 0, 0, chunks * size - count).reshape(chunks, size, *images.shape[1:])
    again = jax.checkpoint(function, prevent_cse=False)
    out = jax.lax.map(lambda chunk: again(network, chunk), filled)
    return out.reshape(chunks * size, *out.shape[2:])[:count]


def apart(rearrange: Callable[[Array], Array], x: Shaped[Array, "..."]) -> Array:
    """What a function makes of bytes, computed by itself and not inside of the loops that use it.

    XLA's CPU backend has no barrier that lasts until it fuses, but it does not fuse through a branch, and does not know
    that this one is always taken.
    """
    if not chosen():
        return rearrange(x)
    shape = jax.eval_shape(rearrange, x)
    is_byte = x.reshape(-1)[0].astype(jnp.int32) < 256
    return jax.lax.cond(is_byte, rearrange, lambda _: jnp.zeros(shape.shape, shape.dtype), x)


def conv(x: Float[Array, "n H W inputs"], weight: Float[Array, "3 3 inputs outputs"]) -> Float[Array, "n H W outputs"]:
    """A 3 x 3 convolution, stride 1, same padding, without bias."""
    if weight.shape[2] < FEW:
        return _conv_of_few(x, weight)
    # y[h, w] = sum_ij x[h+i-1, w+j-1] weight[i, j]: rows i are gathered before the product, columns j added after it.
    inputs, outputs = weight.shape[2:]
    matrix = weight[:, ::-1].transpose(0, 2, 1, 3).reshape(3 * inputs, 3 * outputs)
    return _add_neighbours(_neighbours(x, 1) @ matrix, 2)


def _conv_of_few(x: Array, weight: Array) -> Array:
    """For images of bytes: a block of columns, with its neighbours, times a matrix of shifted kernels."""
    count, height, width, inputs = x.shape
    blocks = -(-width // COLUMNS)
    padded = _pad(_pad(x, 1, 1, 1), 2, 1, blocks * COLUMNS - width + 1)
    own, ahead = (
        padded[:, :, i : i + blocks * COLUMNS].reshape(count, height + 2, blocks, COLUMNS * inputs) for i in (0, 2)
    )
    block = jnp.concatenate([own, ahead[..., -2 * inputs :]], axis=-1)
    rows = jnp.concatenate([block[:, i : i + height] for i in range(3)], axis=-1)
    kernels = jnp.stack([_pad(weight, 1, i, COLUMNS - 1 - i) for i in range(COLUMNS)], axis=3)
    out = rows @ kernels.reshape(rows.shape[-1], -1)
    return out.reshape(count, height, blocks * COLUMNS, -1)[:, :, :width]


def max_pool(x: Float[Array, "n H W channels"]) -> Float[Array, "n h w channels"]:
    """3 x 3 maximum with stride 2, same padding.

    Columns come before rows, so that among equal values the gradient goes to the first in reading order, as the
    gradient of `reduce_window` does.
    """
    return _max_along(_max_along(x, 2), 1)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _max_along(x: Array, axis: int) -> Array:
    first, second, third = _windows(x, axis)
    return jnp.maximum(jnp.maximum(first, second), third)


def _max_forward(x: Array, axis: int) -> tuple[Array, Array]:
    return _max_along(x, axis), x


def _max_backward(axis: int, x: Array, gradient: Array) -> tuple[Array]:
    first, second, third = _windows(x, axis)
    is_first = (first >= second) & (first >= third)
    is_second = ~is_first & (second >= third)
    to_first, to_second = jnp.where(is_first, gradient, 0.0), jnp.where(is_second, gradient, 0.0)
    to_third = jnp.where(is_first | is_second, 0.0, gradient)
    even, odd = _pad(to_first, axis, 0, 1) + _pad(to_third, axis, 1, 0), _pad(to_second, axis, 0, 1)
    both = jnp.stack([even, odd], axis + 1).reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])
    before = _before(x.shape[axis])
    return (jax.lax.slice_in_dim(both, before, before + x.shape[axis], axis=axis),)


_max_along.defvjp(_max_forward, _max_backward)


def _windows(x: Array, axis: int) -> tuple[Array, Array, Array]:
    """First, second and third value of each window: even, odd and the next even places of the padded axis."""
    size = x.shape[axis]
    windows, before = -(-size // 2), _before(size)
    padded = _pad(x, axis, before, 2 * windows + 2 - before - size, -jnp.inf)
    pairs = padded.reshape(*x.shape[:axis], windows + 1, 2, *x.shape[axis + 1 :])
    even, odd = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in (0, 1))
    return _pad(even, axis, 0, -1), _pad(odd, axis, 0, -1), _pad(even, axis, -1, 0)


def _before(size: int) -> int:
    """What same padding puts before an axis: of an even one the only padding is after it."""
    return size % 2


def _neighbours(x: Array, axis: int) -> Array:
    """The values before, at and after each place, as three times as many channels."""
    return jnp.concatenate([_pad(x, axis, 1, -1), x, _pad(x, axis, -1, 1)], axis=-1)


def _add_neighbours(x: Array, axis: int) -> Array:
    """The transpose of `_neighbours`: each third of the channels goes back to where it came from."""
    before, at, after = jnp.split(x, 3, axis=-1)
    return _pad(before, axis, -1, 1) + at + _pad(after, axis, 1, -1)


def _pad(x: Array, axis: int, before: int, after: int, value: float = 0.0) -> Array:
    """Lengthen an axis by a value, or shorten it where negative."""
    widths = [(before, after, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)]
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), widths)
