"""Gymnasium's environments: `gymnasium:CartPole-v1` and every other registered id, vectorised by Gymnasium itself."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from byol_explore.envs.adapters.farama_minigrid import symbols_of
from byol_explore.envs.adapters.gymnasium_doubts import doubts_of
from byol_explore.envs.adapters.gymnasium_processes import abort, close_in_time, hear_errors, worker
from byol_explore.envs.adapters.gymnasium_settings import ENTRY_POINT, GymnasiumSettings
from byol_explore.envs.adapters.gymnasium_spaces import actions_of, observations_of
from byol_explore.envs.host import Boundaries
from byol_explore.envs.protocols import EnvSpec
from byol_explore.errors import UserError, one_line
from byol_explore.extras import needed_by
from byol_explore.registry import import_part, is_import_path
from byol_explore.types import UNSAID, Action, TimeStep

PREFIX = "gymnasium:"
SUCCESS_NAMES = ("is_success", "success")  # in infos, the first goes before
NO_LIMIT = 100_000  # steps that an episode without a registered limit is taken to have at most


class Gymnasium:
    """A registered environment."""

    def __init__(self, env_id: str, settings: GymnasiumSettings | None = None) -> None:
        self.env_id, self.settings = env_id, settings or GymnasiumSettings()
        self._wrappers = [_wrapper(path) for path in self.settings.wrappers]
        name = PREFIX + env_id
        with (
            _in_one_line(name, "cannot be made"),
            needed_by(name),
            contextlib.closing(self._vectorize(1, processes=False)) as probe,
        ):
            self.actions = actions_of(probe.single_action_space, name)
            parts = getattr(probe, "envs", None)  # of an environment that vectorises itself there are none
            symbols = symbols_of(parts[0]) if parts else {}
            self.observations = observations_of(probe.single_observation_space, name, symbols)
            self.doubts = doubts_of(probe.single_observation_space, name)
            self._can_render = "rgb_array" in (probe.metadata.get("render_modes") or ())
            registered = probe.spec
        limit = self.settings.max_steps or (registered.max_episode_steps if registered else None)
        threshold = registered.reward_threshold if registered else None
        self._spec = EnvSpec(
            name=name,
            observation=self.observations.spec,
            action=self.actions.spec,
            max_steps=NO_LIMIT if limit is None else limit,
            success_above=math.inf if threshold is None else float(threshold),
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def batch(self, num_envs: int, seed: int) -> "GymnasiumBatch":
        with _in_one_line(self._spec.name, "cannot be made"):
            return GymnasiumBatch(self, *self._start(num_envs), seed)

    def _start(self, num_envs: int) -> tuple[VectorEnv, str]:
        """Environments, ready to be rendered if they can be, or the reason why not. They draw only when asked to."""
        why_not = "it has no render mode 'rgb_array'"
        if (chosen := self.settings.kwargs.get("render_mode")) is not None:
            return self._vectorize(num_envs), "" if chosen == "rgb_array" else f"its render mode is {chosen!r}"
        if self._can_render:
            try:
                return self._vectorize(num_envs, render_mode="rgb_array"), ""
            except Exception as error:  # for example, what it draws with is not installed
                why_not = one_line(error)
        return self._vectorize(num_envs), why_not

    def _vectorize(self, num_envs: int, *, processes: bool = True, **settings: Any) -> VectorEnv:
        registered, vectorization = gymnasium.registry.get(self.env_id), self.settings.vectorization
        settings |= self.settings.kwargs
        if self.settings.max_steps is not None:
            settings["max_episode_steps"] = self.settings.max_steps
        if vectorization == ENTRY_POINT or (registered is not None and registered.entry_point is None):
            env = gymnasium.make_vec(
                self.env_id, num_envs, vectorization_mode=ENTRY_POINT, wrappers=self._wrappers, **settings
            )
            if env.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return env
            env.close()
        options: dict[str, Any] = {"copy": False, "autoreset_mode": AutoresetMode.NEXT_STEP}
        mode = "async" if processes and vectorization == "async" else "sync"
        if mode == "async":
            options |= {"context": "spawn", "worker": worker}  # JAX has threads, which a fork would tear
        vector = gymnasium.make_vec(
            self.env_id, num_envs, vectorization_mode=mode, vector_kwargs=options, wrappers=self._wrappers, **settings
        )
        return hear_errors(vector) if isinstance(vector, AsyncVectorEnv) else vector


class GymnasiumBatch:
    """Environments that are stepped together."""

    def __init__(self, env: Gymnasium, vector: VectorEnv, cannot_render: str, seed: int) -> None:
        self.num_envs = vector.num_envs
        self._env, self._vector, self._cannot_render = env, vector, cannot_render
        self._boundaries = Boundaries(self.num_envs)
        self._is_waiting = False  # for an answer
        self._native: Any = None  # the last observation
        # Gymnasium numbers environments from the seed on: seeds next to each other must not share any.
        self._seed: int | None = int(np.random.SeedSequence(seed % 2**32).generate_state(1)[0]) // 2

    def reset(self) -> TimeStep:
        native, _ = self._answer(self._vector.reset, seed=self._seed)
        self._native = native
        self._seed = None  # later episodes are other ones, drawn from the same streams
        return self._boundaries.first(self._env.observations.read(native))

    def step(self, action: Action) -> TimeStep:
        native = self._env.actions.native(Action(np.asarray(action.discrete), np.asarray(action.continuous)))
        observation, reward, terminated, truncated, infos = self._answer(self._vector.step, native)
        self._native = observation
        success = told_success(infos, self.num_envs)
        return self._boundaries.next(self._env.observations.read(observation), reward, terminated, truncated, success)

    def doubts(self) -> list[str]:
        return self._env.doubts(self._native)

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        name = self._env.spec.name
        if self._cannot_render:
            raise UserError(f"environment {name!r} cannot be rendered: {self._cannot_render}")
        with _in_one_line(name, "cannot be rendered"):
            envs = getattr(self._vector, "envs", None)
            frames = self._vector.render() if envs is None else [envs[0].render()]
            picture = np.asarray(frames[0] if frames else None)
        if picture.ndim != 3 or picture.shape[2] != 3:
            raise UserError(f"environment {name!r} cannot be rendered: its picture has the shape {picture.shape}")
        return picture.astype(np.uint8, copy=False)

    def _answer(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What the environments answer; if one cannot, its process cannot be asked to close either."""
        self._is_waiting = True
        answer = call(*arguments, **options)
        self._is_waiting = False
        return answer

    def close(self) -> None:
        if not isinstance(self._vector, AsyncVectorEnv):
            self._vector.close()
        elif self._is_waiting:
            abort(self._vector)
        else:
            close_in_time(self._vector)

    def abort(self) -> None:
        if isinstance(self._vector, AsyncVectorEnv):
            abort(self._vector)


def told_success(infos: dict[str, Any], num_envs: int) -> np.ndarray:
    """[E] what a vector environment's infos say by the names that are in use, UNSAID where they say nothing.

    A mask (`_is_success`) tells which environments said something. Some keep the infos of an episode's last step in
    `final_info`, which then goes before.
    """
    told = np.full(num_envs, UNSAID, np.int8)
    final = infos.get("final_info")
    for source in (infos, final) if isinstance(final, dict) else (infos,):
        for name in reversed(SUCCESS_NAMES):
            values = np.asarray(source.get(name, ()))
            if values.size == num_envs:
                mask = np.asarray(source.get(f"_{name}", np.ones(num_envs, bool)), bool)
                told[mask] = values.reshape(num_envs)[mask].astype(bool)
    return told


def _wrapper(path: str) -> Callable[[gymnasium.Env], Any]:
    if not is_import_path(path):
        raise UserError(f"env_settings.wrappers names {path!r}: it must be an import path like my_package:Wrapper")
    return import_part("wrapper", path)


@contextlib.contextmanager
def _in_one_line(name: str, what: str) -> Iterator[None]:
    """Whatever goes wrong in here is the user's to mend: an unknown id, a missing package, the environment itself."""
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
