"""A wrapper that restarts a faulty Gymnasium environment. Worker processes import this without JAX."""

import math
import traceback
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from byol_explore.utils.formatting import one_line
from byol_explore.utils.processes import close_in_time

FAULT, TRACE = "environment_fault", "environment_fault_trace"  # keys in infos

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class RestartOnFault(gymnasium.Wrapper):
    """Restarts a faulty environment: returns the first observation of a new one, with the fault in the infos.

    A fault is an exception, an observation of another shape, or a number that is not finite. That step has
    reward 0 and ends no episode; `GymnasiumVectorEnv` makes it the first of an episode, so that the fault is masked.

    Args:
      env: environment that `make` has made.
      make: makes another one.
    """

    def __init__(self, env: gymnasium.Env, make: Callable[[], gymnasium.Env]) -> None:
        super().__init__(env)
        self._make, self._seed, self._faults = make, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seed = self._seed if seed is None else seed
        try:
            observation, info = self.env.reset(seed=seed, options=options)
            self._check(observation)
        except (Exception, SystemExit) as error:
            return self._restart(error)
        return observation, info

    def step(self, action: Any) -> Step:
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._check(observation)
            if not math.isfinite(reward):
                raise ValueError(f"its reward is {reward}")
        except (Exception, SystemExit) as error:  # a worker process must outlive its environment
            observation, info = self._restart(error)
            return observation, 0.0, False, False, info
        return observation, float(reward), terminated, truncated, info

    def _check(self, observation: Any) -> None:
        if problem := describe_problem(observation, self.observation_space):
            raise ValueError(problem)

    def _restart(self, error: BaseException) -> tuple[Any, dict[str, Any]]:
        """Restart the environment. Returns its first observation; raises if the new one is faulty too."""
        self._faults += 1
        close_in_time(self.env)
        try:
            self.env = self._make()
            seed = np.random.SeedSequence([self._seed % 2**32, self._faults]).generate_state(1)[0]
            observation, info = self.env.reset(seed=int(seed))
            self._check(observation)
        except (Exception, SystemExit) as again:
            raise again from error
        fault = f"{type(error).__name__}: {one_line(error)}"
        return observation, {**info, FAULT: fault, TRACE: "".join(traceback.format_exception(error))}


def describe_problem(observation: Any, space: Space[Any]) -> str | None:
    """Describe the first wrong shape or number in an observation; None without one."""
    match space:
        case spaces.Dict() | spaces.Tuple():
            items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            problems = (describe_problem(observation[key], part) for key, part in items)
            return next((problem for problem in problems if problem), None)
        case spaces.Box():
            array = np.asarray(observation)
            if array.shape != space.shape:
                return f"its observation has the shape {array.shape}, not {space.shape}"
            if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
                return "its observation is not finite"
    return None


def read_faults(infos: dict[str, Any], num_envs: int) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return which environments [E] of a batch were restarted, and the fault and the traceback of each."""
    restarted = np.asarray(infos.get(f"_{FAULT}", np.zeros(num_envs, bool)), bool)
    faults = [
        (f"environment {index} of the batch: {infos[FAULT][index]}", str(infos[TRACE][index]))
        for index in np.flatnonzero(restarted)
    ]
    return restarted, faults
