"""Conversion between Gymnasium's spaces and ours; texts as tokens; symbols of Farama's MiniGrid.

Converters work on batches as Gymnasium's vector environments hold them: arrays with a leading axis of environments,
inside dicts and tuples for Dict and Tuple spaces. Those from native actions and observations use operators and methods
that NumPy and JAX share, so they also work on arrays of JAX, inside jit.
"""

import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import getitem
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector
from byol_explore.types import Action, PyTree
from byol_explore.utils.formatting import one_line

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
READABLE = f"Text, {SUPPORTED}"  # in observations
MAX_CATEGORIES = 65_536  # of a space; each is an output of the policy or an input of the encoder
CHANNELS = (1, 3, 4)  # sizes of the first axis of an image that may mean channels

Categorical = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


class ActionConverter(NamedTuple):
    """Converts actions of one space."""

    spec: ActionSpec
    to_native: Callable[[Action], Any]  # from a policy's actions [E, ...]
    from_native: Callable[[Any], Action]  # from native actions [E, ...] inside the space


class ObservationConverter(NamedTuple):
    """Converts observations of one space, or of one entry of it."""

    spec: PyTree  # a spaces.ObservationSpec
    from_native: Callable[[Any], PyTree]  # from native observations [E, ...] to those of `spec`


class SpacePath(NamedTuple):
    """Path of a space in an environment, for error messages."""

    env: str
    side: str  # action or observation
    keys: tuple[str | int, ...] = ()  # of nested Dict and Tuple spaces

    @property
    def name(self) -> str:
        return "/".join(map(str, self.keys))

    def child(self, key: str | int) -> "SpacePath":
        return self._replace(keys=(*self.keys, key))

    def error(self, space: Space[Any], why: str) -> UserError:
        entry = f" of entry {self.name!r}" if self.keys else ""
        return UserError(f"environment {self.env!r}: the {self.side} space{entry}, {one_line(space)}, {why}")


# Actions


def convert_action_space(space: Space[Any], env: str) -> ActionConverter:
    """Convert an action space; its parts become components of one hybrid action.

    Args:
      space: of one action.
      env: name of the environment, for messages.

    Returns:
      The spec of our actions and the functions between them and batches of native ones. Raises a UserError for a space
      that a policy cannot choose from.
    """
    path = SpacePath(env, "action")
    actions = _actions(space, path)
    if not actions.spec.discrete and not actions.spec.continuous:
        raise path.error(space, "leaves nothing to choose")
    return actions


def _actions(space: Space[Any], path: SpacePath) -> ActionConverter:
    match space:
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return _categorical_actions(space, path)
        case spaces.Box():
            return _box_actions(space, path)
        case spaces.Dict() | spaces.Tuple() if len(space.spaces):
            return _joined_actions(space, path)
    raise path.error(space, f"is not supported; supported are {SUPPORTED}, Boxes with finite bounds")


def _categorical_actions(space: Categorical, path: SpacePath) -> ActionConverter:
    counts, start = category_counts(space, path)

    def to_native(action: Action) -> np.ndarray:
        return (action.discrete.reshape(len(action.discrete), *counts.shape) + start).astype(space.dtype)

    def from_native(native: np.ndarray) -> Action:
        chosen = native.reshape(len(native), -1) - start.reshape(-1)
        return Action(chosen.astype(np.int32), np.zeros((len(native), 0), np.float32))

    return ActionConverter(ActionSpec(discrete=tuple(map(int, counts.flat))), to_native, from_native)


def _box_actions(space: spaces.Box, path: SpacePath) -> ActionConverter:
    """Scale a policy's [-1, 1] to the bounds; round if the space has integers."""
    if not space.is_bounded():
        raise path.error(space, "has no finite bounds to scale actions to; only bounded Boxes are supported")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)

    def to_native(action: Action) -> np.ndarray:
        units = action.continuous.astype(np.float64).reshape(len(action.continuous), *low.shape)
        unit = (np.clip(units, -1.0, 1.0) + 1.0) / 2.0
        value = np.clip(low * (1.0 - unit) + high * unit, low, high)
        return (value if np.issubdtype(space.dtype, np.floating) else np.rint(value)).astype(space.dtype)

    def from_native(native: np.ndarray) -> Action:
        unit = (native.clip(low, high) - low) / np.where(high > low, high - low, 1.0)
        units = (2.0 * unit - 1.0) * (high > low)
        return Action(np.zeros((len(native), 0), np.int32), units.reshape(len(native), -1).astype(np.float32))

    return ActionConverter(ActionSpec(continuous=low.size), to_native, from_native)


