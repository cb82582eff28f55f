"""Two tasks in one world: the smallest one in which an episode has a task, and stages."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.worlds.probing import Outcome, Probe, ProbeState
from byol_explore.spaces import ActionSpec, Vector
from byol_explore.types import Action, Array, TimeStep


class Errand(NamedTuple):
    """How many cells away the end is, and what it pays."""

    cells: int
    payment: float


ERRANDS = {"near": Errand(2, 1.0), "far": Errand(6, 3.0)}
CELLS = max(errand.cells for errand in ERRANDS.values()) + 1
SEEN = CELLS + len(ERRANDS)  # numbers
PATIENCE = 2  # steps a cell, after which an episode is cut off
ACTION = ActionSpec(discrete=(2,))  # left, right


class Walk(NamedTuple):
    """An episode of an errand."""

    errand: Array  # [] int32, its number among all
    place: Array  # [] int32
    furthest: Array  # [] int32, the furthest place so far


class Errands(Probe):
    """A row of cells, left and right, payment and the end a few cells to the right; which errand it is, is seen.

    Right: walk right, value p g^(d-1) at d cells from the end that pays p. With both errands in one world the end is
    near or far in turn, by chance: who takes the two for one task finds no value that fits both.
    """

    stages = ("set out", "half way", "arrived")

    def __init__(self, names: tuple[str, ...]) -> None:
        specs = tuple(_spec(name) for name in names)
        super().__init__("-or-".join(names), SEEN, ACTION, max(spec.max_steps for spec in specs))
        self.spec = self.spec._replace(tasks=specs if len(specs) > 1 else ())
        self._names, self._numbers = names, np.array([[*ERRANDS].index(name) for name in names], np.int32)

    def join(self, others: Sequence["Errands"]) -> "Errands":
        """One world with the errands of all of them."""
        return Errands(tuple(name for env in (self, *others) for name in env._names))

    def begin(self, key: Array, task: Array) -> tuple[ProbeState, TimeStep]:
        """The errand of that number among its own; nothing of it is left to chance."""
        state = ProbeState(jnp.zeros((), jnp.int32), self._walk(task))
        return state, self._timestep(state, jnp.zeros(()), jnp.array(False))

    def task(self, state: ProbeState) -> Array:
        """[] int32, the number of the episode's errand among its own."""
        return jnp.argmax(jnp.asarray(self._numbers) == state.hidden.errand).astype(jnp.int32)

    def reached(self, state: ProbeState) -> Array:
        """[stages] which of them the episode has reached."""
        end, furthest = self._end(state), state.hidden.furthest
        return jnp.stack([furthest > 0, 2 * furthest >= end, furthest >= end])

    def _begin(self, key: Array) -> Walk:
        return self._walk(jax.random.randint(key, (), 0, len(self._names)))

    def _walk(self, task: Array) -> Walk:
        nowhere = jnp.zeros((), jnp.int32)
        return Walk(jnp.asarray(self._numbers)[task], nowhere, nowhere)

    def _act(self, state: ProbeState, action: Action) -> Outcome:
        walk, end = state.hidden, self._end(state)
        place = jnp.clip(walk.place + 2 * action.discrete[0] - 1, 0, end)
        arrived = place == end
        payment = jnp.asarray([errand.payment for errand in ERRANDS.values()])[walk.errand]
        outcome = Walk(walk.errand, place, jnp.maximum(place, walk.furthest))
        return Outcome(outcome, jnp.where(arrived, payment, 0.0), arrived)

    def _end(self, state: ProbeState) -> Array:
        return jnp.asarray([errand.cells for errand in ERRANDS.values()])[state.hidden.errand]

    def _limit(self, state: ProbeState) -> Array:
        return PATIENCE * self._end(state)

    def _observe(self, state: ProbeState) -> Array:
        walk = state.hidden
        return jnp.concatenate([jax.nn.one_hot(walk.place, CELLS), jax.nn.one_hot(walk.errand, len(ERRANDS))])


def _spec(name: str) -> EnvSpec:
    """Of one errand alone."""
    return EnvSpec(f"probe:{name}", Vector(SEEN), ACTION, PATIENCE * ERRANDS[name].cells)
