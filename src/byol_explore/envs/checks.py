"""Checks of environments against their spec: once when made (inside jit), at every step (outside).

JAX is imported inside `check_jit_env` only: the per-step checks run in processes without JAX.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from byol_explore.envs.interface import EnvSpec, JitEnvironment
from byol_explore.errors import UserError
from byol_explore.spaces import ArraySpace, Grid, Tokens
from byol_explore.types import PyTree, TimeStep

_SCALARS = {
    "reward": np.float32, "discount": np.float32, "is_first": np.bool_, "is_last": np.bool_, "success": np.int8,
}  # fmt: skip


def check_jit_env(name: str, env: JitEnvironment) -> None:
    """Raise a UserError for the first result of `reset` or `step` with a wrong shape or dtype.

    Args:
      name: of the environment, for messages.
      env: inside jit; only its shapes are computed, and `is_first` of two time steps.
    """
    import jax

    is_spec = isinstance(env.spec, EnvSpec)
    if not is_spec or not all(isinstance(space, ArraySpace) for space in _entries(env.spec.observation).values()):
        return  # reported when networks are built
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    new_state, second = jax.eval_shape(env.step, state, env.spec.action.zero())
    for function, timestep in (("reset", first), ("step", second)):
        _check_timestep(f"environment {name!r}: {function}", env.spec, timestep)
    _check_tasks_and_stages(name, env, state)
    if _types(new_state) != _types(state):
        raise UserError(f"environment {name!r}: step turns a state of {_types(state)} into one of {_types(new_state)}")
    if _is_first_flags(env) != (True, False):
        raise UserError(
            f"environment {name!r}: is_first must be true in the result of reset, and false in that of step"
        )


def _check_tasks_and_stages(name: str, env: JitEnvironment, state: Any) -> None:
    import jax

    where = f"environment {name!r}:"
    needs = f"{where} its spec has several tasks, so it needs reset_task and task_id too"
    try:
        if env.spec.tasks:
            task = jax.eval_shape(env.task_id, state)
            _check_array(f"{where} the result of task_id", task, (), np.dtype(np.int32))
            started, _ = jax.eval_shape(env.reset_task, jax.random.key(0), task)
            if _types(started) != _types(state):
                raise UserError(
                    f"{where} reset_task makes a state of {_types(started)}, but reset one of {_types(state)}"
                )
        needs = f"{where} it has stages, so it needs stages_reached too"
        if env.stages:
            reached = jax.eval_shape(env.stages_reached, state)
            _check_array(f"{where} the result of stages_reached", reached, (len(env.stages),), np.dtype(np.bool_))
    except NotImplementedError:
        raise UserError(needs) from None


def _is_first_flags(env: JitEnvironment) -> tuple[bool, bool]:
    """Compute `is_first` after reset and after one step; the compiler drops the rest of the program."""
    import jax

    def flags(key: Any) -> tuple[Any, Any]:
        state, timestep = env.reset(key)
        return timestep.is_first, env.step(state, env.spec.action.zero())[1].is_first

    with jax.ensure_compile_time_eval():  # environments may be made while something else is traced
        first, second = jax.jit(flags)(jax.random.key(0))
        return bool(first), bool(second)


def _check_timestep(where: str, spec: EnvSpec, timestep: TimeStep) -> None:
    if not isinstance(timestep, TimeStep):
        raise UserError(f"{where} returns a {type(timestep).__name__}: it must return a state and a TimeStep")
    for name, dtype in _SCALARS.items():
        _check_array(f"{where} returns {name} that", getattr(timestep, name), (), np.dtype(dtype))
    entries, spaces = _entries(timestep.observation), _entries(spec.observation)
    if set(entries) != set(spaces):
        observed, specified = map(_describe_entries, (entries, spaces))
        raise UserError(f"{where} returns observations with {observed}, but the spec has {specified}")
    for name, space in spaces.items():
        title = f"an observation {name!r}" if name else "an observation"
        _check_array(f"{where} returns {title} that", entries[name], space.shape, space.dtype)


def _check_array(title: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if (array.shape, array.dtype) != (shape, dtype):
        raise UserError(f"{title} is {array.dtype}{list(array.shape)}: it must be {dtype}{list(shape)}")


def _entries(observation: PyTree) -> dict[str, Any]:
    """Return the entries of an observation, or of its spaces, by name; one without entries has the name ""."""
    return observation if isinstance(observation, dict) else {"": observation}


def _describe_entries(entries: dict[str, Any]) -> str:
    return f"the entries {', '.join(sorted(entries))}" if set(entries) != {""} else "no entries"


def _types(state: Any) -> str:
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(state)
    return ", ".join(f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}".strip() for path, leaf in leaves)


class TimeStepValidator:
    """Checks every time step of a vector environment outside jit.

    Wrong shapes and numbers that are not finite are errors: training could not continue with them. Numbers out of range
    are warnings.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self._num_envs = num_envs
        self._spaces: dict[str, ArraySpace] = _entries(spec.observation)

    def error(self, timestep: TimeStep) -> str | None:
        """Describe the first wrong shape or infinite number of a time step [E, ...]; None without one."""
        for title, array, space in self._pairs(timestep.observation):
            expected = (self._num_envs, *space.shape)
            if array is None:
                return f"{title} is missing"
            if np.shape(array) != expected:
                return f"{title} has the shape {np.shape(array)}, not {expected}"
            if np.asarray(array).dtype.kind == "f" and not np.all(np.isfinite(array)):
                return f"{title} is not finite"
        for name in _SCALARS:
            if (shape := np.shape(getattr(timestep, name))) != (self._num_envs,):
                return f"its {name} has the shape {shape}, not {(self._num_envs,)}"
        return None if np.all(np.isfinite(timestep.reward)) else "its reward is not finite"

    def warnings(self, timestep: TimeStep) -> Iterator[str]:
        """Describe values that are out of range, in a time step without errors."""
        for title, array, space in self._pairs(timestep.observation):
            if problem := _range_problem(np.asarray(array), space):
                yield f"{title} {problem}"

    def _pairs(self, observation: PyTree) -> Iterator[tuple[str, PyTree, ArraySpace]]:
        """Yield title, array and space of each entry."""
        arrays = _entries(observation)
        for name, space in self._spaces.items():
            yield f"entry {name!r} of its observation" if name else "its observation", arrays.get(name), space


def _range_problem(array: np.ndarray, space: ArraySpace) -> str | None:
    if isinstance(space, Grid) and np.any(array >= np.asarray(space.symbols_per_channel)):
        return f"has symbols beyond the {space.symbols_per_channel} of its channels"
    if isinstance(space, Tokens) and np.any((array < 0) | (array >= space.vocab_size)):
        return f"has tokens outside its vocabulary of {space.vocab_size}"
    dtype = space.dtype
    if array.dtype != dtype and np.issubdtype(dtype, np.integer) and np.any(array.astype(dtype) != array):
        return f"has numbers that do not fit into {dtype}"
    return None
