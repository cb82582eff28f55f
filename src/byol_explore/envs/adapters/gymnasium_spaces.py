"""Gymnasium's spaces in this package's terms: what a policy chooses from and what an encoder reads.

All functions here work on batches, the way Gymnasium's vector environments hold them: arrays with a leading axis of
environments, inside dicts and tuples where the space is a Dict or a Tuple.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from byol_explore.envs.adapters.texts import TEXT, read_texts
from byol_explore.errors import UserError, one_line
from byol_explore.spaces import ActionSpec, Grid, Image, Vector
from byol_explore.types import Action, PyTree

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these"
READABLE = f"Text, {SUPPORTED}"  # in observations
MAX_CATEGORIES = 65_536  # of one space: each is an output of the policy or an input of the encoder
CHANNELS = (1, 3, 4)  # of an image whose first axis may be that of channels

Categorical = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


class Actions(NamedTuple):
    """An action space."""

    spec: ActionSpec
    native: Callable[[Action], Any]  # a policy's actions [E, ...] as the vector environment takes them
    read: Callable[[Any], Action]  # and the other way round, of actions that lie in the space


class Observations(NamedTuple):
    """An observation space, or one entry of it."""

    spec: PyTree  # a spaces.ObservationSpec
    read: Callable[[Any], PyTree]  # what the vector environment answers, as the encoder takes it


class Place(NamedTuple):
    """Where in an environment a space was found, for the message that refuses it."""

    env: str
    side: str  # action or observation
    path: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))

    def inside(self, key: str | int) -> "Place":
        return self._replace(path=(*self.path, key))

    def refuse(self, space: Space[Any], why: str) -> UserError:
        entry = f" of entry {self.name!r}" if self.path else ""
        return UserError(f"environment {self.env!r}: the {self.side} space{entry}, {one_line(space)}, {why}")


# Actions


def actions_of(space: Space[Any], env: str) -> Actions:
    """Every part of a space next to each other: components of one hybrid action."""
    place = Place(env, "action")
    actions = _actions(space, place)
    if not actions.spec.discrete and not actions.spec.continuous:
        raise place.refuse(space, "leaves nothing to choose")
    return actions


def _actions(space: Space[Any], place: Place) -> Actions:
    match space:
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return _categorical_actions(space, place)
        case spaces.Box():
            return _box_actions(space, place)
        case spaces.Dict() | spaces.Tuple() if len(space.spaces):
            return _joined_actions(space, place)
    raise place.refuse(space, f"is not supported; supported are {SUPPORTED}, Boxes with finite bounds")


def _categorical_actions(space: Categorical, place: Place) -> Actions:
    counts, start = _categories(space, place)

    def native(action: Action) -> np.ndarray:
        return (action.discrete.reshape(len(action.discrete), *counts.shape) + start).astype(space.dtype)

    def read(native: np.ndarray) -> Action:
        chosen = native.reshape(len(native), -1).astype(np.int64) - start.reshape(-1)
        return Action(chosen.astype(np.int32), np.zeros((len(native), 0), np.float32))

    return Actions(ActionSpec(discrete=tuple(map(int, counts.flat))), native, read)


def _box_actions(space: spaces.Box, place: Place) -> Actions:
    """A policy's [-1, 1] spans the bounds; integers are rounded to."""
    if not space.is_bounded():
        raise place.refuse(space, "has no finite bounds to scale actions to; only bounded Boxes are supported")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)

    def native(action: Action) -> np.ndarray:
        units = action.continuous.astype(np.float64).reshape(len(action.continuous), *low.shape)
        unit = (np.clip(units, -1.0, 1.0) + 1.0) / 2.0
        value = np.clip(low * (1.0 - unit) + high * unit, low, high)
        return (value if np.issubdtype(space.dtype, np.floating) else np.rint(value)).astype(space.dtype)

    def read(native: np.ndarray) -> Action:
        unit = (np.clip(native, low, high) - low) / np.where(high > low, high - low, 1.0)
        units = np.where(high > low, 2.0 * unit - 1.0, 0.0).reshape(len(native), -1).astype(np.float32)
        return Action(np.zeros((len(native), 0), np.int32), units)

    return Actions(ActionSpec(continuous=low.size), native, read)


def _joined_actions(space: spaces.Dict | spaces.Tuple, place: Place) -> Actions:
    parts = {key: _actions(part, place.inside(key)) for key, part in _entries(space)}

    def native(action: Action) -> Any:
        chosen, discrete, continuous = {}, 0, 0
        for key, (spec, part_native, _) in parts.items():
            discrete_end, continuous_end = discrete + len(spec.discrete), continuous + spec.continuous
            part = Action(action.discrete[:, discrete:discrete_end], action.continuous[:, continuous:continuous_end])
            chosen[key] = part_native(part)
            discrete, continuous = discrete_end, continuous_end
        return chosen if isinstance(space, spaces.Dict) else tuple(chosen.values())

    def read(native: Any) -> Action:
        actions = [part.read(native[key]) for key, part in parts.items()]
        return Action(*(np.concatenate(arrays, axis=1) for arrays in zip(*actions, strict=True)))

    specs = [part.spec for part in parts.values()]
    discrete = tuple(count for spec in specs for count in spec.discrete)
    return Actions(ActionSpec(discrete, sum(spec.continuous for spec in specs)), native, read)


