"""The acting side of environments outside jit: steps them with the target policy and makes sequences."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from byol_explore.agent import Player
from byol_explore.envs.base import EnvSpec
from byol_explore.envs.host import HostEnvironment, reached_in
from byol_explore.envs.host_tasks import make_batch, tasks_of
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.base import Episodes, stack
from byol_explore.types import Array, PyTree, TimeStep, Trajectory


class Rollout(NamedTuple):
    """What an actor pushes: T - 1 steps of its environments, arrays of NumPy."""

    envs: np.ndarray  # [E] their numbers
    trajectory: Trajectory  # [T, E, ...]
    episodes: Episodes  # [T-1, E]
    places: np.ndarray  # [T-1, E, P]
    pulled_at: int  # learner step at which the parameters were pulled that acted
    env_seconds: float  # spent on stepping environments
    act_seconds: float  # on choosing actions
    remarks: tuple[str, ...] = ()  # about what the environments answered
    reached: np.ndarray | None = None  # [T-1, E, S] stages of the episodes so far; None where there are none


class HostActor:
    """Owns its environments and the agent's memory of them; parameters come with each call."""

    def __init__(
        self, envs: Sequence[HostEnvironment], num_envs: int, length: int, key: Array, seed: int, *, first: int = 0,
        tasks: str = "fixed",
    ) -> None:  # fmt: skip
        self.spec: EnvSpec = envs[0].spec
        self.numbers = np.arange(first, first + num_envs)
        self.num_envs, self.length = num_envs, length
        self._batch = make_batch(envs, num_envs, seed, tasks)
        self._player, self._has_begun = Player(self._batch, self.spec, key), False
        self._total = np.zeros(num_envs, np.float32)
        self._length = np.zeros(num_envs, np.int32)

    def rollout(self, actor: Actor, pulled_at: int = 0) -> Rollout:
        """T - 1 steps of all environments; the last observation is the next rollout's first."""
        player = self._player
        if not self._has_begun:
            player.begin(actor)
            self._has_begun = True
        start = jax.device_get(player.memory)._replace(reward=player.timestep.reward.copy())
        count, player.env_seconds, player.act_seconds = self.length - 1, 0.0, 0.0
        observations = jax.tree.map(
            lambda x: np.empty((self.length, self.num_envs, *x.shape), x.dtype), self.spec.observation
        )
        records: list[tuple[PyTree, ...]] = []
        for t in range(count):
            first, task = self._observe(observations, t)
            policy, action = player.turn(actor)
            records.append((first, task, action, policy, *self._answer(player.timestep), *self._whereabouts()))
        last, last_task = self._observe(observations, count)
        firsts, tasks, actions, policies, rewards, discounts, episodes, places, reached = zip(*records, strict=True)
        trajectory = Trajectory(
            observations, np.stack([*firsts, last]), stack(actions), np.stack(rewards), np.stack(discounts),
            stack(jax.device_get(policies)), np.stack([*tasks, last_task]), memory=start,
        )  # fmt: skip
        seconds = player.env_seconds, player.act_seconds
        steps = self.numbers, trajectory, stack(episodes), np.stack(places)
        return Rollout(*steps, pulled_at, *seconds, reached=stack(reached))

    def close(self) -> None:
        self._batch.close()

    def _observe(self, observations: PyTree, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Keep the current observation as the t-th; whether it is an episode's first, and the task of the episode."""
        timestep = self._player.timestep

        def keep(kept: np.ndarray, seen: np.ndarray) -> None:
            kept[t] = seen

        jax.tree.map(keep, observations, timestep.observation)
        return timestep.is_first.copy(), tasks_of(self._batch).copy()

    def _whereabouts(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Where the agents are, and which stages they have reached; the actor's own too."""
        reached = reached_in(self._batch)
        return self._batch.places().copy(), None if reached is None else np.array(reached)

    def _answer(self, timestep: TimeStep) -> tuple[np.ndarray, np.ndarray, Episodes]:
        """Reward, discount, and the episodes that ended; all the actor's own."""
        self._total = np.where(timestep.is_first, 0.0, self._total + timestep.reward).astype(np.float32)
        self._length = np.where(timestep.is_first, 0, self._length + 1)
        reward, discount, ended, success = (
            np.array(x) for x in (timestep.reward, timestep.discount, timestep.is_last, timestep.with_success().success)
        )
        return reward, discount, Episodes(ended, self._total, self._length, success)
