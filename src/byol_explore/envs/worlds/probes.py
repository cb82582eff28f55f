"""Tiny worlds whose right answer is known by hand: the first place to look when learning goes wrong.

Each class says what a right learner must reach. Values are discounted sums of the rewards paid here, before any
scaling by the learner; g is its discount. Observations are short float32 vectors.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import Environment
from byol_explore.envs.worlds.errands import Errands
from byol_explore.envs.worlds.probing import Outcome, Probe, ProbeState, draw, shades
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array

LEFT, RIGHT, WATCH = 0, 1, 2  # actions in a corridor

_GOAL = (60, 180, 75)


class Delayed(Probe):
    """Reward 1 after n steps whatever is done, then the end; n = 1 is the smallest world there is.

    Right: value g^(n-1-t) at time t, so 1 at the last step. Tests discounting and termination.
    """

    def __init__(self, name: str, steps: int) -> None:
        super().__init__(name, steps + 1, ActionSpec(discrete=(2,)), steps)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        done = state.time + 1 >= self.spec.max_steps
        return Outcome((), done.astype(jnp.float32), done)


class TwoArmed(Probe):
    """One step: action 1 pays 1, action 0 pays nothing.

    Right: always action 1, value 1. Tests the sign of the policy's gradient.
    """

    def __init__(self) -> None:
        super().__init__("two-armed", 2, ActionSpec(discrete=(2,)), 1)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        return Outcome((), (action.discrete[0] == 1).astype(jnp.float32), jnp.array(True))


class Wage(Probe):
    """Reward 1 at each of n steps whatever is done; then the episode is cut off, or it terminates.

    Right when cut off: value 1 / (1 - g) at every time, which only bootstrapping from the last observation gives.
    The same is seen all the time, since the value does not change either.
    Right when terminated: value (1 - g^(n-t)) / (1 - g) at time t, and the time is seen.
    """

    def __init__(self, name: str, steps: int, *, terminates: bool) -> None:
        super().__init__(name, steps + 1, ActionSpec(discrete=(2,)), steps)
        self._terminates = terminates

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        done = state.time + 1 >= self.spec.max_steps
        return Outcome((), jnp.ones(()), done & self._terminates)

    def _observe(self, state: ProbeState) -> Array:
        seen = state.time if self._terminates else jnp.zeros_like(state.time)
        return jax.nn.one_hot(seen, self.spec.observation.shape[0])


class Remember(Probe):
    """The first observation shows a cue, 0 or 1, the others nothing; the action of the n-th step must name it.

    Right: return 1, value g^(n-1-t) at time t; wrong pays -1, so without memory the mean return is 0. A cue of 0
    looks like nothing: who carries a memory over from the last episode takes that episode's cue for this one's.
    """

    def __init__(self, steps: int) -> None:
        super().__init__("memory", 1, ActionSpec(discrete=(2,)), steps)

    def _begin(self, key: Array) -> Array:
        return jax.random.randint(key, (), 0, 2)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        done = state.time + 1 >= self.spec.max_steps
        payment = jnp.where(action.discrete[0] == state.hidden, 1.0, -1.0)
        return Outcome(state.hidden, jnp.where(done, payment, 0.0), done)

    def _observe(self, state: ProbeState) -> Array:
        return jnp.where(state.time == 0, state.hidden, 0).astype(jnp.float32)[None]

    def render(self, state: ProbeState) -> np.ndarray:
        """Above the cue, whether it is seen or not; below it what is seen."""
        return draw([shades(np.asarray(state.hidden)[None]), shades(np.asarray(self._observe(state)))])


class CorridorState(NamedTuple):
    """Where the agent stands, and what its television shows."""

    place: Array  # [] int32
    screen: Array  # [pixels] float32, dark unless it was just watched
    key: Array


class Corridor(Probe):
    """A row of cells, reward 1 and the end at the last one; left, right, or stay where you are.

    Right: walk right, value g^(d-1) at d cells from the end. Random actions do not get there within the limit of
    two steps a cell, so a learner without curiosity never sees a reward.

    With `pixels` the third action also watches television: as many random bits, new at every look and dark
    otherwise. No model can predict them, so a curiosity that pays for raw errors stays to watch; the share of
    that action measures how strongly.
    """

    def __init__(self, name: str, length: int, pixels: int = 0) -> None:
        super().__init__(name, length + pixels, ActionSpec(discrete=(3,)), 2 * length)
        self.length, self.pixels = length, pixels

    def _begin(self, key: Array) -> CorridorState:
        return CorridorState(jnp.zeros((), jnp.int32), jnp.zeros((self.pixels,)), key)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        choice = action.discrete[0]
        key, noise_key = jax.random.split(state.hidden.key)
        noise = jax.random.bernoulli(noise_key, 0.5, (self.pixels,)).astype(jnp.float32)
        move = (choice == RIGHT).astype(jnp.int32) - (choice == LEFT).astype(jnp.int32)
        place = jnp.clip(state.hidden.place + move, 0, self.length - 1)
        arrived = place == self.length - 1
        world = CorridorState(place, jnp.where(choice == WATCH, noise, 0.0), key)
        return Outcome(world, arrived.astype(jnp.float32), arrived)

    def _observe(self, state: ProbeState) -> Array:
        return jnp.concatenate([jax.nn.one_hot(state.hidden.place, self.length), state.hidden.screen])

    def render(self, state: ProbeState) -> np.ndarray:
        """The cells with the agent white and the end green; below them the screen."""
        seen = np.asarray(self._observe(state))
        cells = shades(seen[: self.length])
        if seen[self.length - 1] == 0.0:
            cells[-1] = _GOAL
        return draw([cells, shades(seen[self.length :])])


class Aim(Probe):
    """One step: a number in [-1, 1] pays minus its squared distance from the target that is shown.

    Right: the policy's mean is the target, value minus the policy's variance, so near 0.
    """

    def __init__(self) -> None:
        super().__init__("continuous", 1, ActionSpec(continuous=1), 1, success_above=-0.04)

    def _begin(self, key: Array) -> Array:
        return jax.random.uniform(key, (), minval=-0.8, maxval=0.8)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        return Outcome(state.hidden, -_squared_miss(action, state.hidden), jnp.array(True))

    def _observe(self, state: ProbeState) -> Array:
        return state.hidden[None]


class AimAndChoose(Probe):
    """One step: the category that is shown pays 1, from which the squared distance from the shown target is taken.

    Right: the shown category and the target as mean, value near 1. Neither part of the action is enough: the
    targets are at least 0.4 from the middle, and an episode succeeds above 0.96.
    """

    categories = 3

    def __init__(self) -> None:
        action = ActionSpec(discrete=(self.categories,), continuous=1)
        super().__init__("hybrid", self.categories + 1, action, 1, success_above=0.96)

    def _begin(self, key: Array) -> tuple[Array, Array]:
        category_key, size_key, sign_key = jax.random.split(key, 3)
        size = jax.random.uniform(size_key, (), minval=0.4, maxval=0.8)
        return jax.random.randint(category_key, (), 0, self.categories), size * jax.random.rademacher(sign_key, ())

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        category, target = state.hidden
        right = (action.discrete[0] == category).astype(jnp.float32)
        return Outcome(state.hidden, right - _squared_miss(action, target), jnp.array(True))

    def _observe(self, state: ProbeState) -> Array:
        category, target = state.hidden
        return jnp.concatenate([jax.nn.one_hot(category, self.categories), target[None]])


def _squared_miss(action: Action, target: Array) -> Array:
    return (jnp.clip(action.continuous[0], -1.0, 1.0) - target) ** 2


PROBES: dict[str, Callable[[], Environment]] = {
    "one-step": partial(Delayed, "one-step", 1),
    "two-armed": TwoArmed,
    "delayed": partial(Delayed, "delayed", 5),
    "truncated": partial(Wage, "truncated", 8, terminates=False),
    "terminated": partial(Wage, "terminated", 8, terminates=True),
    "memory": partial(Remember, 6),
    "corridor": partial(Corridor, "corridor", 30),
    "noisy-tv": partial(Corridor, "noisy-tv", 30, pixels=8),
    "continuous": Aim,
    "hybrid": AimAndChoose,
    "near": partial(Errands, ("near",)),
    "far": partial(Errands, ("far",)),
    "near-or-far": partial(Errands, ("near", "far")),
}
