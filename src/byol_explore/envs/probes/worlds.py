"""Environments with known values, to find out why learning fails; the smallest multi-task environment.

Each class states what a correct learner reaches. Values are discounted sums of the environment's rewards, before any
scaling by the learner; g is its discount. Observations are short float32 vectors.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.interface import EnvSpec, JitEnvironment
from byol_explore.envs.probes.base import Probe, ProbeState, ProbeStep, draw_cells, to_colors
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, TimeStep


class Goal(NamedTuple):
    """Number of cells from the start to the end, and the reward there."""

    distance: int
    reward: float


GOALS = {"near": Goal(2, 1.0), "far": Goal(6, 3.0)}
CELLS = max(goal.distance for goal in GOALS.values()) + 1
STEPS_PER_CELL = 2  # limit of an episode
ACTION = ActionSpec(discrete=(2,))  # left, right


class GoalState(NamedTuple):
    """State of an episode of TwoGoals."""

    task: Array  # [] int32
    cell: Array  # [] int32, of the agent
    furthest: Array  # [] int32, the furthest cell so far


class TwoGoals(Probe):
    """A row of cells, left and right; the end with the reward is near or far on the right. The task is observed.

    Correct: walk right, value p g^(d-1) at d cells from the end that pays p. With both tasks in one environment the end
    is near or far at random: no value fits both for a learner that takes them for one task.
    """

    stages = ("set out", "half way", "arrived")

    def __init__(self, names: tuple[str, ...]) -> None:
        goals, size = [GOALS[name] for name in names], CELLS + len(GOALS)
        specs = tuple(
            EnvSpec(f"probe:{name}", Vector(size), ACTION, STEPS_PER_CELL * GOALS[name].distance) for name in names
        )
        super().__init__("-or-".join(names), size, ACTION, max(spec.max_steps for spec in specs))
        self.spec = self.spec._replace(tasks=specs if len(specs) > 1 else ())
        self._names, self._goal_ids = names, np.array([[*GOALS].index(name) for name in names], np.int32)
        self._distances = np.array([goal.distance for goal in goals], np.int32)
        self._rewards = np.array([goal.reward for goal in goals], np.float32)

    def merge(self, others: Sequence["TwoGoals"]) -> "TwoGoals":
        return TwoGoals(tuple(name for env in (self, *others) for name in env._names))

    def reset_task(self, key: Array, task: Array) -> tuple[ProbeState, TimeStep]:
        return self._start(self._begin_task(task))

    def task_id(self, state: ProbeState) -> Array:
        return state.inner.task

    def stages_reached(self, state: ProbeState) -> Array:
        end, furthest = self._end(state), state.inner.furthest
        return jnp.stack([furthest > 0, 2 * furthest >= end, furthest >= end])

    def _begin(self, key: Array) -> GoalState:
        return self._begin_task(jax.random.randint(key, (), 0, len(self._names)))

    def _begin_task(self, task: Array) -> GoalState:
        return GoalState(task, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        task, cell, furthest = state.inner
        end = self._end(state)
        cell = jnp.clip(cell + 2 * action.discrete[0] - 1, 0, end)
        arrived = cell == end
        reward = jnp.where(arrived, jnp.asarray(self._rewards)[task], 0.0)
        return ProbeStep(GoalState(task, cell, jnp.maximum(cell, furthest)), reward, arrived)

    def _end(self, state: ProbeState) -> Array:
        return jnp.asarray(self._distances)[state.inner.task]

    def _limit(self, state: ProbeState) -> Array:
        return STEPS_PER_CELL * self._end(state)

    def _observe(self, state: ProbeState) -> Array:
        goal = jnp.asarray(self._goal_ids)[state.inner.task]
        return jnp.concatenate([jax.nn.one_hot(state.inner.cell, CELLS), jax.nn.one_hot(goal, len(GOALS))])


class TwoArmedBandit(Probe):
    """One step: action 1 pays 1, action 0 pays nothing.

    Correct: always action 1, value 1. Tests the sign of the policy's gradient.
    """

    def __init__(self) -> None:
        super().__init__("two-armed", 2, ActionSpec(discrete=(2,)), 1)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        return ProbeStep((), (action.discrete[0] == 1).astype(jnp.float32), jnp.array(True))


class TimedReward(Probe):
    """Reward 1 for any actions, at each of n steps or at the last one; then the end, by termination or truncation.

    Correct for a last reward: value g^(n-1-t) at time t, so 1 at the last step; n = 1 is the smallest environment.
    Correct for all rewards, terminated: value (1 - g^(n-t)) / (1 - g) at time t.
    Correct for all rewards, truncated: value 1 / (1 - g) at every time, which only bootstrapping from the last
    observation gives; the observation is constant, like the value.
    """

    def __init__(self, name: str, steps: int, *, every_step: bool = True, terminates: bool = True) -> None:
        super().__init__(name, steps + 1, ActionSpec(discrete=(2,)), steps)
        self._every_step, self._terminates = every_step, terminates

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        done = state.time + 1 >= self.spec.max_steps
        return ProbeStep((), (done | self._every_step).astype(jnp.float32), done & self._terminates)

    def _observe(self, state: ProbeState) -> Array:
        time = state.time if self._terminates else jnp.zeros_like(state.time)
        return jax.nn.one_hot(time, self.spec.observation.shape[0])


class RecallCue(Probe):
    """The first observation shows a cue, 0 or 1, the others show 0; the action of the n-th step must equal the cue.

    Correct: return 1, value g^(n-1-t) at time t. A wrong action pays -1, so without memory the mean return is 0. A cue
    of 0 looks like no cue: a memory that is not reset at the end of an episode gives the cue of the last episode.
    """

    def __init__(self, steps: int) -> None:
        super().__init__("memory", 1, ActionSpec(discrete=(2,)), steps)

    def _begin(self, key: Array) -> Array:
        return jax.random.randint(key, (), 0, 2)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        done = state.time + 1 >= self.spec.max_steps
        reward = jnp.where(action.discrete[0] == state.inner, 1.0, -1.0)
        return ProbeStep(state.inner, jnp.where(done, reward, 0.0), done)

    def _observe(self, state: ProbeState) -> Array:
        return jnp.where(state.time == 0, state.inner, 0).astype(jnp.float32)[None]

    def render(self, state: ProbeState) -> np.ndarray:
        """Draw the cue in the first row and the observation in the second."""
        return draw_cells([to_colors(np.asarray(state.inner)[None]), to_colors(np.asarray(self._observe(state)))])


LEFT, RIGHT, WATCH = 0, 1, 2  # actions of a corridor
_GOAL_COLOR = (60, 180, 75)


class CorridorState(NamedTuple):
    """State of an episode in a corridor."""

    cell: Array  # [] int32, of the agent
    screen: Array  # [pixels] float32, 0 unless the last action was WATCH
    key: Array  # for later noise


class CorridorProbe(Probe):
    """A row of cells, reward 1 and the end at the last one; actions left, right and stay.

    Correct: walk right, value g^(d-1) at d cells from the end. Random actions do not arrive within the limit of two
    steps per cell, so a learner without curiosity never gets a reward.

    With `pixels` the third action also watches television: `pixels` random bits, drawn again at each step, and 0 after
    other actions. No model can predict them, so an agent that is rewarded for raw errors keeps watching; the fraction
    of that action measures how much.
    """

    def __init__(self, name: str, length: int, pixels: int = 0) -> None:
        super().__init__(name, length + pixels, ActionSpec(discrete=(3,)), 2 * length)
        self.length, self.pixels = length, pixels

    def _begin(self, key: Array) -> CorridorState:
        return CorridorState(jnp.zeros((), jnp.int32), jnp.zeros((self.pixels,)), key)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        choice = action.discrete[0]
        key, noise_key = jax.random.split(state.inner.key)
        noise = jax.random.bernoulli(noise_key, 0.5, (self.pixels,)).astype(jnp.float32)
        move = (choice == RIGHT).astype(jnp.int32) - (choice == LEFT).astype(jnp.int32)
        cell = jnp.clip(state.inner.cell + move, 0, self.length - 1)
        arrived = cell == self.length - 1
        screen = jnp.where(choice == WATCH, noise, 0.0)
        return ProbeStep(CorridorState(cell, screen, key), arrived.astype(jnp.float32), arrived)

    def _observe(self, state: ProbeState) -> Array:
        return jnp.concatenate([jax.nn.one_hot(state.inner.cell, self.length), state.inner.screen])

    def render(self, state: ProbeState) -> np.ndarray:
        """Draw the cells, the agent white and the end green, and the screen below them."""
        observation = np.asarray(self._observe(state))
        cells = to_colors(observation[: self.length])
        if observation[self.length - 1] == 0.0:
            cells[-1] = _GOAL_COLOR
        return draw_cells([cells, to_colors(observation[self.length :])])


class ContinuousTarget(Probe):
    """One step: a number in [-1, 1] pays minus its squared distance from the observed target.

    Correct: the policy's mean is the target, value minus the policy's variance, so near 0.
    """

    def __init__(self) -> None:
        super().__init__("continuous", 1, ActionSpec(continuous=1), 1, success_threshold=-0.04)

    def _begin(self, key: Array) -> Array:
        return jax.random.uniform(key, (), minval=-0.8, maxval=0.8)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        return ProbeStep(state.inner, -_squared_distance(action, state.inner), jnp.array(True))

    def _observe(self, state: ProbeState) -> Array:
        return state.inner[None]


class HybridTarget(Probe):
    """One step: 1 for the observed category, minus the squared distance from the observed target.

    Correct: the observed category and the target as mean, value near 1. Neither part of the action is enough: targets
    are at least 0.4 from 0, and an episode succeeds above 0.96.
    """

    categories = 3

    def __init__(self) -> None:
        action = ActionSpec(discrete=(self.categories,), continuous=1)
        super().__init__("hybrid", self.categories + 1, action, 1, success_threshold=0.96)

    def _begin(self, key: Array) -> tuple[Array, Array]:
        category_key, size_key, sign_key = jax.random.split(key, 3)
        size = jax.random.uniform(size_key, (), minval=0.4, maxval=0.8)
        return jax.random.randint(category_key, (), 0, self.categories), size * jax.random.rademacher(sign_key, ())

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        category, target = state.inner
        correct = (action.discrete[0] == category).astype(jnp.float32)
        return ProbeStep(state.inner, correct - _squared_distance(action, target), jnp.array(True))

    def _observe(self, state: ProbeState) -> Array:
        category, target = state.inner
        return jnp.concatenate([jax.nn.one_hot(category, self.categories), target[None]])


def _squared_distance(action: Action, target: Array) -> Array:
    return (jnp.clip(action.continuous[0], -1.0, 1.0) - target) ** 2


PROBES: dict[str, Callable[[], JitEnvironment]] = {
    "one-step": partial(TimedReward, "one-step", 1),
    "two-armed": TwoArmedBandit,
    "delayed": partial(TimedReward, "delayed", 5, every_step=False),
    "truncated": partial(TimedReward, "truncated", 8, terminates=False),
    "terminated": partial(TimedReward, "terminated", 8),
    "memory": partial(RecallCue, 6),
    "corridor": partial(CorridorProbe, "corridor", 30),
    "noisy-tv": partial(CorridorProbe, "noisy-tv", 30, pixels=8),
    "continuous": ContinuousTarget,
    "hybrid": HybridTarget,
    "near": partial(TwoGoals, ("near",)),
    "far": partial(TwoGoals, ("far",)),
    "near-or-far": partial(TwoGoals, ("near", "far")),
}


def make_probe(name: str) -> JitEnvironment | None:
    """Make the probe of that name; None if there is none."""
    return PROBES[name]() if name in PROBES else None
