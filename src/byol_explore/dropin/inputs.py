"""Check callers' arrays and spaces and convert them to the package's own.

Spaces are Gymnasium's, or those of `byol_explore.spaces` with an `ActionSpec`. Arrays are NumPy's, JAX's or PyTorch's,
and results are of the same library. Leading axes are time and environments, [T, B].
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import Space, spaces
from jax.core import Tracer  # pyright: ignore[reportMissingImports]

from byol_explore.curiosity.inputs import NAME, check_dtype, check_shape, convert_spaces, find_entry
from byol_explore.envs.gymnasium_spaces import SpacePath, iter_leaves
from byol_explore.errors import UserError, unknown_name
from byol_explore.spaces import ArraySpace, Grid, Vector
from byol_explore.types import Action, PyTree, numpy_tree_map
from byol_explore.utils.formatting import one_line


class Transitions(NamedTuple):
    """Transitions of every environment in NumPy, perhaps in the caller's memory: `stream.py` copies what it keeps."""

    observation: PyTree  # [T, B, ...]
    action: Action  # [T, B, ...]
    next_observation: PyTree  # [T, B, ...]
    done: np.ndarray  # [T, B] terminated or truncated
    skipped: np.ndarray  # [T, B] steps that only reset an environment


class SpaceReader:
    """Checks and converts observations and actions of two spaces."""

    def __init__(
        self, observation_space: Any, action_space: Any, symbols: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.symbols = parse_symbols(symbols, observation_space)
        self._converter = convert_spaces(observation_space, action_space, self.symbols)
        self.spec = self._converter.spec

    def observations(self, given: Any, what: str, lead: tuple[int, int]) -> PyTree:
        """Return observations [T, B, ...] in the form that encoders read; `what` names them in messages."""
        native = _merge(self._converter.observation_space, given, what, lead)
        read = _split(self._converter.to_observation(native), lead)
        jax.tree.map(lambda kind, x: _check_values(kind, x, what), self.spec.observation, read)
        return read

    def actions(self, given: Any, what: str, lead: tuple[int, int]) -> Action:
        """Return actions [T, B, ...] in the form that policies sample."""
        native = _merge(self._converter.action_space, given, what, lead)
        return _split(self._converter.to_action(native), lead)


def parse_symbols(given: Any, space: Any) -> dict[str, tuple[int, ...]]:
    """Check the numbers of symbols per channel, by the name of the grid's entry in the space ("" without entries)."""
    if not isinstance(given, Mapping | None):
        raise UserError(f"symbol_counts is {one_line(given, 80)}: it must be a dict, such as {{'image': (11, 6, 4)}}")
    found = iter_leaves(space, SpacePath(NAME, "observation")) if isinstance(space, Space) else ()
    grids = {
        at.name: part.shape for at, part in found
        if isinstance(part, spaces.Box) and part.dtype == np.uint8 and len(part.shape) == 3
    }  # fmt: skip
    for name, counts in (given or {}).items():
        if name not in grids:
            accepted = [repr(grid) for grid in grids] or ["(no Box of bytes with three axes)"]
            raise unknown_name("entry of symbol_counts", name, accepted)
        channels = grids[name][-1]
        numbers = list(counts) if isinstance(counts, tuple | list | np.ndarray) else []
        if len(numbers) != channels or not all(_is_symbol_count(count) for count in numbers):
            raise UserError(
                f"symbol_counts[{name!r}] is {one_line(counts, 80)}: it must be {channels} whole numbers from 1 to "
                "256, one for each channel"
            )
    return {name: tuple(map(int, counts)) for name, counts in (given or {}).items()}


def parse_flags(given: Any, what: str, lead: tuple[int, ...]) -> np.ndarray:
    """Return booleans, or zeros and ones, of the shape `lead` as a new array of bool."""
    flags = to_numpy(given)
    check_shape(flags, lead, what)
    if flags.dtype.kind not in "biuf":
        raise UserError(f"{what} is of dtype {flags.dtype}: it must be bool")
    wrong = flags[(flags != 0) & (flags != 1)]
    if wrong.size:
        raise UserError(f"{what} has {wrong.flat[0]} in it: it must be True or False everywhere")
    return flags.astype(bool)


def _is_symbol_count(count: Any) -> bool:
    return isinstance(count, int | np.integer) and not isinstance(count, bool) and int(count) in range(1, 257)


def _merge(space: Space[Any], given: Any, what: str, lead: tuple[int, int]) -> Any:
    """Check arrays [T, B, ...] against a space and return them as [T * B, ...], nested like the space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        parts = {
            key: _merge(part, find_entry(given, key, what, list(inner)), f"{what}[{key!r}]", lead)
            for key, part in inner.items()
        }
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    array = to_numpy(given)
    check_shape(array, (*lead, *(space.shape or ())), what)
    check_dtype(array.dtype, space, what)
    _check_values_of(space, array, what)
    return array.reshape(lead[0] * lead[1], *array.shape[2:])


def _split(tree: PyTree, lead: tuple[int, int]) -> PyTree:
    return jax.tree.map(lambda x: np.asarray(x).reshape(*lead, *np.shape(x)[1:]), tree)


def _check_values_of(space: Space[Any], array: np.ndarray, what: str) -> None:
    """Raise a UserError if an array of the right dtype has values in it that cannot be of a space."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        _check_categories(array, space, what)
    elif isinstance(space, spaces.Box):
        _check_finite(array, what)


def _check_categories(array: np.ndarray, space: Space[Any], what: str) -> None:
    low = getattr(space, "start", 0)
    counts = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(space))
    high = low + (getattr(space, counts) if counts else 2) - 1
    wrong = (array < low) | (array > high)
    if np.any(wrong):
        raise UserError(f"{what} has {array[wrong].flat[0]} in it: it must lie in {one_line(space, 100)}")


