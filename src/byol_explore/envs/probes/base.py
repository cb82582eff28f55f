"""Base class of the probe environments, and pictures of short vectors."""

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.interface import EnvSpec, JitEnvironment
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import UNKNOWN_SUCCESS, Action, Array, PyTree, TimeStep

CELL = 16  # pixels of a side
_LINE_COLOR = (90, 90, 90)


class ProbeState(NamedTuple):
    """State of an episode."""

    time: Array  # [] int32, steps taken
    inner: PyTree  # of the subclass


class ProbeStep(NamedTuple):
    """Result of an action."""

    inner: PyTree
    reward: Array  # []
    terminated: Array  # []


class Probe(JitEnvironment):
    """An environment with a short vector as observation, by default the time.

    A subclass defines the start of an episode, the effect of an action and the observation. An episode that still runs
    after `max_steps` is truncated: its last discount stays 1.
    """

    def __init__(
        self, name: str, observations: int, action: ActionSpec, max_steps: int, success_threshold: float = 0.0
    ) -> None:
        observation = Vector(observations)
        self.spec = EnvSpec(f"probe:{name}", observation, action, max_steps, success_threshold)

    def reset(self, key: Array) -> tuple[ProbeState, TimeStep]:
        return self._start(self._begin(key))

    def step(self, state: ProbeState, action: Action) -> tuple[ProbeState, TimeStep]:
        inner, reward, terminated = self._act(state, action)
        state = ProbeState(state.time + 1, inner)
        return state, self._timestep(state, reward, terminated)

    def render(self, state: ProbeState) -> np.ndarray:
        """Draw the observation as a row of squares, brighter for larger numbers and red for negative ones."""
        return draw_cells([to_colors(np.asarray(self._observe(state)))])

    def _start(self, inner: PyTree) -> tuple[ProbeState, TimeStep]:
        state = ProbeState(jnp.zeros((), jnp.int32), inner)
        return state, self._timestep(state, jnp.zeros(()), jnp.array(False))

    def _timestep(self, state: ProbeState, reward: Array, terminated: Array) -> TimeStep:
        return TimeStep(
            observation=self._observe(state),
            reward=reward.astype(jnp.float32),
            discount=1.0 - terminated.astype(jnp.float32),
            is_first=state.time == 0,
            is_last=terminated | (state.time >= self._limit(state)),
            success=jnp.full((), UNKNOWN_SUCCESS, jnp.int8),
        )

    def _limit(self, state: ProbeState) -> Array | int:
        """Return the number of steps after which the episode is truncated."""
        return self.spec.max_steps

    def _begin(self, key: Array) -> PyTree:
        """Draw the inner state at the start of an episode; () by default."""
        return ()

    @abstractmethod
    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        """Compute the new inner state, the reward [] and whether the episode terminates []."""

    def _observe(self, state: ProbeState) -> Array:
        """Return the observation, by default the time as a one-hot: values may depend on the time."""
        return jax.nn.one_hot(state.time, self.spec.observation.shape[0])


def to_colors(numbers: np.ndarray) -> np.ndarray:
    """Convert numbers [cells] to colours [cells, 3] uint8: black at 0, white at 1, red at -1."""
    bright = (np.clip(np.abs(numbers), 0.0, 1.0) * 255).astype(np.uint8)
    return np.stack([bright, np.where(numbers < 0, 0, bright), np.where(numbers < 0, 0, bright)], axis=-1)


def draw_cells(rows: list[np.ndarray]) -> np.ndarray:
    """Draw rows of colours [cells, 3] as squares between grey lines; leave out empty rows."""
    rows = [row for row in rows if len(row)]
    width = max(len(row) for row in rows)
    picture = np.full((len(rows) * CELL, width * CELL, 3), _LINE_COLOR, np.uint8)
    for i, row in enumerate(rows):
        for j, color in enumerate(row):
            picture[i * CELL + 1 : (i + 1) * CELL, j * CELL + 1 : (j + 1) * CELL] = color
    return picture
