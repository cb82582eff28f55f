"""A Gymnasium environment with wide observations, whose rollouts go through Ray's object store: `Wide-v0`."""

import gymnasium
import numpy as np
from gymnasium import spaces

from unruly import LENGTH, Unruly

WIDTH = 1 << 16  # numbers; a rollout of them is too large for Ray to send without its store


class Wide(Unruly):
    observation_space = spaces.Box(-1.0, 1.0, (WIDTH,), np.float32)

    def _observation(self) -> np.ndarray:
        return np.full(WIDTH, self.time / LENGTH, np.float32)


gymnasium.register("Wide-v0", entry_point=Wide)