# Observations


def observations_of(space: Space[Any], env: str, symbols: Mapping[str, tuple[int, ...]] | None = None) -> Observations:
    """An array, or a flat dict of arrays whose names are the paths through nested spaces, such as `arm/joints/0`.

    A Box of bytes is an image, unless `symbols` has its name: then it is a grid of so many symbols in each channel.
    """
    place, symbols = Place(env, "observation"), symbols or {}
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        observations = _observations(space, place, symbols)
        if observations.spec.size == 0:
            raise place.refuse(space, "has no numbers in it")
        return observations
    entries = {at: _observations(part, at, symbols) for at, part in leaves(space, place)}
    entries = {at: entry for at, entry in entries.items() if entry.spec.size}
    if not entries:
        raise place.refuse(space, "has no numbers in it")
    if len({at.name for at in entries}) < len(entries):
        raise place.refuse(space, "has two entries of one name, where '/' joins the names of nested ones")

    def read(native: Any) -> dict[str, np.ndarray]:
        return {at.name: entry.read(follow(native, at.path)) for at, entry in entries.items()}

    return Observations({at.name: entry.spec for at, entry in entries.items()}, read)


def _observations(space: Space[Any], place: Place, symbols: Mapping[str, tuple[int, ...]]) -> Observations:
    match space:
        case spaces.Box() if place.name in symbols:
            return Observations(Grid(space.shape[0], space.shape[1], symbols[place.name]), lambda native: native)
        case spaces.MultiBinary():
            return _vector(space.shape, _flat)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return _one_hots(space, place)
        case spaces.Box() if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return _image(space)
        case spaces.Box() if space.dtype == np.uint8:
            return _bytes(space)
        case spaces.Box():
            return _vector(space.shape, _flat)
    if space.dtype is not None and np.issubdtype(space.dtype, np.str_):  # Text, and what others make of texts
        return Observations(TEXT, read_texts)
    raise place.refuse(space, f"is not supported; supported are {READABLE}")


def _vector(shape: tuple[int, ...], read: Callable[[np.ndarray], np.ndarray]) -> Observations:
    return Observations(Vector(math.prod(shape)), read)


def _flat(native: np.ndarray) -> np.ndarray:
    return native.reshape(len(native), -1).astype(np.float32, copy=False)


def _bytes(space: spaces.Box) -> Observations:
    """Bytes that are no image, such as the memory of a machine, scaled from their bounds to [0, 1]."""
    low = space.low.astype(np.float32)
    scale = np.maximum(space.high - low, 1.0)
    return _vector(space.shape, lambda native: _flat((native - low) / scale))


def _one_hots(space: spaces.Discrete | spaces.MultiDiscrete, place: Place) -> Observations:
    counts, start = _categories(space, place)
    total = int(counts.sum())
    offsets = np.cumsum(counts.reshape(-1)) - counts.reshape(-1) - start.reshape(-1)

    def read(native: np.ndarray) -> np.ndarray:
        vector = np.zeros((len(native), total), np.float32)
        np.put_along_axis(vector, native.reshape(len(native), -1).astype(np.int64) + offsets, 1.0, axis=1)
        return vector

    return _vector((total,), read)


def _image(space: spaces.Box) -> Observations:
    """Bytes [H, W, C]; channels that come first are put last."""
    shape = space.shape
    if len(shape) == 2:
        return Observations(Image(*shape, 1), lambda native: native[..., None])
    if shape[0] in CHANNELS and shape[2] not in CHANNELS and shape[0] < min(shape[1:]):
        return Observations(Image(shape[1], shape[2], shape[0]), lambda native: np.moveaxis(native, 1, -1))
    return Observations(Image(*shape), lambda native: native)


# Both


def _categories(space: Categorical, place: Place) -> tuple[np.ndarray, np.ndarray]:
    """Number of categories and the first one's number, of each component."""
    if isinstance(space, spaces.MultiBinary):
        counts, start = np.full(space.shape, 2), np.zeros(space.shape, np.int64)
    elif isinstance(space, spaces.Discrete):
        counts, start = np.asarray(space.n, np.int64), np.asarray(space.start, np.int64)
    else:
        counts, start = space.nvec.astype(np.int64), space.start.astype(np.int64)
    if counts.sum(dtype=np.float64) > MAX_CATEGORIES:
        raise place.refuse(space, f"has more than {MAX_CATEGORIES} categories")
    return counts, start


def _entries(space: spaces.Dict | spaces.Tuple) -> list[tuple[str | int, Space[Any]]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def leaves(space: Space[Any], place: Place) -> Iterator[tuple[Place, Space[Any]]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in _entries(space):
            yield from leaves(part, place.inside(key))
    else:
        yield place, space


def follow(native: Any, path: tuple[str | int, ...]) -> np.ndarray:
    for key in path:
        native = native[key]
    return native
