"""What the probe worlds share: the course of an episode, and pictures of short vectors."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, PyTree, TimeStep

CELL = 16  # pixels a side

_LINES = (90, 90, 90)


class ProbeState(NamedTuple):
    """An episode under way."""

    time: Array  # [] int32, steps taken
    hidden: PyTree  # what the probe itself remembers


class Outcome(NamedTuple):
    """What an action led to."""

    hidden: PyTree
    reward: Array  # []
    terminated: Array  # []


class Probe(ABC):
    """What the worlds share: time, the end of an episode and the picture.

    A world says how it begins, what an action does and what is seen. An episode that is still running after
    `max_steps` is cut off: its last discount stays 1.
    """

    def __init__(
        self, name: str, observations: int, action: ActionSpec, max_steps: int, success_above: float = 0.0
    ) -> None:
        observation = Vector(observations)
        self.spec = EnvSpec(f"probe:{name}", observation, action, max_steps, success_above)

    def reset(self, key: Array) -> tuple[ProbeState, TimeStep]:
        state = ProbeState(jnp.zeros((), jnp.int32), self._begin(key))
        return state, self._timestep(state, jnp.zeros(()), jnp.array(False))

    def step(self, state: ProbeState, action: Action) -> tuple[ProbeState, TimeStep]:
        outcome = self._act(state, action)
        state = ProbeState(state.time + 1, outcome.hidden)
        return state, self._timestep(state, outcome.reward, outcome.terminated)

    def render(self, state: ProbeState) -> np.ndarray:
        """The observation as a row of squares, brighter for larger numbers and red for negative ones."""
        return draw([shades(np.asarray(self._observe(state)))])

    def _timestep(self, state: ProbeState, reward: Array, terminated: Array) -> TimeStep:
        return TimeStep(
            observation=self._observe(state),
            reward=reward.astype(jnp.float32),
            discount=1.0 - terminated.astype(jnp.float32),
            is_first=state.time == 0,
            is_last=terminated | (state.time >= self._limit(state)),
        )

    def _limit(self, state: ProbeState) -> Array | int:
        """When the episode is cut off."""
        return self.spec.max_steps

    def _begin(self, key: Array) -> PyTree:
        """What is drawn at the start of an episode; most worlds have nothing to remember."""
        return ()

    @abstractmethod
    def _act(self, state: ProbeState, action: Action) -> Outcome:
        """What an action leads to."""

    def _observe(self, state: ProbeState) -> Array:
        """The time as a one-hot, so that a value that depends on the time is a function of what is seen."""
        return jax.nn.one_hot(state.time, self.spec.observation.shape[0])


def shades(numbers: np.ndarray) -> np.ndarray:
    """[cells] numbers to [cells, 3] colours: black at 0, white at 1, red at -1."""
    bright = (np.clip(np.abs(numbers), 0.0, 1.0) * 255).astype(np.uint8)
    return np.stack([bright, np.where(numbers < 0, 0, bright), np.where(numbers < 0, 0, bright)], axis=-1)


def draw(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of coloured cells as squares between grey lines; empty rows are left out."""
    rows = [row for row in rows if len(row)]
    width = max(len(row) for row in rows)
    picture = np.full((len(rows) * CELL, width * CELL, 3), _LINES, np.uint8)
    for i, row in enumerate(rows):
        for j, color in enumerate(row):
            picture[i * CELL + 1 : (i + 1) * CELL, j * CELL + 1 : (j + 1) * CELL] = color
    return picture
