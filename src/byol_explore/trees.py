"""Trees of NumPy arrays, for those who have no JAX: dicts and (named) tuples of arrays, and None for nothing."""

from collections.abc import Callable
from typing import Any


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A function of the arrays at each place of equal trees, in a tree like the first."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {name: map_arrays(function, part, *(other[name] for other in others)) for name, part in tree.items()}
    if isinstance(tree, tuple):
        parts = [map_arrays(function, *each) for each in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)
