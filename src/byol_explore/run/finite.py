"""What must stay finite."""

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.types import PyTree


def first_not_finite(tree: PyTree) -> str | None:
    """The name of the first array that has a NaN or an infinity in it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.all(np.isfinite(leaf)):
            return jax.tree_util.keystr(path, simple=True, separator=".")
    return None
