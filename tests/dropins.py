"""Small instances of Curiosity, and rollouts of random observations with episode ends at random steps."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

from builders import small_network
from byol_explore import Curiosity

ENVS, FEATURES, ACTIONS = 2, 4, 3
OBSERVATIONS = spaces.Box(-np.inf, np.inf, (FEATURES,))
SMALL: dict[str, Any] = {
    "network": dataclasses.asdict(small_network()),
    "curiosity": {"horizon": 3},
    "sequence_length": 8,
    "batch_size": 16,
}


def small(method: str = "byol-explore", num_envs: int = ENVS, *, seed: int = 0, **settings: Any) -> Curiosity:
    return Curiosity(
        OBSERVATIONS, spaces.Discrete(ACTIONS), num_envs, method, seed=seed, settings={**SMALL, **settings}
    )  # fmt: skip


class Rollout(NamedTuple):
    """Arguments of `learn`, in order."""

    obs: np.ndarray
    actions: np.ndarray
    next_obs: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        return self.terminations | self.truncations

    def cut(self, start: int, stop: int) -> "Rollout":
        return Rollout(*(x[start:stop] for x in self))

    def at(self, t: int) -> tuple[np.ndarray, ...]:
        return tuple(x[t] for x in self)


def rollout(steps: int, seed: int = 0, ends: float = 0.15, num_envs: int = ENVS) -> Rollout:
    """Make a rollout; the final observation of an episode differs from the first one of the next."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(steps + 1, num_envs, FEATURES)).astype(np.float32)
    ended, kind = rng.random((steps, num_envs)) < ends, rng.random((steps, num_envs)) < 0.5
    after = np.where(ended[..., None], rng.normal(size=seen[1:].shape).astype(np.float32), seen[1:])
    return Rollout(seen[:-1], rng.integers(0, ACTIONS, (steps, num_envs)), after, ended & kind, ended & ~kind)


def experienced(method: str = "byol-explore", num_envs: int = ENVS, *, updates: int = 2, **settings: Any) -> Curiosity:
    """Make a Curiosity, learn from some rollouts and reset all environments."""
    curiosity = small(method, num_envs, **settings)
    for index in range(updates):
        curiosity.learn(*rollout(16, seed=100 + index, num_envs=num_envs))
    curiosity.reset()
    return curiosity


def numbers(curiosity: Curiosity) -> dict[str, np.ndarray]:
    """Return all arrays of a Curiosity by name."""
    leaves = jax.tree_util.tree_leaves_with_path(curiosity.progress._replace(record=()))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def assert_same(one: Curiosity, other: Curiosity) -> None:
    assert numbers(one).keys() == numbers(other).keys()
    for name, array in numbers(one).items():
        np.testing.assert_array_equal(array, numbers(other)[name], err_msg=name)