def _check_finite(array: np.ndarray, what: str) -> None:
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise UserError(f"{what} has {array[place]} at {list(place)}: it must be finite everywhere")


def _check_values(kind: ArraySpace, array: np.ndarray, what: str) -> None:
    if isinstance(kind, Vector):
        _check_finite(array, what)  # float64 may overflow float32
    if isinstance(kind, Grid) and np.any(wrong := array >= np.asarray(kind.symbols_per_channel)):
        raise UserError(
            f"{what} has the symbol {array[wrong].flat[0]} in it: symbols must be below {kind.symbols_per_channel}"
        )


def to_numpy(x: Any) -> np.ndarray:
    """Return an array of NumPy, JAX or PyTorch, or nested lists, in NumPy; it may share memory."""
    if isinstance(x, Tracer):
        raise UserError("an array inside of jit, grad or vmap was given: curiosity is asked outside, with its values")
    if _is_tensor(x):
        if (layout := str(x.layout)) != "torch.strided":
            raise UserError(f"a tensor of layout {layout} was given: it must be a dense one, as x.to_dense() makes it")
        x = x.detach().cpu()
        return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    try:
        array = np.array(x, object) if is_text_batch(x) else np.asarray(x)  # texts of any length
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    except ValueError:
        raise UserError(
            "a list was given whose rows differ in length: it must be an array, or lists like one"
        ) from None


def map_arrays(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to each array of nested dicts and tuples; a tuple of texts is one array."""
    # jax.tree.map refuses a dict beside an OrderedDict, and environments return both.
    return numpy_tree_map(function, tree, *others, is_leaf=is_text_batch)


def converter_to(example: Any) -> Callable[[np.ndarray], Any]:
    """Return a function from new NumPy arrays to the library and device of an example."""
    leaf = _first_leaf(example)
    if _is_tensor(leaf):
        return lambda result: sys.modules["torch"].from_numpy(result).to(leaf.device)
    if isinstance(leaf, jax.Array):
        return lambda result: jax.device_put(result, next(iter(leaf.devices())))
    return lambda result: result


def is_text_batch(tree: Any) -> bool:
    """Return whether a tuple holds a text per environment, as in Gymnasium's vector environments, not nested spaces."""
    return isinstance(tree, tuple) and bool(tree) and all(isinstance(part, str) for part in tree)


def _is_tensor(x: Any) -> bool:
    # A caller that has a tensor has imported PyTorch; it is never imported here.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _first_leaf(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return _first_leaf(next(iter(tree.values()), None))
    return _first_leaf(tree[0]) if isinstance(tree, tuple | list) and tree else tree
