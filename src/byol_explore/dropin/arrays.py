"""Arrays of NumPy, JAX or PyTorch in, the same kind out.

PyTorch is never imported here: whoever gives a tensor has done so. What comes in may be memory that its owner writes
again, so nothing keeps it: `stream.py` copies what it needs.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer  # pyright: ignore[reportMissingImports]

from byol_explore.errors import UserError


def to_numpy(x: Any) -> np.ndarray:
    """As NumPy has it, perhaps the same memory."""
    if isinstance(x, Tracer):
        raise UserError("an array inside of jit, grad or vmap was given: curiosity is asked outside, with its values")
    if _is_tensor(x):
        if (layout := str(x.layout)) != "torch.strided":
            raise UserError(f"a tensor of layout {layout} was given: it must be a dense one, as x.to_dense() makes it")
        x = x.detach().cpu()
        return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    try:
        array = np.asarray(x)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    except ValueError:
        raise UserError(
            "a list was given whose rows differ in length: it must be an array, or lists like one"
        ) from None


def like(example: Any) -> Callable[[np.ndarray], Any]:
    """Makes of NumPy's arrays, which nobody else may hold, the kind of an example, on the device where it is."""
    leaf = _first_leaf(example)
    if _is_tensor(leaf):
        return lambda result: sys.modules["torch"].from_numpy(result).to(leaf.device)
    if isinstance(leaf, jax.Array):
        return lambda result: jax.device_put(result, next(iter(leaf.devices())))
    return lambda result: result


def are_texts(tree: Any) -> bool:
    """Whether it is a text of each environment, as Gymnasium's vector environments have them, and no nested space."""
    return isinstance(tree, tuple) and bool(tree) and all(isinstance(part, str) for part in tree)


def _is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _first_leaf(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return _first_leaf(next(iter(tree.values()), None))
    return _first_leaf(tree[0]) if isinstance(tree, tuple | list) and tree else tree
