"""DM-HARD-8 itself: `dm-hard-eight:drawbridge` and the seven other tasks, on servers that speak dm_env_rpc.

The same observations and actions as `hard-eight:TASK`, so that one agent plays both. The acceleration that the original
offers is not asked for.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from byol_explore.envs.adapters.dm_hard_eight_protocol import ACTION, instruction, observation_kinds, to_actions
from byol_explore.envs.adapters.dm_hard_eight_servers import check_there
from byol_explore.envs.adapters.dm_hard_eight_settings import LEVELS, PREFIX, DMHardEightSettings
from byol_explore.envs.adapters.dm_hard_eight_world import Moment, World
from byol_explore.envs.host import Boundaries
from byol_explore.envs.protocols import EnvSpec
from byol_explore.errors import unknown
from byol_explore.types import Action, TimeStep

NO_LIMIT = 100_000  # actions that an episode is taken to have at most: the original's limits are not public
LARGE_APPLE = 5.0  # it pays 10 and ends the episode; all else pays far less

T = TypeVar("T")


class DMHardEight:
    """One task of the original."""

    def __init__(self, task: str, settings: DMHardEightSettings | None = None) -> None:
        if task not in LEVELS:
            raise unknown("task of dm-hard-eight", task, list(LEVELS))
        self.task, self.settings = task, settings or DMHardEightSettings()
        check_there(PREFIX + task, self.settings)
        self.kinds = observation_kinds(self.settings.height, self.settings.width)
        level = LEVELS[task]
        self._spec = EnvSpec(
            name=PREFIX + task,
            observation=self.kinds,
            action=ACTION,
            max_steps=NO_LIMIT,
            success_above=9.0,
            scores=(level.random, level.human),
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def batch(self, num_envs: int, seed: int) -> "DMHardEightBatch":
        return DMHardEightBatch(self, num_envs, seed)


class DMHardEightBatch:
    """Environments that are stepped together, each in a world of its own and asked by a thread of its own."""

    def __init__(self, env: DMHardEight, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        seeds = np.random.SeedSequence(seed % 2**32).generate_state(num_envs)
        self._worlds = [World(env.spec.name, env.task, env.kinds, env.settings, int(each)) for each in seeds]
        self._threads = ThreadPoolExecutor(num_envs, thread_name_prefix="dm-hard-eight")
        self._boundaries, self._is_closed = Boundaries(num_envs), False
        self._observation = {name: np.zeros((num_envs, *kind.shape), kind.dtype) for name, kind in env.kinds.items()}
        self._observation["instruction"][:] = instruction(env.task)

    def reset(self) -> TimeStep:
        everyone = range(self.num_envs)
        self._write(everyone, self._all(lambda index: self._worlds[index].reset(), everyone))
        return self._boundaries.first(self._observation)

    def step(self, action: Action) -> TimeStep:
        return self.step_some(action, np.ones(self.num_envs, bool))

    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        """A step of the environments in the mask [E]; the others stand still."""
        discrete, continuous = np.asarray(action.discrete), np.asarray(action.continuous)

        def step(index: int) -> Moment:
            return self._worlds[index].step(to_actions(continuous[index], int(discrete[index, 0])))

        indices = np.flatnonzero(moving).tolist()
        moments = self._all(step, indices)
        self._write(indices, moments)
        reward, terminated, truncated = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), bool)
        for index, moment in zip(indices, moments, strict=True):
            _, reward[index], terminated[index], truncated[index] = moment
        success = terminated & (reward > LARGE_APPLE)
        return self._boundaries.next(self._observation, reward, terminated, truncated, success, moving)

    def doubts(self) -> list[str]:
        return [doubt for world in self._worlds for doubt in world.doubts]

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        return self._observation["rgb"][0].copy()

    def close(self) -> None:
        if not self._is_closed:
            self._all(lambda index: self._worlds[index].close(), range(self.num_envs))
            self._threads.shutdown()
        self._is_closed = True

    def abort(self) -> None:
        for world in self._worlds:
            world.abort()

    def _write(self, indices: Sequence[int], moments: Sequence[Moment]) -> None:
        for index, moment in zip(indices, moments, strict=True):
            for name, seen in moment.observation.items():
                self._observation[name][index] = seen

    def _all(self, call: Callable[[int], T], indices: Sequence[int]) -> list[T]:
        """What a call comes to for each of the environments; if one of them fails, the others are given up too."""
        futures = [self._threads.submit(call, index) for index in indices]
        done, others = wait(futures, return_when=FIRST_EXCEPTION)
        if failed := [future for future in done if future.exception()]:
            self.abort()
            wait(others)
            failed[0].result()
        return [future.result() for future in futures]
