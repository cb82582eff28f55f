"""Operations on arrays with time, batch and task axes, shared by the equations, and trees of arrays by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from byol_explore.types import AnyArray, Array, PyTree


def merge_time_batch(x: Shaped[Array, "T B *rest"]) -> Shaped[Array, "T*B *rest"]:
    """Make one axis of time and batch; all steps of the first sequence come first.

    Args:
      x: [T, B, ...].
    Returns:
      [B * T, ...].
    """
    # The batch is the axis that is spread over devices, and only the outer one of two merged axes stays spread. With
    # time outside, every device would receive the whole batch and do the work of all.
    return jnp.swapaxes(x, 0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def split_time_batch(x: Shaped[Array, "n *rest"], steps: int) -> Shaped[Array, "{steps} B *rest"]:
    """Invert `merge_time_batch`.

    Args:
      x: [B * T, ...].
      steps: T.
    Returns:
      [T, B, ...].
    """
    return jnp.swapaxes(x.reshape(-1, steps, *x.shape[1:]), 0, 1)


def masked_mean(x: Float[Array, "*n"], valid: Bool[Array, "*n"]) -> Float[Array, ""]:
    """Mean over the valid entries; 0 without any.

    Invalid entries may be NaN or infinite: neither the mean nor its gradient depends on them.

    >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
    2.0

    Args:
      x: [...] values.
      valid: [...] mask of the same shape.
    Returns:
      [] mean.
    """
    total, count = jnp.sum(jnp.where(valid, x, 0.0)), jnp.sum(valid)
    return total / jnp.maximum(count, 1)


def mean_per_task(
    x: Float[Array, " n"], task: Int[Array, " n"], valid: Bool[Array, " n"], num_tasks: int
) -> tuple[Float[Array, " tasks"], Float[Array, " tasks"]]:
    """Mean over the valid entries of each task; 0 for a task without any.

    Args:
      x: [n] values.
      task: [n] task of each value, below `num_tasks`.
      valid: [n] mask.
      num_tasks: number of tasks.
    Returns:
      Means [num_tasks], and the number of valid entries [num_tasks].
    """
    weight = jax.nn.one_hot(task, num_tasks) * valid[:, None]
    count = jnp.sum(weight, axis=0)
    return jnp.where(valid, x, 0.0) @ weight / jnp.maximum(count, 1.0), count


def where_batch(mask: AnyArray, one: PyTree, other: PyTree, *, axis: int = 0, xp: Any = jnp) -> PyTree:
    """Select between two trees of arrays with a mask over their batch axis.

    Args:
      mask: [B] bool.
      one: tree of arrays [B, ...], or [T, B, ...] with `axis=1`; taken where the mask is True.
      other: tree of the same structure, taken elsewhere.
      axis: position of the batch axis.
      xp: array namespace; NumPy keeps host arrays on the host.
    Returns:
      Tree of the same structure and shapes.
    """
    return jax.tree.map(lambda x, y: xp.where(mask.reshape(-1, *[1] * (x.ndim - axis - 1)), x, y), one, other)


def first_nonfinite(tree: PyTree) -> str | None:
    """Name the first array of a tree with a NaN or an infinity, such as "layers.0.weight"; None without any."""
    for name, leaf in named_leaves(tree).items():
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.all(np.isfinite(leaf)):
            return name
    return None


class StructureError(ValueError):
    """Named arrays do not fit a template."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree by name, such as "layers.0.weight"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def from_named_leaves(arrays: dict[str, Any], template: PyTree) -> PyTree:
    """Invert `named_leaves`.

    Args:
      arrays: by name.
      template: tree of arrays, or of their shapes and dtypes.
    Returns:
      The arrays in the structure of the template. Raises a StructureError that names the first difference.
    """
    leaves = named_leaves(template)
    for name, like in leaves.items():
        array = arrays.get(name)
        if array is None or (array.shape, array.dtype) != (like.shape, like.dtype):
            found = "missing" if array is None else _describe(array)
            raise StructureError(f"{name} is {found}, not {_describe(like)}")
    if extra := [name for name in arrays if name not in leaves]:
        raise StructureError(f"it also has {extra[0]}")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in leaves])


def _describe(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"
