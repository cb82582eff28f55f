"""A Gymnasium environment with a fault on request: `gymnasium:unruly:Unruly-v0` with the arguments `how` and `at`.

Imports little: worker processes import it too.
"""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 10  # steps of an episode


class Unruly(gymnasium.Env):
    """Has a fault in step `at`; if `once` is the path of a file, only while the file does not exist."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, how: str = "", at: int = 0, once: str = "") -> None:
        self.how, self.at, self.once = how, at, once
        self.count = self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count, self.time = self.count + 1, self.time + 1
        observation = self._observation()
        if self.count == self.at and self._is_first_time():
            observation = self._misbehave(observation)
        return observation, float(self.time == LENGTH), self.time == LENGTH, False, {}

    def _observation(self) -> np.ndarray:
        return np.full(4, self.time / LENGTH, np.float32)

    def _is_first_time(self) -> bool:
        if not self.once:
            return True
        try:
            Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _misbehave(self, observation: np.ndarray) -> np.ndarray:
        match self.how:
            case "hang":
                time.sleep(10**6)
            case "spin":
                while True:
                    pass
            case "raise":
                raise ValueError("injected fault")
            case "leave":
                os._exit(7)
            case "exit":
                raise SystemExit(0)
            case "shape":
                return np.zeros(5, np.float32)
            case "nan":
                return observation * np.nan
            case "outside":
                return observation + 7.0
        return observation


gymnasium.register("Unruly-v0", entry_point=Unruly)
