"""Transitions of a JAX training loop: checks when traced, and conversion by their spaces.

Spaces are Gymnasium's, or those of `byol_explore.spaces` with an `ActionSpec`. Shapes and dtypes alone are checked:
inside jit there are no values. `dropin/inputs.py` reads arrays outside jit by the same spaces, and checks values too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space, spaces

from byol_explore.envs.gymnasium_spaces import SpacePath, convert_action_space, convert_observation_space, iter_leaves
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, ArraySpace, Spaces, Tokens, Vector
from byol_explore.types import Action, AnyArray, Array, PyTree
from byol_explore.utils.formatting import one_line

NAME = "yours"  # of the environment, in messages


class Transition(NamedTuple):
    """Transitions of N environments, time-major; without the axis T for `Bonus.step`."""

    obs: PyTree  # [T, N, ...] observations that the actions were chosen from
    action: Any  # [T, N, ...] native actions of a Gymnasium space; see `Bonus` for those of an `ActionSpec`
    done: AnyArray  # [T, N] bool, terminated or truncated
    # [T, N, ...] observations after the actions, the last one where an episode ended. None if they are not known, as
    # with an auto-reset that drops them: the transitions that end an episode are masked then.
    next_obs: PyTree | None = None


# Spaces


class SpaceConverter(NamedTuple):
    """Converts observations and actions of two spaces to those that networks read; NumPy's arrays or JAX's."""

    spec: Spaces
    observation_space: Space[Any]  # of Gymnasium, with the form of the caller's arrays
    action_space: Space[Any]
    to_observation: Callable[[Any], PyTree]  # from [n, ...]
    to_action: Callable[[Any], Action]  # from [n, ...]


def convert_spaces(
    observation_space: Any, action_space: Any, symbols: Mapping[str, tuple[int, ...]] | None = None
) -> SpaceConverter:
    """Return the converter of two spaces.

    Args:
      observation_space: a space of Gymnasium, or of `byol_explore.spaces`, of one environment.
      action_space: a space of Gymnasium, or an `ActionSpec`.
      symbols: as in `convert_observation_space`.
    Returns:
      SpaceConverter. Raises a UserError for a space that no encoder reads or no policy chooses from.
    """
    if isinstance(observation_space, Space):
        seen = observation_space
        observation, to_observation = convert_observation_space(observation_space, NAME, symbols)
    elif _is_own_space(observation_space):
        observation, seen = observation_space, gymnasium_space(observation_space)
        to_observation = partial(jax.tree.map, lambda kind, x: x.astype(kind.dtype), observation)
    else:
        raise UserError(
            f"the observation space is {one_line(observation_space, 80)}: it must be a space of Gymnasium, or an "
            "Image, Vector, Grid or Tokens of byol_explore.spaces, or a flat dict of them"
        )
    if isinstance(action_space, Space):
        chosen = action_space
        action, _, to_action = convert_action_space(action_space, NAME)
    elif isinstance(action_space, ActionSpec):
        action, chosen = action_space, gymnasium_space(action_space)
        to_action = _cast_action
    else:
        raise UserError(
            f"the action space is {one_line(action_space, 80)}: it must be a space of Gymnasium, or an ActionSpec "
            "of byol_explore.spaces"
        )
    return SpaceConverter(Spaces(observation, action, NAME), seen, chosen, to_observation, to_action)


def _cast_action(parts: Any) -> Action:
    return Action(parts[0].astype(np.int32), parts[1].astype(np.float32))


def _is_own_space(space: Any) -> bool:
    kinds = space.values() if isinstance(space, dict) and space else [space]
    return all(isinstance(kind, ArraySpace) for kind in kinds)


def gymnasium_space(space: Any) -> Space[Any]:
    """Return the space of Gymnasium whose arrays have the form of one of our own spaces."""
    match space:
        case dict():
            return spaces.Dict({name: gymnasium_space(kind) for name, kind in space.items()})
        case ActionSpec():
            discrete = spaces.MultiDiscrete(np.asarray(space.discrete)) if space.discrete else spaces.Box(0, 0, (0,))
            return spaces.Tuple([discrete, spaces.Box(-np.inf, np.inf, (space.continuous,))])
        case Vector():
            return spaces.Box(-np.inf, np.inf, space.shape)
        case Tokens():
            return spaces.MultiDiscrete(np.full(space.length, space.vocab_size))
    return spaces.Box(0, 255, space.shape, np.uint8)


# Checks


def find_entry(given: Any, key: str | int, what: str, keys: list[Any]) -> Any:
    """Return an entry of a dict or tuple. Raises a UserError with all `keys` if it is missing."""
    try:
        return given[key]
    except (KeyError, IndexError, TypeError):
        names = ", ".join(map(repr, keys))
        raise UserError(f"{what} has no entry {key!r}: it must have {names}") from None


def check_shape(array: AnyArray, shape: tuple[int, ...], what: str) -> None:
    """Raise a UserError if an array has another shape."""
    if array.shape != shape:
        raise UserError(f"{what} is of shape {array.shape}: it must be {shape}")


def check_dtype(dtype: np.dtype[Any], space: Space[Any], what: str) -> None:
    """Raise a UserError if arrays of this dtype cannot be of a space."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        if dtype.kind not in "biu":
            raise UserError(f"{what} is of dtype {dtype}: it must be whole numbers, such as int64")
    elif isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and dtype != np.uint8:
            raise UserError(f"{what} is of dtype {dtype}: it must be uint8")
        if dtype.kind not in "biuf":
            raise UserError(f"{what} is of dtype {dtype}: it must be numbers, such as {space.dtype}")
    elif dtype.kind not in "UTO":  # of a Text
        raise UserError(f"{what} is of dtype {dtype}: it must be texts")


