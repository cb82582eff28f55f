"""A bonus of one's own: how seldom has something like this been seen? (Tang et al., 2017)

    byol-explore train --env examples.lock:Lock --method examples.counts:Counts

Counting needs a state that sees data and that no gradient trains: the table of counts. It is saved and restored with
everything else, and it moves once per learner step.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.assembly import View
from byol_explore.types import Array, Encoder, PyTree, Sequence

BITS = 12


class Table(NamedTuple):
    """How often each code has been seen, and the random directions that make codes of observations."""

    directions: Array  # [numbers, BITS]
    counts: Array  # [2 ** BITS]


class Counts(Curiosity):
    """Uncertainty 1 / sqrt(1 + n) of the observation that a transition leads to; there is nothing to learn."""

    reads_representation = False

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Table:
        numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(materials.observation))
        return Table(jax.random.normal(key, (numbers, BITS)), jnp.zeros((2**BITS,)))

    def __call__(self, state: Table, view: View, sequence: Sequence) -> CuriosityOutput:
        seen = state.counts[codes(state, sequence.observation)]  # [T, B]
        uncertainty = jax.lax.rsqrt(1.0 + seen[1:])
        return CuriosityOutput(
            loss=jnp.zeros(()),
            uncertainty=uncertainty,
            metrics={"prediction_error": jnp.mean(uncertainty)[None], "codes_seen": jnp.sum(state.counts > 0)},
        )

    def after(self, state: Table, encoder: Encoder, sequence: Sequence) -> Table:
        found = codes(state, sequence.observation).ravel()
        return state._replace(counts=state.counts.at[found].add(sequence.seen.ravel().astype(jnp.float32)))


def codes(table: Table, observation: PyTree) -> Array:
    """[T, B] on which side of each random direction observations [T, B, ...] lie, as a number."""
    leaves = [x.reshape(*x.shape[:2], -1).astype(jnp.float32) for x in jax.tree.leaves(observation)]
    sides = jnp.concatenate(leaves, axis=-1) @ table.directions > 0
    return jnp.sum(sides * 2 ** jnp.arange(BITS), axis=-1)
