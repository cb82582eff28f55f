"""What lies outside of Gymnasium's spaces: environments answer it more often than one would think."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from byol_explore.envs.adapters.gymnasium_spaces import Place, follow, leaves
from byol_explore.errors import one_line


def doubts_of(space: Space[Any], env: str) -> Callable[[Any], list[str]]:
    """Says of observations as the vector environment gives them which entries lie outside of their spaces."""
    bounded = [(at, part, bounds) for at, part in leaves(space, Place(env, "observation")) if (bounds := _bounds(part))]

    def doubts(native: Any) -> list[str]:
        return [_words(at, part) for at, part, bounds in bounded if _is_outside(follow(native, at.path), *bounds)]

    return doubts


def _bounds(space: Space[Any]) -> tuple[Any, Any] | None:
    """Lowest and highest numbers; None where every number that can be said is inside."""
    match space:
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return 0, 1
        case spaces.Box() if not _takes_all(space):
            return space.low, space.high
    return None


def _takes_all(space: spaces.Box) -> bool:
    if space.dtype.kind not in "iu":
        return bool(np.all(np.isinf(space.low) & np.isinf(space.high)))
    limits = np.iinfo(space.dtype.name)
    return bool(np.all(space.low == limits.min) and np.all(space.high == limits.max))


def _is_outside(seen: np.ndarray, low: Any, high: Any) -> bool:
    return bool(np.any(seen < low) or np.any(seen > high))


def _words(at: Place, space: Space[Any]) -> str:
    entry = f"entry {at.name!r} of its observation" if at.path else "its observation"
    return f"{entry} lies outside of {one_line(space, 100)}"
