"""The residual network's layers in forms that XLA's CPU backend compiles to fast code.

They return the same values as the plain layers, and the same gradients up to rounding. XLA compiles the plain layers
well for accelerators. On a CPU it is slow in four places:

- The weight gradient of a convolution. Here a 3 x 3 convolution is one matrix product from three stacked rows to three
  adjacent columns, [3 inputs] -> [3 outputs], and a sum of shifted slices. Both gradients are products of the same
  shape, and no image is unfolded nine times.
- The gradient of max-pooling. Here the maximum is taken along the columns, then along the rows, and its gradient
  selects between slices.
- Memory. The activations of hundreds of images do not fit into the cache, and take new pages from the operating system
  at every call. Here the network runs on a few images at a time (`map_in_chunks`).
- Rearranging pixels. XLA fuses a transposition with the arithmetic after it, and the fused loop computes the address of
  every pixel: twenty times slower than moving the bytes. `fusion_barrier` prevents that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

CHUNK = 8  # images per chunk: activations stay in the cache, and a product still occupies two threads
FEW_CHANNELS = 8  # below this number of input channels, several columns share one row of the matrix product
COLUMNS = 4  # columns per row then

_disabled: ContextVar[bool] = ContextVar("disabled", default=False)


def use_cpu_kernels() -> bool:
    """Return True on the CPU backend, outside `disable_cpu_kernels`."""
    return jax.default_backend() == "cpu" and not _disabled.get()


@contextmanager
def disable_cpu_kernels() -> Iterator[None]:
    """Trace the plain layers on the CPU too."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


def map_in_chunks(
    function: Callable[[Any, Array], Array], network: Any, images: Shaped[Array, "n ..."]
) -> Shaped[Array, "n ..."]:
    """Apply a network to images in chunks of equal size, at most CHUNK; the last one is padded with zeros.

    Args:
      function: maps (network, images [chunk, ...]) to [chunk, ...].
      network: parameters.
      images: [n, ...].
    Returns:
      [n, ...].
    """
    count = images.shape[0]
    chunks = -(-count // CHUNK)
    if chunks <= 1:
        return function(network, images)
    size = -(-count // chunks)
    padded = _pad(images, 0, 0, chunks * size - count).reshape(chunks, size, *images.shape[1:])
    # The gradient recomputes a chunk's activations: faster than fetching them from memory.
    recomputed = jax.checkpoint(function, prevent_cse=False)
    out = jax.lax.map(lambda chunk: recomputed(network, chunk), padded)
    return out.reshape(chunks * size, *out.shape[2:])[:count]


def fusion_barrier(rearrange: Callable[[Array], Array], x: Shaped[Array, "..."]) -> Array:
    """Compute `rearrange(x)` of bytes behind a fusion barrier."""
    # Fused into its consumer it is twenty times slower on CPU. XLA's CPU backend drops optimization barriers before it
    # fuses, but it does not fuse through a branch, and cannot tell that this one is always taken.
    if not use_cpu_kernels():
        return rearrange(x)
    shape = jax.eval_shape(rearrange, x)
    is_byte = x.reshape(-1)[0].astype(jnp.int32) < 256
    return jax.lax.cond(is_byte, rearrange, lambda _: jnp.zeros(shape.shape, shape.dtype), x)


def conv(x: Float[Array, "n H W inputs"], weight: Float[Array, "3 3 inputs outputs"]) -> Float[Array, "n H W outputs"]:
    """3 x 3 convolution, stride 1, same padding, without bias."""
    if weight.shape[2] < FEW_CHANNELS:
        return _conv_few_channels(x, weight)
    # y[h, w] = sum_ij x[h+i-1, w+j-1] weight[i, j]: rows i are gathered before the product, columns j added after it.
    inputs, outputs = weight.shape[2:]
    matrix = weight[:, ::-1].transpose(0, 2, 1, 3).reshape(3 * inputs, 3 * outputs)
    return _add_neighbors(_neighbors(x, 1) @ matrix, 2)


def _conv_few_channels(x: Array, weight: Array) -> Array:
    """Convolve as a product of blocks of columns, with their neighbors, and a matrix of shifted kernels."""
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
    """3 x 3 max-pooling with stride 2, same padding."""
    # Columns before rows: among equal values the gradient goes to the first one in reading order, as in reduce_window.
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
    """First, second and third value of each window: even, odd and next even positions of the padded axis."""
    size = x.shape[axis]
    windows, before = -(-size // 2), _before(size)
    padded = _pad(x, axis, before, 2 * windows + 2 - before - size, -jnp.inf)
    pairs = padded.reshape(*x.shape[:axis], windows + 1, 2, *x.shape[axis + 1 :])
    even, odd = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in (0, 1))
    return _pad(even, axis, 0, -1), _pad(odd, axis, 0, -1), _pad(even, axis, -1, 0)


def _before(size: int) -> int:
    """Same padding before an axis: 1 for an odd size; an even size is padded after it only."""
    return size % 2


def _neighbors(x: Array, axis: int) -> Array:
    """Concatenate the values before, at and after each position along the channels: [..., 3 c]."""
    return jnp.concatenate([_pad(x, axis, 1, -1), x, _pad(x, axis, -1, 1)], axis=-1)


def _add_neighbors(x: Array, axis: int) -> Array:
    """Transpose of `_neighbors`: add each third of the channels to the position it came from."""
    before, at, after = jnp.split(x, 3, axis=-1)
    return _pad(before, axis, -1, 1) + at + _pad(after, axis, 1, -1)


def _pad(x: Array, axis: int, before: int, after: int, value: float = 0.0) -> Array:
    """Pad an axis with a value; negative widths cut it."""
    widths = [(before, after, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)]
    return jax.lax.pad(x, jnp.asarray(value, x.dtype), widths)
