"""Time RLeXplore's bonuses for `dropin.py`, in a Python with rllte-core; byol_explore need not be installed there."""

import json
import statistics
import sys
import time

import numpy as np
import torch
from gymnasium import spaces


class Envs:
    """Vector environment that RLeXplore's constructors step."""

    def __init__(self, num_envs: int, features: int, actions: int) -> None:
        self.num_envs, self.unwrapped = num_envs, self
        self.observation_space, self.action_space = spaces.Box(-5.0, 5.0, (features,)), spaces.Discrete(actions)

    def reset(self) -> tuple[torch.Tensor, dict]:
        return torch.randn(self.num_envs, *self.observation_space.shape), {}

    def step(self, action: object) -> tuple[torch.Tensor, None, None, None, dict]:
        return self.reset()[0], None, None, None, {}


def main() -> None:
    """Print the median seconds of each bonus to compute rewards of a rollout and learn from it once."""
    from rllte.xplore.reward import ICM, RND

    threads, steps, num_envs, features, actions, rounds = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    size = (steps, num_envs)
    samples = {
        "observations": torch.randn(*size, features),
        "actions": torch.randint(0, actions, size),
        "rewards": torch.zeros(size),
        "terminateds": torch.from_numpy(np.random.default_rng(0).random(size) < 0.02),
        "truncateds": torch.zeros(size, dtype=torch.bool),
        "next_observations": torch.randn(*size, features),
    }
    seconds = {}
    for name, kind in (("rnd", RND), ("icm", ICM)):
        bonus, times = kind(Envs(num_envs, features, actions), device="cpu"), []
        for _ in range(rounds + 2):
            start = time.perf_counter()
            bonus.compute(samples, sync=True)
            times.append(time.perf_counter() - start)
        seconds[name] = statistics.median(times[2:])
    print(json.dumps(seconds))
