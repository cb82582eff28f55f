"""Whether an environment of others' code keeps what its spec promises; said before anything is compiled for it."""

from typing import Any, cast

import jax
import numpy as np

from byol_explore.envs.base import Environment, EnvSpec, MultiTask, Staged
from byol_explore.errors import UserError
from byol_explore.spaces import Kind
from byol_explore.types import Array, TimeStep

_SCALARS = {"reward": np.float32, "discount": np.float32, "is_first": np.bool_, "is_last": np.bool_}


def check_inside(name: str, env: Environment) -> None:
    """A UserError for the first thing that `reset` or `step` answers in another shape or type than it must have."""
    if not isinstance(env.spec, EnvSpec) or not all(isinstance(kind, Kind) for kind in _entries(env.spec).values()):
        return  # whoever builds networks for it says so
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    after, then = jax.eval_shape(env.step, state, env.spec.action.zero())
    for function, timestep in (("reset", first), ("step", then)):
        _check_timestep(f"environment {name!r}: {function}", env.spec, timestep)
    _check_bookkeeping(name, env, state)
    if _types(after) != _types(state):
        raise UserError(f"environment {name!r}: step makes a state of {_types(after)} of one of {_types(state)}")
    if _begins(env) != (True, False):
        raise UserError(
            f"environment {name!r}: is_first must be true in what reset answers, and false in what step does"
        )


def _check_bookkeeping(name: str, env: Environment, state: Any) -> None:
    """What an environment with several tasks, or with stages, says of an episode."""
    if env.spec.tasks:
        if not all(callable(getattr(env, function, None)) for function in ("begin", "task")):
            raise UserError(f"environment {name!r}: its spec has several tasks, so it must have begin and task too")
        task = jax.eval_shape(cast(MultiTask, env).task, state)
        _check_array(f"environment {name!r}: what task answers with", task, (), np.dtype(np.int32))
    if isinstance(env, Staged):
        reached, count = jax.eval_shape(env.reached, state), len(env.stages)
        _check_array(f"environment {name!r}: what reached answers with", reached, (count,), np.dtype(np.bool_))


def _begins(env: Environment) -> tuple[bool, bool]:
    """What the first two answers say of it; all else that they would say is left out by the compiler."""

    def first_two(key: Array) -> tuple[Any, Any]:
        state, timestep = env.reset(key)
        return timestep.is_first, env.step(state, env.spec.action.zero())[1].is_first

    with jax.ensure_compile_time_eval():  # environments may be made while something else is traced
        first, then = jax.jit(first_two)(jax.random.key(0))
        return bool(first), bool(then)


def _check_timestep(where: str, spec: EnvSpec, timestep: TimeStep) -> None:
    if not isinstance(timestep, TimeStep):
        raise UserError(f"{where} answers with a {type(timestep).__name__}: it must be a state and a TimeStep")
    for name, dtype in _SCALARS.items():
        _check_array(f"{where} gives {name} that", getattr(timestep, name), (), np.dtype(dtype))
    entries = timestep.observation if isinstance(timestep.observation, dict) else {"": timestep.observation}
    kinds = _entries(spec)
    if set(entries) != set(kinds):
        raise UserError(f"{where} has observations with {_listed(entries)}, but the spec has {_listed(kinds)}")
    for name, kind in kinds.items():
        words = f"an observation {name!r}" if name else "an observation"
        _check_array(f"{where} gives {words} that", entries[name], kind.shape, kind.dtype)


def _check_array(what: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if (array.shape, array.dtype) != (shape, dtype):
        raise UserError(f"{what} is {array.dtype}{list(array.shape)}: it must be {dtype}{list(shape)}")


def _entries(spec: EnvSpec) -> dict[str, Any]:
    return spec.observation if isinstance(spec.observation, dict) else {"": spec.observation}


def _listed(entries: dict[str, Any]) -> str:
    return f"the entries {', '.join(sorted(entries))}" if set(entries) != {""} else "no entries"


def _types(state: Any) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return ", ".join(f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}".strip() for path, leaf in leaves)
