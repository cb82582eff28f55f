"""Counts of hashed observations (Tang et al., 2017).

    code(o) = on which side of each of 16 random planes the embedding f(o) lies (SimHash)
    l_t     = 1 / sqrt(1 + n(code(o_{t+1})))

n is how often a code has been seen in all that was learned from. Embeddings are those of a random encoder that stays
as it is drawn: it is centred on what was seen first, so that the planes, which go through zero, cut in the middle.
There is nothing to train. An algorithm that learns from a rollout twice counts it twice.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.curiosity.byol_explore import encode
from byol_explore.networks.assembly import View
from byol_explore.types import Array, Encoder, PyTree, Sequence

BITS = 16


class Table(NamedTuple):
    """How often each code was seen, and what makes codes."""

    encoder: Encoder
    planes: Array  # [N, BITS]
    counts: Array  # [2^BITS]

    def codes(self, observation: PyTree) -> Array:
        """[T, B] as numbers."""
        sides = encode(self.encoder, observation) @ self.planes > 0
        return jnp.sum(sides * 2 ** jnp.arange(BITS), axis=-1)


class Counts(Curiosity):
    """Nothing but its table."""

    reads_representation = False

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Table:
        """Nothing was seen."""
        encoder_key, planes = jax.random.split(key)
        size = (materials.embedding_size, BITS)
        return Table(materials.make_encoder(encoder_key), jax.random.normal(planes, size), jnp.zeros((2**BITS,)))

    def __call__(self, state: Table, view: View, sequence: Sequence) -> CuriosityOutput:
        uncertainty = jax.lax.rsqrt(1.0 + state.counts[state.codes(sequence.observation)[1:]])
        return CuriosityOutput(jnp.zeros(()), uncertainty, {"codes_seen": jnp.sum(state.counts > 0)})

    def after(self, state: Table, encoder: Encoder, sequence: Sequence) -> Table:
        seen = sequence.seen.astype(jnp.float32)
        return state._replace(counts=state.counts.at[state.codes(sequence.observation)].add(seen))
