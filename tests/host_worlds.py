"""Environments outside jit for tests of the runtime: every step is known, and hooks may fail or wait at each.

Also adapters of environments inside jit. `hosts.py` has an environment for tests of evaluation.
"""

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from builders import small_config
from byol_explore.config.config import Config
from byol_explore.config.sections import LogConfig, RuntimeConfig, VMPOConfig
from byol_explore.envs.host_vector import TimeStepBuilder
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv, JitEnvironment
from byol_explore.envs.vector import VectorEnv
from byol_explore.runtime.actor_threads import RolloutSource
from byol_explore.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, Device, TimeStep

ACTIONS = 3
PATIENCE = 300.0  # seconds before a test on a loaded machine fails
NONSENSE = 1e6  # reward at the step that only resets


class Episode(NamedTuple):
    length: int
    terminated: bool
    truncated: bool


# Environment i begins with the i-th and repeats the sequence.
EPISODES = (
    Episode(3, terminated=True, truncated=False),
    Episode(1, terminated=False, truncated=True),
    Episode(5, terminated=True, truncated=True),
    Episode(2, terminated=False, truncated=True),
    Episode(4, terminated=True, truncated=False),
)


class Moment(NamedTuple):
    """State of a scripted environment; the observation has all of it."""

    env: int
    episode: int
    time: int
    count: int  # steps since the batch was started

    @property
    def script(self) -> Episode:
        return EPISODES[(self.env + self.episode) % len(EPISODES)]

    @property
    def is_last(self) -> bool:
        return self.time == self.script.length

    def observation(self) -> np.ndarray:
        """Return small numbers that are exact in float32."""
        return np.asarray(self, np.float32) / np.float32(64)


def seen(observation: np.ndarray) -> np.ndarray:
    """Read the states [..., 4] from observations."""
    return np.rint(np.asarray(observation) * 64).astype(int)


def timeline(env: int, steps: int) -> list[Moment]:
    """Return the states of an environment over scripted episodes."""
    moments: list[Moment] = []
    for episode in itertools.count():
        length = EPISODES[(env + episode) % len(EPISODES)].length
        moments += [Moment(env, episode, time, len(moments) + time) for time in range(length + 1)]
        if len(moments) > steps:
            return moments[: steps + 1]


def payment(action: int, time: int) -> float:
    """Return the reward of a step to this time."""
    return action + 1 + time / 8


Hook = Callable[[str, int], None]


class Scripted(HostEnvironment):
    """Plays `EPISODES`. Calls the hook with the event and its count before it starts a batch, resets or steps.

    The arrays of a time step are overwritten by the next one.
    """

    def __init__(self, hook: Hook = lambda event, count: None, name: str = "scripted", actions: int = ACTIONS) -> None:
        self.spec = EnvSpec(
            name, Vector(4), ActionSpec(discrete=(actions,)), max_steps=5,
            success_threshold=8.0, room_fields=("room",), position_fields=("x",),
        )  # fmt: skip
        self.hook = hook
        self.batches: list[ScriptedBatch] = []

    def make_vector_env(self, num_envs: int, seed: int) -> "ScriptedBatch":
        self.hook("batch", len(self.batches))
        self.batches.append(ScriptedBatch(self, num_envs, seed))
        return self.batches[-1]

    @property
    def still_open(self) -> int:
        return sum(not batch.closed for batch in self.batches)


class ScriptedBatch(HostVectorEnv):
    def __init__(self, world: Scripted, num_envs: int, seed: int) -> None:
        self.world, self.num_envs, self.seed = world, num_envs, seed
        self.count, self.resets, self.closed = 0, 0, 0
        self._boundaries = TimeStepBuilder(num_envs)
        self._moments = [Moment(env, 0, 0, 0) for env in range(num_envs)]
        self._answer: TimeStep | None = None

    def reset(self) -> TimeStep:
        self.world.hook("reset", self.resets)
        self.resets += 1
        self._moments = [Moment(env, 0, 0, 0) for env in range(self.num_envs)]
        return self._give(self._boundaries.on_reset(self._observe()))

    def step(self, action: Action) -> TimeStep:
        self.world.hook("step", self.count)
        self.count += 1
        before = self._moments
        self._moments = [
            Moment(m.env, m.episode + 1, 0, self.count) if m.is_last else m._replace(time=m.time + 1, count=self.count)
            for m in before
        ]
        pairs = list(zip(self._moments, action.discrete[:, 0].tolist(), strict=True))
        reward = np.array([payment(choice, m.time) if m.time else NONSENSE for m, choice in pairs])
        terminated = np.array([m.script.terminated if m.is_last else m.time == 0 for m in self._moments])
        truncated = np.array([m.script.truncated if m.is_last else m.time == 0 for m in self._moments])
        return self._give(self._boundaries.on_step(self._observe(), reward, terminated, truncated))

    def positions(self) -> np.ndarray:
        """Return the episode as the room and the time as the position."""
        return np.array([[m.episode % 256, 8 * m.time] for m in self._moments], np.int32)

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self._moments[0].time, np.uint8)

    def close(self) -> None:
        self.closed += 1

    def _observe(self) -> np.ndarray:
        return np.stack([m.observation() for m in self._moments])

    def _give(self, answer: TimeStep) -> TimeStep:
        if self._answer is None:
            self._answer = jax.tree.map(np.array, answer)
        for kept, new in zip(self._answer, answer, strict=True):
            kept[:] = new
        return self._answer


