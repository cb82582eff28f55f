"""What callers give, read into the package's own terms; what does not fit is refused in one line.

Spaces are Gymnasium's, or the kinds of `byol_explore.spaces` with an `ActionSpec`. Leading axes are time and
environments, [T, B].
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import Space, spaces

from byol_explore.dropin.arrays import to_numpy
from byol_explore.envs.adapters.gymnasium_spaces import Place, actions_of, leaves, observations_of
from byol_explore.errors import UserError, one_line, unknown
from byol_explore.spaces import ActionSpec, Grid, Kind, Spaces, Tokens, Vector
from byol_explore.types import Action, PyTree

NAME = "yours"  # of the environment, in messages


class Transitions(NamedTuple):
    """What happened in every environment, [T, B, ...] and NumPy's; perhaps memory of others."""

    observation: PyTree
    action: Action
    next_observation: PyTree
    ended: np.ndarray  # an episode, by termination or truncation
    skipped: np.ndarray  # steps in which nothing happened but that an environment was reset


class Reader:
    """Reads transitions of two spaces."""

    def __init__(
        self, observation_space: Any, action_space: Any, symbols: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.symbols = read_symbols(symbols, observation_space)
        self._observations = self._actions = None
        observation, action = observation_space, action_space
        if isinstance(observation_space, Space):
            self._observations = observations_of(observation_space, NAME, self.symbols)
            observation = self._observations.spec
        elif not _are_kinds(observation_space):
            raise UserError(
                f"the observation space is {one_line(observation_space, 80)}: it must be a space of Gymnasium, or an "
                "Image, Vector, Grid or Tokens of byol_explore.spaces, or a flat dict of them"
            )
        if isinstance(action_space, Space):
            self._actions = actions_of(action_space, NAME)
            action = self._actions.spec
        elif not isinstance(action_space, ActionSpec):
            raise UserError(
                f"the action space is {one_line(action_space, 80)}: it must be a space of Gymnasium, or an ActionSpec "
                "of byol_explore.spaces"
            )
        self.spec = Spaces(observation, action, NAME)

    def observations(self, given: Any, what: str, lead: tuple[int, int]) -> PyTree:
        """[T, B, ...] as encoders take them."""
        if self._observations is None:
            kinds = self.spec.observation
            read = (
                {name: _kind(kind, _entry(given, name, what, list(kinds)), f"{what}[{name!r}]", lead)
                 for name, kind in kinds.items()}
                if isinstance(kinds, dict) else _kind(kinds, given, what, lead)
            )  # fmt: skip
        else:
            flat = _flat(self.observation_space, given, what, lead)
            read = _timed(self._observations.read(flat), lead)
        jax.tree.map(lambda kind, x: _check_values(kind, x, what), self.spec.observation, read)
        return read

    def actions(self, given: Any, what: str, lead: tuple[int, int]) -> Action:
        """[T, B, ...] as a policy would say them."""
        if self._actions is not None:
            return _timed(self._actions.read(_flat(self.action_space, given, what, lead)), lead)
        if not isinstance(given, tuple) or len(given) != 2:
            raise UserError(f"{what} is of type {type(given).__name__}: it must be an Action of byol_explore.types")
        spec: ActionSpec = self.spec.action
        discrete = spaces.MultiDiscrete(np.asarray(spec.discrete)) if spec.discrete else spaces.Box(0, 0, (0,))
        parts = {"discrete": discrete, "continuous": spaces.Box(-np.inf, np.inf, (spec.continuous,))}
        read = [
            _flat(part, array, f"{what}.{name}", lead) for array, (name, part) in zip(given, parts.items(), strict=True)
        ]
        return _timed(Action(read[0].astype(np.int32), read[1].astype(np.float32)), lead)


def read_symbols(given: Any, space: Any) -> dict[str, tuple[int, ...]]:
    """How many symbols there are in each channel, by the name of the entry; a UserError if a space has no such grid."""
    if not isinstance(given, Mapping | None):
        raise UserError(f"symbols is {one_line(given, 80)}: it must be a dict, such as {{'image': (11, 6, 4)}}")
    found = leaves(space, Place(NAME, "observation")) if isinstance(space, Space) else ()
    grids = {
        at.name: part.shape for at, part in found
        if isinstance(part, spaces.Box) and part.dtype == np.uint8 and len(part.shape) == 3
    }  # fmt: skip
    for name, counts in (given or {}).items():
        if name not in grids:
            accepted = [repr(grid) for grid in grids] or ["(no Box of bytes with three axes)"]
            raise unknown("entry of symbols", name, accepted)
        channels = grids[name][-1]
        numbers = list(counts) if isinstance(counts, tuple | list | np.ndarray) else []
        if len(numbers) != channels or not all(_is_count(count) for count in numbers):
            raise UserError(
                f"symbols[{name!r}] is {one_line(counts, 80)}: it must be {channels} whole numbers from 1 to 256, one "
                "for each channel"
            )
    return {name: tuple(map(int, counts)) for name, counts in (given or {}).items()}


def read_flags(given: Any, what: str, lead: tuple[int, ...]) -> np.ndarray:
    """Booleans, or zeros and ones, as a new array."""
    flags = to_numpy(given)
    if flags.shape != lead:
        raise UserError(f"{what} is of shape {flags.shape}: it must be {lead}")
    if flags.dtype.kind not in "biuf":
        raise UserError(f"{what} is of dtype {flags.dtype}: it must be bool")
    wrong = flags[(flags != 0) & (flags != 1)]
    if wrong.size:
        raise UserError(f"{what} has {wrong.flat[0]} in it: it must be True or False everywhere")
    return flags.astype(bool)


def _is_count(count: Any) -> bool:
    """Whether bytes can tell so many symbols apart."""
    return isinstance(count, int | np.integer) and not isinstance(count, bool) and int(count) in range(1, 257)


def _are_kinds(space: Any) -> bool:
    kinds = space.values() if isinstance(space, dict) and space else [space]
    return all(isinstance(kind, Kind) for kind in kinds)


def _entry(given: Any, key: str | int, what: str, keys: list[Any]) -> Any:
    try:
        return given[key]
    except (KeyError, IndexError, TypeError):
        names = ", ".join(map(repr, keys))
        raise UserError(f"{what} has no entry {key!r}: it must have {names}") from None


def _flat(space: Space[Any], given: Any, what: str, lead: tuple[int, int]) -> Any:
    """Arrays [T * B, ...] of a space, nested as it is."""
    match space:
        case spaces.Dict():
            keys = list(space.spaces)
            return {key: _flat(space[key], _entry(given, key, what, keys), f"{what}[{key!r}]", lead) for key in keys}
        case spaces.Tuple():
            keys = list(range(len(space.spaces)))
            return tuple(_flat(space[key], _entry(given, key, what, keys), f"{what}[{key}]", lead) for key in keys)
    array = to_numpy(given)
    _check_shape(array, (*lead, *(space.shape or ())), what)
    _check_dtype(array, space, what)
    return array.reshape(lead[0] * lead[1], *array.shape[2:])


def _check_shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise UserError(f"{what} is of shape {array.shape}: it must be {shape}")


def _check_dtype(array: np.ndarray, space: Space[Any], what: str) -> None:
    """A UserError if an array cannot be of a space."""
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


def _kind(kind: Kind, given: Any, what: str, lead: tuple[int, int]) -> np.ndarray:
    """An entry of one of our own kinds."""
    array = to_numpy(given)
    _check_shape(array, (*lead, *kind.shape), what)
    accepted = {"u": "u", "i": "iu", "f": "iuf"}[kind.dtype.kind]
    if array.dtype.kind not in accepted or (kind.dtype.kind == "u" and array.dtype != kind.dtype):
        raise UserError(f"{what} is of dtype {array.dtype}: it must be {kind.dtype}")
    return array.astype(kind.dtype, copy=False)


def _check_values(kind: Kind, array: np.ndarray, what: str) -> None:
    if isinstance(kind, Vector):
        _check_finite(array, what)
    most = kind.symbols if isinstance(kind, Grid) else kind.vocabulary if isinstance(kind, Tokens) else None
    if most is not None and (np.any(array >= np.asarray(most)) or np.any(array < 0)):
        wrong = array[(array >= np.asarray(most)) | (array < 0)].flat[0]
        raise UserError(f"{what} has the symbol {wrong} in it: symbols must be below {most}")


def _timed(tree: PyTree, lead: tuple[int, int]) -> PyTree:
    return jax.tree.map(lambda x: np.asarray(x).reshape(*lead, *np.shape(x)[1:]), tree)
