"""A user-defined intrinsic method: counts of hashed observations (Tang et al., 2017).

    byol-explore train --env examples.lock:Lock --method examples.counts:Counts

The table of counts is the state of the method: no gradient trains it, `update_state` changes it once per learner step,
and checkpoints contain it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch

BITS = 12


class Table(NamedTuple):
    """The count of every hash, and the random directions that hash observations."""

    directions: Array  # [numbers, BITS]
    counts: Array  # [2 ** BITS]


class Counts(IntrinsicMethod):
    """Uncertainty 1 / sqrt(1 + n), with the count n of the hash of o_{t+1}. Nothing is trained."""

    uses_representation = False

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> Table:
        numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(context.observation))
        return Table(jax.random.normal(key, (numbers, BITS)), jnp.zeros((2**BITS,)))

    def __call__(self, state: Table, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        counts = state.counts[hashes(state, sequence.observation)]  # [T, B]
        uncertainty = jax.lax.rsqrt(1.0 + counts[1:])
        return MethodOutput(
            loss=jnp.zeros(()),
            uncertainty=uncertainty,
            metrics={"prediction_error": jnp.mean(uncertainty)[None], "hash_codes_seen": jnp.sum(state.counts > 0)},
        )

    def update_state(self, state: Table, encoder: Encoder, sequence: SequenceBatch) -> Table:
        indices = hashes(state, sequence.observation).ravel()
        return state._replace(counts=state.counts.at[indices].add(sequence.observed.ravel().astype(jnp.float32)))


def hashes(table: Table, observation: PyTree) -> Array:
    """Hash observations [T, B, ...]: one bit for the side of each random direction. Returns integers [T, B]."""
    leaves = [x.reshape(*x.shape[:2], -1).astype(jnp.float32) for x in jax.tree.leaves(observation)]
    sides = jnp.concatenate(leaves, axis=-1) @ table.directions > 0
    return jnp.sum(sides * 2 ** jnp.arange(BITS), axis=-1)