def crash(event: str, count: int, error: BaseException) -> Hook:
    """Make a hook that raises once, at the count-th event of a kind."""

    def hook(happening: str, number: int) -> None:
        if (happening, number) == (event, count):
            raise error

    return hook


class Gate:
    """A hook that allows a number of steps and then waits until more are allowed."""

    def __init__(self, steps: int = 0) -> None:
        self._allowed = threading.Semaphore(steps)

    def allow(self, steps: int) -> None:
        self._allowed.release(steps)

    def __call__(self, event: str, count: int) -> None:
        if event == "step" and not self._allowed.acquire(timeout=PATIENCE):
            raise TimeoutError("no further step was allowed")


class Outside(HostEnvironment):
    """An environment inside jit as one outside jit; `key` fixes its episodes for all seeds."""

    def __init__(self, env: JitEnvironment, key: Array | None = None) -> None:
        self.env, self.key, self.spec = env, key, env.spec
        self._compiled = functools.cache(self._compile)

    def make_vector_env(self, num_envs: int, seed: int) -> "OutsideBatch":
        key = jax.random.key(seed) if self.key is None else self.key
        return OutsideBatch(*self._compiled(num_envs), num_envs, key)

    def _compile(self, num_envs: int) -> tuple[Callable, Callable]:
        envs = VectorEnv([self.env], num_envs)
        return jax.jit(envs.reset), jax.jit(envs.step)


class OutsideBatch(HostVectorEnv):
    def __init__(self, reset: Callable, step: Callable, num_envs: int, key: Array) -> None:
        self._reset, self._step, self.num_envs, self._key = reset, step, num_envs, key
        self.closed = False

    def reset(self) -> TimeStep:
        self._states, timestep = self._reset(self._key)
        return jax.device_get(timestep)

    def step(self, action: Action) -> TimeStep:
        self._states, timestep = self._step(self._states, action)
        return jax.device_get(timestep)

    def render(self) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


# Small runs

ENVS, BATCH, LENGTH = 4, 2, 4
STEPS = LENGTH - 1  # of every environment in a rollout
UPDATES = ENVS // BATCH  # in a round
LOADS = {
    "learner_idle_fraction",
    "actor_idle_fraction",
    "actor_env_fraction",
    "actor_inference_fraction",
}  # metrics that differ between equal runs


def host_config(**runtime: Any) -> Config:
    """Make a configuration with a target policy that changes often, and without warm-up steps: tests count steps."""
    sizes = {
        "num_envs": ENVS,
        "batch_size": BATCH,
        "sequence_length": LENGTH,
        "rounds_per_dispatch": 1,
        "num_devices": 1,
        "max_env_restarts": 0,
    }
    small = small_config(horizon=2)
    return dataclasses.replace(
        small,
        env="scripted",
        network=dataclasses.replace(small.network, center_encoders=False),
        vmpo=VMPOConfig(target_period=3),
        runtime=RuntimeConfig(**{**sizes, **runtime}),
    )


class QuickSebulba(Sebulba):
    """Compiles once for all runs with equal learners."""

    _compiled: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, config: Config, envs: Sequence[HostEnvironment], learners: Sequence[Device] | None = None,
                 actors: Sequence[Device] | None = None, source: RolloutSource | None = None,
                 processes: ProcessGroup = SINGLE_PROCESS,
                 ) -> None:  # fmt: skip
        super().__init__(config, envs, learners, actors, source, processes)
        sizes = RuntimeConfig(batch_size=config.runtime.batch_size, sequence_length=config.runtime.sequence_length)
        same = dataclasses.replace(config, env="", runtime=sizes, seed=0, steps=1, log=LogConfig())
        same = (
            same,
            len(envs),
            str(self.envs[0].spec.observation),
            self.envs[0].spec.action,
            self.learner.behaviour_is_target,
        )
        self._init = self._compiled.setdefault(same, self._init)
        self._update = self._compiled.setdefault((same, tuple(self.mesh.devices.flat)), self._update)
