"""Environments outside jit for tests of the runtime: every step is known, and hooks fail or wait at any of them.

Also worlds inside jit seen from outside. For tests of evaluation `hosts.py` has one that pays by the action.
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
from byol_explore.envs.base import Environment, EnvSpec, VectorEnv
from byol_explore.envs.host import Boundaries, HostEnvironment
from byol_explore.runtime.processes import ALONE, Processes
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.runtime.sources import Source
from byol_explore.settings.config import Config
from byol_explore.settings.parts import LogConfig, RuntimeConfig, VMPOConfig
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, Device, TimeStep

ACTIONS = 3
PATIENCE = 300.0  # seconds that a loaded machine is given before a test fails
NONSENSE = 1e6  # reward at the step that only resets


class Episode(NamedTuple):
    length: int
    terminated: bool
    truncated: bool


# Environment i begins with the i-th and goes on from there, round and round.
EPISODES = (
    Episode(3, terminated=True, truncated=False),
    Episode(1, terminated=False, truncated=True),
    Episode(5, terminated=True, truncated=True),
    Episode(2, terminated=False, truncated=True),
    Episode(4, terminated=True, truncated=False),
)


class Moment(NamedTuple):
    """A point in the life of a scripted environment, and what its observation shows of it."""

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
        """Small numbers that are exact in float32."""
        return np.asarray(self, np.float32) / np.float32(64)


def seen(observation: np.ndarray) -> np.ndarray:
    """[..., 4] the numbers of the moments that observations show."""
    return np.rint(np.asarray(observation) * 64).astype(int)


def timeline(env: int, steps: int) -> list[Moment]:
    """What an environment goes through, written down episode by episode."""
    moments: list[Moment] = []
    for episode in itertools.count():
        length = EPISODES[(env + episode) % len(EPISODES)].length
        moments += [Moment(env, episode, time, len(moments) + time) for time in range(length + 1)]
        if len(moments) > steps:
            return moments[: steps + 1]


def payment(action: int, time: int) -> float:
    """The reward of a step that led to a time."""
    return action + 1 + time / 8


Hook = Callable[[str, int], None]


class Scripted:
    """Plays `EPISODES`. Before it starts a batch, resets or steps it tells the hook, and how often it has done so.

    The arrays of a time step are overwritten by the next one.
    """

    def __init__(self, hook: Hook = lambda event, count: None, name: str = "scripted", actions: int = ACTIONS) -> None:
        self.spec = EnvSpec(
            name, Vector(4), ActionSpec(discrete=(actions,)), max_steps=5,
            success_above=8.0, rooms=("room",), position=("x",),
        )  # fmt: skip
        self.hook = hook
        self.batches: list[ScriptedBatch] = []

    def batch(self, num_envs: int, seed: int) -> "ScriptedBatch":
        self.hook("batch", len(self.batches))
        self.batches.append(ScriptedBatch(self, num_envs, seed))
        return self.batches[-1]

    @property
    def still_open(self) -> int:
        return sum(not batch.closed for batch in self.batches)


class ScriptedBatch:
    def __init__(self, world: Scripted, num_envs: int, seed: int) -> None:
        self.world, self.num_envs, self.seed = world, num_envs, seed
        self.count, self.resets, self.closed = 0, 0, 0
        self._boundaries = Boundaries(num_envs)
        self._moments = [Moment(env, 0, 0, 0) for env in range(num_envs)]
        self._answer: TimeStep | None = None

    def reset(self) -> TimeStep:
        self.world.hook("reset", self.resets)
        self.resets += 1
        self._moments = [Moment(env, 0, 0, 0) for env in range(self.num_envs)]
        return self._give(self._boundaries.first(self._observe()))

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
        return self._give(self._boundaries.next(self._observe(), reward, terminated, truncated))

    def places(self) -> np.ndarray:
        """The room is the episode, the position the time."""
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
    """A hook that fails once, at the count-th event of a kind."""

    def hook(happening: str, number: int) -> None:
        if (happening, number) == (event, count):
            raise error

    return hook


class Gate:
    """A hook that lets so many steps pass and then waits for more to be allowed."""

    def __init__(self, steps: int = 0) -> None:
        self._allowed = threading.Semaphore(steps)

    def allow(self, steps: int) -> None:
        self._allowed.release(steps)

    def __call__(self, event: str, count: int) -> None:
        if event == "step" and not self._allowed.acquire(timeout=PATIENCE):
            raise TimeoutError("nobody opened the gate")


class Outside:
    """A world inside jit as one outside of it; with a key, its episodes are those of that key and no seed's."""

    def __init__(self, env: Environment, key: Array | None = None) -> None:
        self.env, self.key, self.spec = env, key, env.spec
        self._compiled = functools.cache(self._compile)

    def batch(self, num_envs: int, seed: int) -> "OutsideBatch":
        key = jax.random.key(seed) if self.key is None else self.key
        return OutsideBatch(*self._compiled(num_envs), num_envs, key)

    def _compile(self, num_envs: int) -> tuple[Callable, Callable]:
        envs = VectorEnv([self.env], num_envs)
        return jax.jit(envs.reset), jax.jit(envs.step)


class OutsideBatch:
    def __init__(self, reset: Callable, step: Callable, num_envs: int, key: Array) -> None:
        self._reset, self._step, self.num_envs, self._key = reset, step, num_envs, key
        self.closed = False

    def reset(self) -> TimeStep:
        self._states, timestep = self._reset(self._key)
        return jax.device_get(timestep)

    def step(self, action: Action) -> TimeStep:
        self._states, timestep = self._step(self._states, action)
        return jax.device_get(timestep)

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


# Small runs

ENVS, BATCH, LENGTH = 4, 2, 4
STEPS = LENGTH - 1  # of every environment in a rollout
UPDATES = ENVS // BATCH  # in a round
LOADS = {"learner_wait", "actor_wait", "actor_env", "actor_inference"}  # metrics that differ between equal runs


def host_config(**runtime: Any) -> Config:
    """A target policy that changes within a few rollouts; no look at the world before, which tests count steps in."""
    sizes = {"num_envs": ENVS, "batch_size": BATCH, "sequence_length": LENGTH, "rollouts_per_dispatch": 1, "devices": 1}
    small = small_config(horizon=2)
    return dataclasses.replace(
        small,
        env="scripted",
        network=dataclasses.replace(small.network, center=False),
        vmpo=VMPOConfig(target_period=3),
        runtime=RuntimeConfig(**{**sizes, **runtime}),
    )


class QuickSebulba(Sebulba):
    """Compiles only once for all runs whose learners do the same."""

    _compiled: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, config: Config, envs: Sequence[HostEnvironment], learners: Sequence[Device] | None = None,
                 actors: Sequence[Device] | None = None, source: Source | None = None, processes: Processes = ALONE,
                 ) -> None:  # fmt: skip
        super().__init__(config, envs, learners, actors, source, processes)
        sizes = RuntimeConfig(batch_size=config.runtime.batch_size, sequence_length=config.runtime.sequence_length)
        same = dataclasses.replace(config, env="", runtime=sizes, seed=0, steps=1, log=LogConfig())
        same = (
            same,
            len(envs),
            str(self.envs[0].spec.observation),
            self.envs[0].spec.action,
            self.learner.stored_is_target,
        )
        self._init = self._compiled.setdefault(same, self._init)
        self._update = self._compiled.setdefault((same, tuple(self.mesh.devices.flat)), self._update)