def _joined_actions(space: spaces.Dict | spaces.Tuple, path: SpacePath) -> ActionConverter:
    parts = {key: _actions(part, path.child(key)) for key, part in _entries(space)}
    specs = [part.spec for part in parts.values()]
    discrete_ends = np.cumsum([len(spec.discrete) for spec in specs])
    continuous_ends = np.cumsum([spec.continuous for spec in specs])

    def to_native(action: Action) -> Any:
        discrete = np.split(action.discrete, discrete_ends[:-1], axis=1)
        continuous = np.split(action.continuous, continuous_ends[:-1], axis=1)
        arrays = zip(discrete, continuous, strict=True)
        chosen = {key: part.to_native(Action(*own)) for (key, part), own in zip(parts.items(), arrays, strict=True)}
        return chosen if isinstance(space, spaces.Dict) else tuple(chosen.values())

    def from_native(native: Any) -> Action:
        actions = [part.from_native(native[key]) for key, part in parts.items()]
        return Action(*(_concatenate(arrays) for arrays in zip(*actions, strict=True)))

    discrete = tuple(count for spec in specs for count in spec.discrete)
    return ActionConverter(ActionSpec(discrete, sum(spec.continuous for spec in specs)), to_native, from_native)


def _concatenate(arrays: Sequence[Any]) -> Any:
    """Concatenate arrays [E, ...] of NumPy or JAX along their second axis."""
    xp = next((x.__array_namespace__() for x in arrays if not isinstance(x, np.ndarray)), np)
    return xp.concatenate(arrays, axis=1)


# Observations


def convert_observation_space(
    space: Space[Any], env: str, symbols: Mapping[str, tuple[int, ...]] | None = None
) -> ObservationConverter:
    """Convert an observation space; nested spaces become a flat dict with paths as names, such as `arm/joints/0`.

    Args:
      space: of one observation.
      env: name of the environment, for messages.
      symbols: numbers of symbols per channel, by name of an entry ("" without entries). A Box of bytes is a grid of
        symbols if it has an entry here, else an image.

    Returns:
      The space of our observations, and the function that converts a batch of native ones. Raises a UserError for a
      space that no encoder reads.
    """
    root, symbols = SpacePath(env, "observation"), symbols or {}
    entries = {path: _observations(part, path, symbols) for path, part in iter_leaves(space, root)}
    entries = {path: entry for path, entry in entries.items() if entry.spec.size}
    if not entries:
        raise root.error(space, "has no numbers in it")
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return entries[root]
    if len({path.name for path in entries}) < len(entries):
        raise root.error(space, "has two entries of one name, where '/' joins the names of nested ones")

    def from_native(native: Any) -> dict[str, np.ndarray]:
        return {path.name: entry.from_native(reduce(getitem, path.keys, native)) for path, entry in entries.items()}

    return ObservationConverter({path.name: entry.spec for path, entry in entries.items()}, from_native)


def _observations(space: Space[Any], path: SpacePath, symbols: Mapping[str, tuple[int, ...]]) -> ObservationConverter:
    match space:
        case spaces.Box() if path.name in symbols:
            return ObservationConverter(Grid(space.shape[0], space.shape[1], symbols[path.name]), lambda native: native)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return _one_hots(space, path)
        case spaces.Box() if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return _image(space)
        case spaces.Box() if space.dtype == np.uint8:
            return _bytes(space)
        case spaces.Box() | spaces.MultiBinary():
            return _vector(space.shape, _flatten)
    if space.dtype is not None and np.issubdtype(space.dtype, np.str_):  # Text, and spaces that wrappers make of it
        return ObservationConverter(TEXT, tokenize)
    raise path.error(space, f"is not supported; supported are {READABLE}")


def _vector(shape: tuple[int, ...], from_native: Callable[[np.ndarray], np.ndarray]) -> ObservationConverter:
    return ObservationConverter(Vector(math.prod(shape)), from_native)


def _flatten(native: np.ndarray) -> np.ndarray:
    return native.reshape(len(native), -1).astype(np.float32, copy=False)


