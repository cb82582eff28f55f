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

from byol_explore.envs.gymnasium_spaces import SpacePath, convert_action_space, convert_observation_space, iter_leaves
from byol_explore.errors import UserError, unknown_name
from byol_explore.spaces import ActionSpec, ArraySpace, Grid, Spaces, Tokens, Vector
from byol_explore.types import Action, PyTree, numpy_tree_map
from byol_explore.utils.formatting import one_line

NAME = "yours"  # of the environment, in messages


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
        if isinstance(observation_space, Space):
            self._observation_space = observation_space
            observation, self._to_observation = convert_observation_space(observation_space, NAME, self.symbols)
        elif _is_own_space(observation_space):
            observation, self._observation_space = observation_space, _gymnasium_space(observation_space)
            self._to_observation = lambda flat: jax.tree.map(lambda kind, x: x.astype(kind.dtype), observation, flat)
        else:
            raise UserError(
                f"the observation space is {one_line(observation_space, 80)}: it must be a space of Gymnasium, or an "
                "Image, Vector, Grid or Tokens of byol_explore.spaces, or a flat dict of them"
            )
        if isinstance(action_space, Space):
            self._action_space = action_space
            action, _, self._to_action = convert_action_space(action_space, NAME)
        elif isinstance(action_space, ActionSpec):
            action, self._action_space = action_space, _gymnasium_space(action_space)
            self._to_action = lambda flat: Action(flat[0].astype(np.int32), flat[1].astype(np.float32))
        else:
            raise UserError(
                f"the action space is {one_line(action_space, 80)}: it must be a space of Gymnasium, or an ActionSpec "
                "of byol_explore.spaces"
            )
        self.spec = Spaces(observation, action, NAME)

    def observations(self, given: Any, what: str, lead: tuple[int, int]) -> PyTree:
        """Return observations [T, B, ...] in the form that encoders read; `what` names them in messages."""
        read = _split(self._to_observation(_merge(self._observation_space, given, what, lead)), lead)
        jax.tree.map(lambda kind, x: _check_values(kind, x, what), self.spec.observation, read)
        return read

    def actions(self, given: Any, what: str, lead: tuple[int, int]) -> Action:
        """Return actions [T, B, ...] in the form that policies sample."""
        return _split(self._to_action(_merge(self._action_space, given, what, lead)), lead)


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
    _check_shape(flags, lead, what)
    if flags.dtype.kind not in "biuf":
        raise UserError(f"{what} is of dtype {flags.dtype}: it must be bool")
    wrong = flags[(flags != 0) & (flags != 1)]
    if wrong.size:
        raise UserError(f"{what} has {wrong.flat[0]} in it: it must be True or False everywhere")
    return flags.astype(bool)


def _is_symbol_count(count: Any) -> bool:
    return isinstance(count, int | np.integer) and not isinstance(count, bool) and int(count) in range(1, 257)


def _is_own_space(space: Any) -> bool:
    kinds = space.values() if isinstance(space, dict) and space else [space]
    return all(isinstance(kind, ArraySpace) for kind in kinds)


def _gymnasium_space(space: Any) -> Space[Any]:
    """Return the space of Gymnasium whose arrays have the form of one of our own spaces."""
    match space:
        case dict():
            return spaces.Dict({name: _gymnasium_space(kind) for name, kind in space.items()})
        case ActionSpec():
            discrete = spaces.MultiDiscrete(np.asarray(space.discrete)) if space.discrete else spaces.Box(0, 0, (0,))
            return spaces.Tuple([discrete, spaces.Box(-np.inf, np.inf, (space.continuous,))])
        case Vector():
            return spaces.Box(-np.inf, np.inf, space.shape)
        case Tokens():
            return spaces.MultiDiscrete(np.full(space.length, space.vocab_size))
    return spaces.Box(0, 255, space.shape, np.uint8)


def _entry(given: Any, key: str | int, what: str, keys: list[Any]) -> Any:
    try:
        return given[key]
    except (KeyError, IndexError, TypeError):
        names = ", ".join(map(repr, keys))
        raise UserError(f"{what} has no entry {key!r}: it must have {names}") from None


def _merge(space: Space[Any], given: Any, what: str, lead: tuple[int, int]) -> Any:
    """Check arrays [T, B, ...] against a space and return them as [T * B, ...], nested like the space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        parts = {
            key: _merge(part, _entry(given, key, what, list(inner)), f"{what}[{key!r}]", lead)
            for key, part in inner.items()
        }
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    array = to_numpy(given)
    _check_shape(array, (*lead, *(space.shape or ())), what)
    _check_dtype(array, space, what)
    return array.reshape(lead[0] * lead[1], *array.shape[2:])


def _split(tree: PyTree, lead: tuple[int, int]) -> PyTree:
    return jax.tree.map(lambda x: np.asarray(x).reshape(*lead, *np.shape(x)[1:]), tree)


def _check_shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise UserError(f"{what} is of shape {array.shape}: it must be {shape}")


def _check_dtype(array: np.ndarray, space: Space[Any], what: str) -> None:
    """Raise a UserError if an array of this dtype or with these values cannot be of a space."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        if array.dtype.kind not in "biu":
            raise UserError(f"{what} is of dtype {array.dtype}: it must be whole numbers, such as int64")
        return _check_categories(array, space, what)
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and array.dtype != np.uint8:
            raise UserError(f"{what} is of dtype {array.dtype}: it must be uint8")
        if array.dtype.kind not in "biuf":
            raise UserError(f"{what} is of dtype {array.dtype}: it must be numbers, such as {space.dtype}")
        return _check_finite(array, what)
    if array.dtype.kind not in "UTO":  # of a Text
        raise UserError(f"{what} is of dtype {array.dtype}: it must be texts")
    return None


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
