"""Gymnasium environments, their worker processes and bounds checks. Worker processes import this without JAX."""

import contextlib
import math
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from operator import getitem
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import _async_worker

from byol_explore.envs.families import ENTRY_POINT, GymnasiumSettings
from byol_explore.envs.gymnasium_faults import RestartOnFault, read_faults
from byol_explore.envs.gymnasium_spaces import (
    SpacePath,
    category_counts,
    convert_action_space,
    convert_observation_space,
    iter_leaves,
    minigrid_symbol_counts,
)
from byol_explore.envs.host_vector import TimeStepBuilder
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.errors import UserError
from byol_explore.registry import import_object, is_import_path
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep
from byol_explore.utils.formatting import one_line
from byol_explore.utils.packages import require_extra
from byol_explore.utils.processes import EXIT_SECONDS, close_in_time, kill_on_parent_exit, terminate_all

PREFIX = "gymnasium:"
SUCCESS_NAMES = ("is_success", "success")  # in infos; the first has priority
NO_LIMIT = 100_000  # assumed limit of steps of an episode without a registered one


class GymnasiumEnv(HostEnvironment):
    """An environment that is registered with Gymnasium."""

    def __init__(
        self, env_id: str, settings: GymnasiumSettings | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        """Describe an environment; one is made and closed for its spaces.

        Args:
          env_id: as `gymnasium.make` takes it, also with a module to import before: `my_package:Lock-v0`.
          settings: see GymnasiumSettings.
          kwargs: of `gymnasium.make`.
        """
        name = PREFIX + env_id
        if env_id.startswith("ALE/"):
            raise UserError(f"{name!r}: Atari games are called atari:<game> here, for example atari:montezuma_revenge")
        self.env_id, self.settings, self._kwargs = env_id, settings or GymnasiumSettings(), kwargs or {}
        self._wrappers = [_wrapper(path) for path in self.settings.wrappers]
        with (
            errors_in_one_line(name, "cannot be made"),
            require_extra(name),
            contextlib.ExitStack() as stack,
        ):
            probe = self._vectorize(1, processes=False)
            stack.callback(close_in_time, probe)
            self.actions = convert_action_space(probe.single_action_space, name)
            envs = getattr(probe, "envs", None)  # missing if the environment vectorises itself
            symbols = minigrid_symbol_counts(envs[0]) if envs else {}
            self.observations = convert_observation_space(probe.single_observation_space, name, symbols)
            self.warnings = bounds_checker(probe.single_observation_space, name)
            self._can_render = "rgb_array" in (probe.metadata.get("render_modes") or ())
            registered = probe.spec
        limit = self.settings.max_steps or (registered.max_episode_steps if registered else None)
        threshold = registered.reward_threshold if registered else None
        self.spec = EnvSpec(
            name=name,
            observation=self.observations.spec,
            action=self.actions.spec,
            max_steps=NO_LIMIT if limit is None else limit,
            success_threshold=math.inf if threshold is None else float(threshold),
        )

    def make_vector_env(self, num_envs: int, seed: int) -> "GymnasiumVectorEnv":
        with errors_in_one_line(self.spec.name, "cannot be made"):
            return GymnasiumVectorEnv(self, *self._start(num_envs), seed)

    def _start(self, num_envs: int) -> tuple[VectorEnv, str]:
        """Start environments, with pictures if possible; return them and the reason why they cannot be rendered."""
        obstacle = "it has no render mode 'rgb_array'"
        if (mode := self._kwargs.get("render_mode")) is not None:
            return self._vectorize(num_envs), "" if mode == "rgb_array" else f"its render mode is {mode!r}"
        if self._can_render:
            try:
                return self._vectorize(num_envs, render_mode="rgb_array"), ""
            except Exception as error:  # for example, a package for drawing is missing
                obstacle = one_line(error)
        return self._vectorize(num_envs), obstacle

    def _vectorize(self, num_envs: int, *, processes: bool = True, **options: Any) -> VectorEnv:
        registered, vectorization = gymnasium.registry.get(self.env_id), self.settings.vectorization
        options |= self._kwargs
        if self.settings.max_steps is not None:
            options["max_episode_steps"] = self.settings.max_steps
        if vectorization == ENTRY_POINT or (registered is not None and registered.entry_point is None):
            vector = gymnasium.make_vec(
                self.env_id, num_envs, vectorization_mode=ENTRY_POINT, wrappers=self._wrappers, **options
            )
            if vector.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return vector
            vector.close()
        wrappers = [
            *self._wrappers,
            partial(RestartOnFault, make=partial(_make_one, self.env_id, self._wrappers, options)),
        ]
        vector_kwargs: dict[str, Any] = {"copy": False, "autoreset_mode": AutoresetMode.NEXT_STEP}
        mode = "async" if processes and vectorization == "async" else "sync"
        if mode == "async":
            vector_kwargs |= {"context": "spawn", "worker": worker}  # JAX has threads, so this process must not fork
        vector = gymnasium.make_vec(
            self.env_id, num_envs, vectorization_mode=mode, vector_kwargs=vector_kwargs, wrappers=wrappers, **options,
        )  # fmt: skip
        if isinstance(vector, AsyncVectorEnv):
            vector.error_queue = ErrorQueue(vector)  # pyright: ignore[reportAttributeAccessIssue]
        return vector


class GymnasiumVectorEnv(HostVectorEnv):
    """A vector environment of Gymnasium under our protocol."""

    def __init__(self, env: GymnasiumEnv, vector: VectorEnv, render_obstacle: str, seed: int) -> None:
        self.num_envs = vector.num_envs
        self._env, self._vector, self._render_obstacle = env, vector, render_obstacle
        self._timesteps = TimeStepBuilder(self.num_envs)
        self._is_waiting = False  # for the result of a call
        self._faults: list[tuple[str, str]] = []
        self._native_observation: Any = None  # the last one
        # Gymnasium gives environment i the seed + i: hash the seed, so that batches with close seeds share none.
        self._seed: int | None = int(np.random.SeedSequence(seed % 2**32).generate_state(1)[0]) // 2

    def reset(self) -> TimeStep:
        self._native_observation, infos = self._call(self._vector.reset, seed=self._seed)
        self._faults += read_faults(infos, self.num_envs)[1]
        self._seed = None  # later resets continue the random streams
        return self._timesteps.on_reset(self._env.observations.from_native(self._native_observation))

    def step(self, action: Action) -> TimeStep:
        if self._faults:  # the caller does not handle them
            line, trace = self.pop_faults()[0]
            error = RuntimeError(line)
            error.add_note(trace)
            raise error
        native = self._env.actions.to_native(Action(np.asarray(action.discrete), np.asarray(action.continuous)))
        self._native_observation, reward, terminated, truncated, infos = self._call(self._vector.step, native)
        observation = self._env.observations.from_native(self._native_observation)
        success, (restarted, faults) = success_from_infos(infos, self.num_envs), read_faults(infos, self.num_envs)
        self._faults += faults
        return self._timesteps.on_step(observation, reward, terminated, truncated, success, restarted)

    def pop_faults(self) -> list[tuple[str, str]]:
        faults, self._faults = self._faults, []
        return faults

    def warnings(self) -> list[str]:
        return self._env.warnings(self._native_observation)

    def render(self) -> np.ndarray:
        name = self._env.spec.name
        if self._render_obstacle:
            raise UserError(f"environment {name!r} cannot be rendered: {self._render_obstacle}")
        with errors_in_one_line(name, "cannot be rendered"):
            envs = getattr(self._vector, "envs", None)
            frames = self._vector.render() if envs is None else [envs[0].render()]
            picture = np.asarray(frames[0] if frames else None)
        if picture.ndim != 3 or picture.shape[2] != 3:
            raise UserError(f"environment {name!r} cannot be rendered: its picture has the shape {picture.shape}")
        return picture.astype(np.uint8, copy=False)

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the environments. If a call does not return, `close` cannot ask their processes to close either."""
        self._is_waiting = True
        result = function(*arguments, **options)
        self._is_waiting = False
        return result

    def close(self) -> None:
        if not isinstance(self._vector, AsyncVectorEnv):
            self._vector.close()
            return
        if not self._is_waiting:
            closing = threading.Thread(target=self._ask_to_close, daemon=True)
            closing.start()
            closing.join(EXIT_SECONDS)
        self.abort()

    def _ask_to_close(self) -> None:
        with contextlib.suppress(Exception):  # a worker process has ended
            self._vector.close()

    def abort(self) -> None:
        if isinstance(self._vector, AsyncVectorEnv):
            terminate_all(self._vector.processes, patiently=False)
            self._vector.closed = True


def _make_one(env_id: str, wrappers: list[Callable[[gymnasium.Env], Any]], options: dict[str, Any]) -> gymnasium.Env:
    """Make one environment as `gymnasium.make_vec` does."""
    return reduce(lambda env, wrapper: wrapper(env), wrappers, gymnasium.make(env_id, **options))


def success_from_infos(infos: dict[str, Any], num_envs: int) -> np.ndarray:
    """Read success [E] from a vector environment's infos; UNKNOWN_SUCCESS where they have none.

    A mask (`_is_success`) tells which environments set a value. Some keep the infos of an episode's last step in
    `final_info`, which has priority.
    """
    success = np.full(num_envs, UNKNOWN_SUCCESS, np.int8)
    final = infos.get("final_info")
    for source in (infos, final) if isinstance(final, dict) else (infos,):
        for name in reversed(SUCCESS_NAMES):
            values = np.asarray(source.get(name, ()))
            if values.size == num_envs:
                mask = np.asarray(source.get(f"_{name}", np.ones(num_envs, bool)), bool)
                success[mask] = values.reshape(num_envs)[mask].astype(bool)
    return success


def _wrapper(path: str) -> Callable[[gymnasium.Env], Any]:
    if not is_import_path(path):
        raise UserError(f"gymnasium.wrappers names {path!r}: it must be an import path like my_package:Wrapper")
    return import_object("wrapper", path)


@contextlib.contextmanager
def errors_in_one_line(name: str, what: str) -> Iterator[None]:
    """Turn exceptions into a UserError of one line: an unknown id, a missing package, a fault of the environment."""
    try:
        yield
    except UserError:
        raise
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        raise UserError(f"unknown environment {name!r}: {one_line(error)}") from error
    except gymnasium.error.Error as error:
        raise UserError(f"environment {name!r} {what}: {one_line(error)}") from error
    except Exception as error:
        raise UserError(f"environment {name!r} {what}: {type(error).__name__}: {one_line(error)}") from error


def bounds_checker(space: Space[Any], env: str) -> Callable[[Any], list[str]]:
    """Make a function that describes the entries of native observations outside their space.

    Args:
      space: of one observation.
      env: name of the environment, for messages.

    Returns:
      A function from observations [E, ...] to one text per entry that has a number out of bounds.
    """
    bounded = []  # of the entries that can be out of bounds: text, lowest and highest numbers, keys
    for path, part in iter_leaves(space, SpacePath(env, "observation")):
        title = f"entry {path.name!r} of its observation" if path.keys else "its observation"
        match part:
            case spaces.MultiBinary():
                bounds = 0, 1
            case spaces.Discrete() | spaces.MultiDiscrete():
                counts, start = category_counts(part, path)
                bounds = start, start + counts - 1
            case spaces.Box() if not _is_unbounded(part):
                bounds = part.low, part.high
            case _:
                continue
        bounded.append((f"{title} lies outside of {one_line(part, 100)}", *bounds, path.keys))

    def warnings(native: Any) -> list[str]:
        arrays = [(text, low, high, reduce(getitem, keys, native)) for text, low, high, keys in bounded]
        return [text for text, low, high, array in arrays if np.any(array < low) or np.any(array > high)]

    return warnings


def _is_unbounded(space: spaces.Box) -> bool:
    """Return True if the dtype of a space has no numbers outside its bounds."""
    if space.dtype.kind not in "iu":
        return bool(np.all(np.isinf(space.low) & np.isinf(space.high)))
    limits = np.iinfo(space.dtype.name)
    return bool(np.all(space.low == limits.min) and np.all(space.high == limits.max))


def worker(*arguments: Any) -> None:
    """Run Gymnasium's own worker; ignore Ctrl-C and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        kill_on_parent_exit(parent.pid)
    _async_worker(*arguments)


class ErrorQueue:
    """Replaces the queue of errors of Gymnasium's vector environment: raises the first with the worker's traceback."""

    # Gymnasium would print the error and raise one that does not name its origin.

    def __init__(self, vector: AsyncVectorEnv) -> None:
        self._queue = vector.error_queue

    def get(self) -> Any:
        index, kind, value, trace = self._queue.get()
        error = RuntimeError(f"environment {index} of the batch: {kind.__name__}: {one_line(value)}")
        error.add_note(str(trace))
        raise error
