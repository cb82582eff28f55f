"""Counts of hashed observations (Tang et al., 2017).

    code(o) = on which side of each of 16 random planes the embedding f(o) lies (SimHash)
    l_t     = 1 / sqrt(1 + n + m)   for the code of o_{t+1}

n is how often it has been seen in all that was learned from, m how often in the same sequence and episode before, which
is not learned from yet. Embeddings are those of a random encoder that stays as it is drawn: it is centred on what was
seen first, so that the planes, which go through zero, cut in the middle. There is nothing to train. Where everything is
learned from several times, each time counts for as much less.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.curiosity.byol_explore import encode
from byol_explore.networks.assembly import View
from byol_explore.networks.recall import Recall
from byol_explore.types import Array, Encoder, PyTree, Sequence

BITS = 16
MOST = 64  # codes that are remembered until they are learned from, the newest ones


class Table(NamedTuple):
    """How often each code was seen, and what makes codes."""

    encoder: Encoder
    planes: Array  # [N, BITS]
    counts: Array  # [2^BITS]

    def codes(self, observation: PyTree) -> Array:
        """[T, B] as numbers."""
        sides = encode(self.encoder, observation) @ self.planes > 0
        return jnp.sum(sides * 2 ** jnp.arange(BITS), axis=-1)


@dataclass(frozen=True)
class Recent(Recall):
    """Codes [B, MOST] of an episode's latest observations, -1 where there are no more."""

    def blank(self, batch: int) -> Array:
        return jnp.full((batch, MOST), -1)

    def after(self, memory: Array, embedding: Array, observation: Array) -> Array:
        return jnp.concatenate([observation[:, None], memory[:, :-1]], axis=1)

    def novelty(self, memory: Array, embedding: Array, observation: Array) -> Array:
        """How often a code is among them."""
        return jnp.sum(memory == observation[:, None], axis=1)


class Counts(Curiosity):
    """Nothing but its table."""

    reads_representation = False

    epochs: int = eqx.field(static=True)

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls(materials.epochs)

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Table:
        """Nothing was seen."""
        encoder_key, planes = jax.random.split(key)
        size = (materials.embedding_size, BITS)
        return Table(materials.make_encoder(encoder_key), jax.random.normal(planes, size), jnp.zeros((2**BITS,)))

    def __call__(self, state: Table, view: View, sequence: Sequence) -> CuriosityOutput:
        _, uncertainty = self.follow(state, self.opened(sequence.is_first.shape[1]), view, sequence)
        return CuriosityOutput(jnp.zeros(()), uncertainty, {"codes_seen": jnp.sum(state.counts > 0)})

    def opened(self, batch: int) -> Array:
        return Recent().blank(batch)

    def follow(self, state: Table, carry: Array, view: View, sequence: Sequence) -> tuple[Array, Array]:
        codes = state.codes(sequence.observation)
        carry, recent = Recent().walk(carry, codes, sequence._replace(observation=codes))
        return carry, jax.lax.rsqrt(1.0 + state.counts[codes[1:]] + recent)

    def after(self, state: Table, encoder: Encoder, sequence: Sequence) -> Table:
        seen = sequence.seen / self.epochs
        return state._replace(counts=state.counts.at[state.codes(sequence.observation)].add(seen))
