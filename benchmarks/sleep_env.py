"""A host environment that sleeps in each step, with images of Atari's size, to measure the cost of the runtime.

Does not import JAX, because actor processes without JAX import it.
"""

import time

import numpy as np

from byol_explore.envs.host_vector import TimeStepBuilder
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import Action, TimeStep

SIZE = 84  # pixels
EPISODE = 1000  # steps


class SleepEnv(HostEnvironment):
    """A step takes `milliseconds`, plus or minus the share `jitter` at random. A batch sleeps once for all members."""

    def __init__(self, milliseconds: str = "20", jitter: str = "0.25") -> None:
        self.seconds, self.jitter = float(milliseconds) / 1000, float(jitter)
        self.spec = EnvSpec("sleep", Image(SIZE, SIZE, 1), ActionSpec(discrete=(18,)), max_steps=EPISODE)

    def make_vector_env(self, num_envs: int, seed: int) -> "SleepVectorEnv":
        return SleepVectorEnv(self, num_envs, seed)


class SleepVectorEnv(HostVectorEnv):
    """All members share one clock."""

    def __init__(self, env: SleepEnv, num_envs: int, seed: int) -> None:
        self.num_envs, self._env, self._random = num_envs, env, np.random.default_rng(seed)
        self._builder, self._count = TimeStepBuilder(num_envs), 0
        self._image = self._random.integers(0, 256, (num_envs, SIZE, SIZE, 1), np.uint8)

    def reset(self) -> TimeStep:
        return self._builder.on_reset(self._image)

    def step(self, action: Action) -> TimeStep:
        time.sleep(self._env.seconds * (1 + self._env.jitter * self._random.uniform(-1, 1)))
        self._count += 1
        self._image[:, 0, 0, 0] = self._count % 256
        no = np.zeros(self.num_envs, bool)
        return self._builder.on_step(self._image, no, no, no | (self._count % EPISODE == 0))

    def render(self) -> np.ndarray:
        return np.repeat(self._image[0], 3, axis=-1)
