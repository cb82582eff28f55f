"""An environment outside jit for tests of evaluation: its reward is the action, and it records all actions.

For tests of the runtime see `host_worlds.py`, for Gymnasium `envs/scripted.py`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from builders import small_actor
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.networks.representation import Actor
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep

LATER = 1000.0  # reward of a step in the second and later episodes of an environment


class Scripted(HostEnvironment):
    """Two actions. In the first episode the reward of a step is the action, in later ones LATER.

    Environment i plays episodes of `length(i)` steps.
    """

    def __init__(
        self, length: Callable[[int], int] = lambda i: i % 3 + 1, *, name: str = "scripted",
        scores: tuple[float, float] | None = None, fail_at: int | None = None, max_steps: int = 10,
    ) -> None:  # fmt: skip
        self.length, self.fail_at = length, fail_at
        self.batches: list[ScriptedBatch] = []
        observation = Vector(6)
        self.spec = EnvSpec(name, observation, ActionSpec(discrete=(2,)), max_steps=max_steps, reference_scores=scores)

    def make_vector_env(self, num_envs: int, seed: int) -> "ScriptedBatch":
        self.batches.append(ScriptedBatch(self, num_envs, seed))
        return self.batches[-1]


class ScriptedBatch(HostVectorEnv):
    def __init__(self, env: Scripted, num_envs: int, seed: int) -> None:
        self.env, self.num_envs, self.seed = env, num_envs, seed
        self.lengths = np.asarray([env.length(i) for i in range(num_envs)])
        self.actions: list[np.ndarray] = []
        self.closed = 0

    def reset(self) -> TimeStep:
        self.time, self.episode = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return self._timestep(np.zeros(self.num_envs), np.ones(self.num_envs, bool))

    def step(self, action: Action) -> TimeStep:
        assert not self.closed
        if len(self.actions) == self.env.fail_at:
            raise RuntimeError("the world has ended")
        chosen = np.asarray(action.discrete)[:, 0]
        self.actions.append(chosen)
        is_first = self.time == self.lengths
        self.episode += is_first
        self.time = np.where(is_first, 0, self.time + 1)
        reward = np.where(self.episode == 0, chosen, LATER)
        return self._timestep(np.where(is_first, 0.0, reward), is_first)

    def _timestep(self, reward: np.ndarray, is_first: np.ndarray) -> TimeStep:
        is_last = self.time == self.lengths
        observation = np.tile(self.time[:, None], (1, 6)).astype(np.float32)
        return TimeStep(
            observation, reward.astype(np.float32), (~is_last).astype(np.float32), is_first, is_last,
            np.full(is_last.shape, UNKNOWN_SUCCESS, np.int8),
        )  # fmt: skip

    def render(self) -> np.ndarray:
        """Return a picture of the episode number and the time in it."""
        return np.full((2, 2, 3), 10 * self.episode[0] + self.time[0], np.uint8)

    def close(self) -> None:
        self.closed += 1


def indifferent(env: Any, *logits: float) -> Actor:
    """Return an actor whose policy has these logits for all observations."""
    silent = jax.tree.map(jnp.zeros_like, small_actor(env.spec))
    return eqx.tree_at(lambda actor: actor.policy_head.mlp.layers[-1].bias, silent, jnp.asarray(logits))
