"""An environment outside jit for tests of evaluation: pays by the action, and remembers all that was done to it.

For tests of the runtime `host_worlds.py` has one whose every observation is known; `envs/scripted.py` has Gymnasium's.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from builders import small_actor
from byol_explore.envs.base import EnvSpec
from byol_explore.networks.assembly import Actor
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, TimeStep

LATER = 1000.0  # what every step of an environment's second and later episodes pays


class Scripted:
    """Two actions; in the first episode a step pays the action's number, later ones far too much.

    Environment i plays episodes of `length(i)` steps.
    """

    def __init__(
        self, length: Callable[[int], int] = lambda i: i % 3 + 1, *, name: str = "scripted",
        scores: tuple[float, float] | None = None, fail_at: int | None = None, max_steps: int = 10,
    ) -> None:  # fmt: skip
        self.length, self.fail_at = length, fail_at
        self.batches: list[ScriptedBatch] = []
        observation = Vector(6)
        self.spec = EnvSpec(name, observation, ActionSpec(discrete=(2,)), max_steps=max_steps, scores=scores)

    def batch(self, num_envs: int, seed: int) -> "ScriptedBatch":
        self.batches.append(ScriptedBatch(self, num_envs, seed))
        return self.batches[-1]


class ScriptedBatch:
    def __init__(self, env: Scripted, num_envs: int, seed: int) -> None:
        self.env, self.num_envs, self.seed = env, num_envs, seed
        self.lengths = np.asarray([env.length(i) for i in range(num_envs)])
        self.actions: list[np.ndarray] = []
        self.closed = 0

    def reset(self) -> TimeStep:
        self.time, self.episode = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return self._answer(np.zeros(self.num_envs), np.ones(self.num_envs, bool))

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
        return self._answer(np.where(is_first, 0.0, reward), is_first)

    def _answer(self, reward: np.ndarray, is_first: np.ndarray) -> TimeStep:
        is_last = self.time == self.lengths
        observation = np.tile(self.time[:, None], (1, 6)).astype(np.float32)
        return TimeStep(
            observation, reward.astype(np.float32), (~is_last).astype(np.float32), is_first, is_last
        )  # fmt: skip

    def places(self) -> np.ndarray:
        return np.zeros((self.num_envs, 0), np.int32)

    def render(self) -> np.ndarray:
        """Says which episode this is, and where in it."""
        return np.full((2, 2, 3), 10 * self.episode[0] + self.time[0], np.uint8)

    def close(self) -> None:
        self.closed += 1


def indifferent(env: Any, *logits: float) -> Actor:
    """Whatever it sees, its policy has these logits."""
    silent = jax.tree.map(jnp.zeros_like, small_actor(env.spec))
    return eqx.tree_at(lambda actor: actor.policy.mlp.layers[-1].bias, silent, jnp.asarray(logits))