class TransitionReader:
    """Checks and converts transitions of `num_envs` environments, by shapes and dtypes alone.

    Args:
      observation_space: as in `convert_spaces`.
      action_space: as in `convert_spaces`.
      num_envs: N.
    """

    def __init__(self, observation_space: Any, action_space: Any, num_envs: int) -> None:
        self.converter, self.num_envs = convert_spaces(observation_space, action_space), num_envs
        self._takes_parts = not isinstance(action_space, ActionSpec)
        for path, leaf in iter_leaves(self.converter.observation_space, SpacePath(NAME, "observation")):
            if leaf.dtype is not None and np.issubdtype(leaf.dtype, np.str_):
                raise path.error(leaf, "has texts in it, which jit cannot hold: give Tokens of byol_explore.spaces")
        self._identity = observation_space, action_space, num_envs

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TransitionReader) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash((repr(self._identity[0]), repr(self._identity[1]), self.num_envs))  # a dict of spaces has no hash

    @property
    def spec(self) -> Spaces:
        """Observations and actions as the networks see them."""
        return self.converter.spec

    def rollout(self, given: Any, last_obs: PyTree | None) -> tuple[Transition, PyTree | None]:
        """Check and convert a rollout [T, N] and the observations [N, ...] after it."""
        if not isinstance(given, Transition):
            raise UserError(f"a {type(given).__name__} was given: it must be a byol_explore.Transition")
        shape = np.shape(given.done)
        if len(shape) != 2 or shape[1] != self.num_envs or not shape[0]:
            raise UserError(
                f"done is of shape {shape}: it must be (T, {self.num_envs}), of at least one step of {self.num_envs} "
                "environments (num_envs)"
            )
        if given.next_obs is None and last_obs is None:
            raise UserError(
                "next_obs and last_obs are both None: give next_obs [T, N, ...], or last_obs [N, ...], the "
                "observations after the rollout"
            )
        read = Transition(
            self.observation(given.obs, "obs", shape),
            self.action(given.action, shape),
            _as_array(given.done, "done").astype(bool),
            None if given.next_obs is None else self.observation(given.next_obs, "next_obs", shape),
        )
        return read, None if last_obs is None else self.observation(last_obs, "last_obs", shape[1:])

    def observation(self, given: Any, what: str, lead: tuple[int, ...]) -> PyTree:
        """Return observations [*lead, ...] in the form that encoders read; `what` names them in messages."""
        native = _check_arrays(self.converter.observation_space, given, what, lead)
        return _over(self.converter.to_observation, lead)(native)

    def action(self, given: Any, lead: tuple[int, ...]) -> Action:
        """Return actions [*lead, ...] in the form that policies sample."""
        spec = self.spec.action
        if not self._takes_parts and not isinstance(given, tuple | list):
            array = _as_array(given, "action")
            if spec.discrete and spec.continuous:
                raise UserError("action is one array: actions of a hybrid ActionSpec must be a byol_explore.Action")
            is_single = len(spec.discrete) == 1 and not spec.continuous and array.ndim == len(lead)
            array = array[..., None] if is_single else array
            given = (array, jnp.zeros((*lead, 0))) if spec.discrete else (jnp.zeros((*lead, 0)), array)
        native = _check_arrays(self.converter.action_space, given, "action", lead)
        return _over(self.converter.to_action, lead)(native)

    def out_of_range(self, action: Action) -> Array:
        """Count the actions [..., D] whose category does not exist."""
        wrong = (action.discrete < 0) | (action.discrete >= np.asarray(self.spec.action.discrete, np.int32))
        return jnp.sum(jnp.any(wrong, axis=-1))


def _over(convert: Callable[[Any], Any], lead: tuple[int, ...]) -> Callable[[Any], Any]:
    """Return a function of arrays [*lead, ...] from one of arrays [n, ...]."""
    # Axes are not merged: environments may be spread over devices.
    for _ in lead[1:]:
        convert = jax.vmap(convert)
    return convert


def _check_arrays(space: Space[Any], given: Any, what: str, lead: tuple[int, ...]) -> Any:
    """Check arrays [*lead, ...] against a space. Returns arrays of JAX, nested like the space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        parts = {
            key: _check_arrays(part, find_entry(given, key, what, list(inner)), f"{what}[{key!r}]", lead)
            for key, part in inner.items()
        }
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    array = _as_array(given, what)
    check_shape(array, (*lead, *(space.shape or ())), what)
    check_dtype(array.dtype, space, what)
    return array


def _as_array(given: Any, what: str) -> Array:
    """Return an array of JAX; floats of any size become float32."""
    try:
        array = jnp.asarray(given)
    except (TypeError, ValueError):
        raise UserError(f"{what} is {one_line(given, 60)}: it must be an array") from None
    return array.astype(jnp.float32) if jnp.issubdtype(array.dtype, jnp.floating) else array