def _bytes(space: spaces.Box) -> ObservationConverter:
    """Scale bytes that are no image, such as a RAM, from their bounds to [0, 1]."""
    low = space.low.astype(np.float32)
    scale = np.maximum(space.high - low, 1.0)
    return _vector(space.shape, lambda native: _flatten((native - low) / scale))


def _one_hots(space: spaces.Discrete | spaces.MultiDiscrete, path: SpacePath) -> ObservationConverter:
    counts, start = category_counts(space, path)
    component = np.repeat(np.arange(counts.size), counts.reshape(-1))  # of each number of the vector
    category = np.arange(len(component)) - np.repeat(np.cumsum(counts) - counts.flat - start.flat, counts.reshape(-1))

    def from_native(native: np.ndarray) -> np.ndarray:
        return (native.reshape(len(native), -1)[:, component] == category).astype(np.float32)

    return _vector((len(component),), from_native)


def _image(space: spaces.Box) -> ObservationConverter:
    """Convert an image to [H, W, C]."""
    shape = space.shape
    if len(shape) == 2:
        return ObservationConverter(Image(*shape, 1), lambda native: native[..., None])
    if shape[0] in CHANNELS and shape[2] not in CHANNELS and shape[0] < min(shape[1:]):
        return ObservationConverter(Image(shape[1], shape[2], shape[0]), lambda native: native.transpose(0, 2, 3, 1))
    return ObservationConverter(Image(*shape), lambda native: native)


# Both


def category_counts(space: Categorical, path: SpacePath) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of categories of each component, and the number of its first category."""
    if isinstance(space, spaces.MultiBinary):
        counts, start = np.full(space.shape, 2), np.zeros(space.shape, np.int64)
    elif isinstance(space, spaces.Discrete):
        counts, start = np.asarray(space.n, np.int64), np.asarray(space.start, np.int64)
    else:
        counts, start = space.nvec.astype(np.int64), space.start.astype(np.int64)
    if counts.sum(dtype=np.float64) > MAX_CATEGORIES:
        raise path.error(space, f"has more than {MAX_CATEGORIES} categories")
    return counts, start


def _entries(space: spaces.Dict | spaces.Tuple) -> list[tuple[str | int, Space[Any]]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def iter_leaves(space: Space[Any], path: SpacePath) -> Iterator[tuple[SpacePath, Space[Any]]]:
    """Yield the path and the space of each leaf of nested Dict and Tuple spaces."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in _entries(space):
            yield from iter_leaves(part, path.child(key))
    else:
        yield path, space


TEXT = Tokens(length=32, vocab_size=256)
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=4096)  # missions repeat in every episode
def hash_tokens(text: str) -> tuple[int, ...]:
    """Hash the first 32 words, in lower case, to 1, ..., 255 (two may share a number); pad with 0."""
    words = _WORD.findall(text.lower())[: TEXT.length]
    numbers = [1 + zlib.crc32(word.encode()) % (TEXT.vocab_size - 1) for word in words]
    return (*numbers, *[0] * (TEXT.length - len(numbers)))


def tokenize(texts: Sequence[str]) -> np.ndarray:
    """Hash texts to tokens [E, 32]."""
    return np.asarray([hash_tokens(text) for text in texts], TEXT.dtype)


SYMBOLIC_WRAPPERS = ("FullyObsWrapper", "ViewSizeWrapper", "ImgObsWrapper", "DirectionObsWrapper")


def minigrid_symbol_counts(env: gymnasium.Env[Any, Any]) -> dict[str, tuple[int, ...]]:
    """Return the number of symbols per channel of Farama's MiniGrid, by entry; empty for other environments.

    Its spaces do not distinguish symbols, pixels and one-hots (all are Boxes of bytes), so this looks at its classes.
    """
    # Not imported: if `env` is one of its environments, its modules are loaded.
    minigrid = sys.modules.get("minigrid.minigrid_env")
    if minigrid is None or not isinstance(env.unwrapped, minigrid.MiniGridEnv):
        return {}
    name = "image"
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ObservationWrapper) and type(env).__name__ not in SYMBOLIC_WRAPPERS:
            return {}
        if type(env).__name__ == "ImgObsWrapper":
            name = ""
        env = env.env
    constants = sys.modules["minigrid.core.constants"]
    # The state of a door (one of three), or the direction of an agent in a full view (one of four).
    states = max(len(constants.STATE_TO_IDX), len(constants.DIR_TO_VEC))
    return {name: (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), states)}
