"""EnvPool's environments: vectorised C++ under our protocol.

EnvPool resets in Gymnasium's NEXT_STEP mode: the step that ends an episode shows its true last observation, and the
next call ignores that environment's action and shows the first observation of a new episode. So time steps need no
correction, only the bookkeeping of `TimeStepBuilder`.
"""

import difflib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import envpool  # pyright: ignore[reportMissingImports]
import numpy as np
from gymnasium import spaces

from byol_explore.envs.gymnasium_env import errors_in_one_line, success_from_infos
from byol_explore.envs.gymnasium_spaces import (
    TEXT,
    ActionConverter,
    ObservationConverter,
    convert_action_space,
    convert_observation_space,
    hash_tokens,
)
from byol_explore.envs.host_vector import TimeStepBuilder
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.errors import UserError
from byol_explore.types import Action, TimeStep
from byol_explore.utils.processes import available_cores

PREFIX = "envpool:"
RESERVED = ("num_envs", "batch_size", "seed", "env_type", "render_mode", "gym_reset_return_info")  # of envpool.make
MINIGRID_SYMBOLS = (11, 6, 4)  # objects, colours, and states of doors or directions, as in Farama's MiniGrid
_MINIGRID_SPEC = "MiniGridEnvSpec"  # class of the specs of MiniGrid-... and BabyAI-...
_UNLIMITED = 2**31 - 1  # EnvPool's number of steps of an episode without a limit; others have 0
_NO_LIMIT = 100_000  # steps of an episode that is assumed then
_CLOSE = 3  # similar IDs that the message about an unknown one names

REFUSED = {  # by the beginning of an ID, or the class of its specs
    # With EnvPool 1.2.5 a way to the goal was in 14% of 200 layouts of N4-S5, and in 30% of those of N6.
    "MiniGrid-MultiRoom-": "EnvPool puts doors into the corners of rooms, so that most layouts have no way to the "
    "goal; Farama's own is gymnasium:minigrid:{env_id}",
    "VizdoomEnvSpec": "it writes into the working directory and may crash this process",
}


class EnvPoolEnv(HostEnvironment):
    """An environment that EnvPool has registered."""

    def __init__(self, env_id: str, kwargs: Mapping[str, Any] | None = None, num_actors: int = 1) -> None:
        """Describe an environment; none is started.

        Args:
          env_id: one of `envpool.list_all_envs()`.
          kwargs: of `envpool.make`, such as num_threads and max_episode_steps.
          num_actors: number of actors that share the cores of this machine, each with a pool of threads.
        """
        name = PREFIX + env_id
        _check(name, env_id, kwargs or {})
        self.env_id = env_id
        self._kwargs = {"num_threads": max(1, available_cores() // num_actors), **(kwargs or {})}
        with errors_in_one_line(name, "cannot be made"):
            native = envpool.make_spec(env_id, **self._kwargs)
            refusals = [why for key, why in REFUSED.items() if key == type(native).__name__ or env_id.startswith(key)]
            players, limit = native.config.max_num_players, native.config.max_episode_steps
            threshold = getattr(native, "reward_threshold", None)
            observation_space, action_space = native.observation_space, native.action_space
        if refusals:
            raise UserError(f"environment {name!r} is not supported: {refusals[0].format(env_id=env_id)}")
        if players > 1:
            raise UserError(f"environment {name!r} has {players} players: only environments with one are supported")
        self.actions: ActionConverter = convert_action_space(action_space, name)
        is_minigrid = type(native).__name__ == _MINIGRID_SPEC
        self.observations = _observations(observation_space, name, is_minigrid=is_minigrid)
        success = 0.0 if is_minigrid else math.inf  # in MiniGrid only a success is rewarded
        self.spec = EnvSpec(
            name=name,
            observation=self.observations.spec,
            action=self.actions.spec,
            max_steps=limit if 0 < limit < _UNLIMITED else _NO_LIMIT,
            success_threshold=success if threshold is None else float(threshold),
        )

    def make_vector_env(self, num_envs: int, seed: int) -> "EnvPoolVectorEnv":
        # EnvPool gives environment i the seed + i: hash the seed, so that batches with close seeds share none.
        hashed = int(np.random.SeedSequence(seed % 2**32).generate_state(1)[0]) // 2
        with errors_in_one_line(self.spec.name, "cannot be made"):
            pool = envpool.make(
                self.env_id, env_type="gymnasium", num_envs=num_envs, seed=hashed, render_mode="rgb_array",
                **self._kwargs,
            )  # fmt: skip
        return EnvPoolVectorEnv(self, pool, num_envs)


class EnvPoolVectorEnv(HostVectorEnv):
    """A pool whose environments are all stepped at every call."""

    def __init__(self, env: EnvPoolEnv, pool: Any, num_envs: int) -> None:
        self.num_envs = num_envs
        self._env, self._pool = env, pool
        self._timesteps = TimeStepBuilder(num_envs)

    def reset(self) -> TimeStep:
        observation, _ = self._pool.reset()
        return self._timesteps.on_reset(self._env.observations.from_native(observation))

    def step(self, action: Action) -> TimeStep:
        native = self._env.actions.to_native(Action(np.asarray(action.discrete), np.asarray(action.continuous)))
        observation, reward, terminated, truncated, infos = self._pool.step(native)
        success = success_from_infos(infos, self.num_envs)
        return self._timesteps.on_step(
            self._env.observations.from_native(observation), reward, terminated, truncated, success
        )

    def render(self) -> np.ndarray:
        with errors_in_one_line(self._env.spec.name, "cannot be rendered"):
            return np.asarray(self._pool.render(env_ids=0))[0].astype(np.uint8, copy=False)

    def close(self) -> None:
        self._pool.close()


def _check(name: str, env_id: str, kwargs: Mapping[str, Any]) -> None:
    """Raise a UserError for an unknown ID, and for a keyword argument that is not the user's to give."""
    known = envpool.list_all_envs()
    if env_id not in known:
        close = difflib.get_close_matches(env_id, known, _CLOSE)
        similar = f"similar ones are {', '.join(PREFIX + each for each in close)}" if close else "none is similar"
        raise UserError(f"unknown environment {name!r}: EnvPool has {len(known):,} IDs; {similar}")
    for word in kwargs:
        if word in RESERVED:
            raise UserError(f"env_kwargs names {word!r}, which is not one of {name!r} to give: it follows from others")


def _observations(space: spaces.Space[Any], name: str, *, is_minigrid: bool) -> ObservationConverter:
    """Convert an observation space; missions of MiniGrid are bytes, which become the tokens of their words."""
    if not is_minigrid or not isinstance(space, spaces.Dict):
        return convert_observation_space(space, name)
    others = spaces.Dict({key: part for key, part in space.spaces.items() if key != "mission"})
    converter = convert_observation_space(others, name, {"image": MINIGRID_SYMBOLS})

    def from_native(native: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        missions = [_mission_tokens(row.tobytes()) for row in native["mission"]]
        return {**converter.from_native(native), "mission": np.stack(missions)}

    return ObservationConverter({**converter.spec, "mission": TEXT}, from_native)


@lru_cache(maxsize=4096)  # missions repeat in every episode
def _mission_tokens(padded: bytes) -> np.ndarray:
    """Return the tokens [32] of a mission in bytes that is padded with zeros."""
    return np.asarray(hash_tokens(padded.rstrip(b"\0").decode(errors="replace")), TEXT.dtype)
