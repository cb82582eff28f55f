"""Environments that sleep instead of computing, with pictures as large as Atari's: what is left is the engine's cost.

Light: processes import this that do without JAX.
"""

import time

import numpy as np

from byol_explore.envs.host import Boundaries
from byol_explore.envs.protocols import EnvSpec
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import Action, TimeStep

SIZE = 84
EPISODE = 1000  # steps


class Sleeping:
    """A step takes some milliseconds, give or take a share of them; those of a batch sleep at the same time."""

    def __init__(self, milliseconds: str = "20", jitter: str = "0.25") -> None:
        self.seconds, self.jitter = float(milliseconds) / 1000, float(jitter)
        self.spec = EnvSpec("sleeping", Image(SIZE, SIZE, 1), ActionSpec(discrete=(18,)), max_steps=EPISODE)

    def batch(self, num_envs: int, seed: int) -> "SleepingBatch":
        return SleepingBatch(self, num_envs, seed)


class SleepingBatch:
    def __init__(self, env: Sleeping, num_envs: int, seed: int) -> None:
        self.num_envs, self._env, self._random = num_envs, env, np.random.default_rng(seed)
        self._boundaries, self._count = Boundaries(num_envs), 0
        self._picture = self._random.integers(0, 256, (num_envs, SIZE, SIZE, 1), np.uint8)

    def reset(self) -> TimeStep:
        return self._boundaries.first(self._picture)

    def step(self, action: Action) -> TimeStep:
        time.sleep(self._env.seconds * (1 + self._env.jitter * self._random.uniform(-1, 1)))
        self._count += 1
        self._picture[:, 0, 0, 0] = self._count % 256
        nothing = np.zeros(self.num_envs, bool)
        return self._boundaries.next(self._picture, nothing, nothing, nothing | (self._count % EPISODE == 0))

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        return np.repeat(self._picture[0], 3, axis=-1)

    def close(self) -> None: ...
