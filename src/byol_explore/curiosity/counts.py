"""Counts of hashed observations (Tang et al., 2017).

    hash(o) = the side of each of 16 random planes on which the embedding f(o) lies (SimHash)
    l_t     = 1 / sqrt(1 + n + m)   with the hash of o_{t+1}

n counts the hash in all sequences that were learned from, m in the current sequence and episode before o_{t+1}, which
are not learned from yet. The encoder f is random and never changes. It is centred on the first observations, so the
planes, which contain the origin, cut through the middle of the embeddings. Nothing is trained. With several epochs,
each pass adds 1 / epochs to a count.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.byol_explore import encode_sequence
from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.episodic_memory import EpisodicMemory
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch

BITS = 16
CAPACITY = 64  # newest hashes of an episode that m counts


class HashCounts(NamedTuple):
    """The random encoder and planes that hash observations, and the count n of every hash."""

    encoder: Encoder
    planes: Array  # [N, BITS]
    counts: Array  # [2^BITS]

    def hashes(self, observation: PyTree) -> Array:
        """Hash observations [T, B, ...]. Returns integers [T, B]."""
        sides = encode_sequence(self.encoder, observation) @ self.planes > 0
        return jnp.sum(sides * 2 ** jnp.arange(BITS), axis=-1)


@dataclass(frozen=True)
class RecentHashes(EpisodicMemory):
    """Hashes [B, CAPACITY] of the latest observations of an episode, newest first; -1 in empty places."""

    def init(self, batch: int) -> Array:
        return jnp.full((batch, CAPACITY), -1)

    def insert(self, memory: Array, embedding: Array, observation: Array) -> Array:
        return jnp.concatenate([observation[:, None], memory[:, :-1]], axis=1)

    def novelty(self, memory: Array, embedding: Array, observation: Array) -> Array:
        """Return m [B], how often a hash is among them."""
        return jnp.sum(memory == observation[:, None], axis=1)


class Counts(IntrinsicMethod):
    """Nothing to train; the state is the table of counts."""

    uses_representation = False

    epochs: int = eqx.field(static=True)

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        return cls(context.epochs)

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> HashCounts:
        encoder_key, planes = jax.random.split(key)
        size = (context.embedding_size, BITS)
        return HashCounts(context.make_encoder(encoder_key), jax.random.normal(planes, size), jnp.zeros((2**BITS,)))

    def __call__(self, state: HashCounts, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        _, uncertainty = self.stream_uncertainty(state, self.init_carry(sequence.is_first.shape[1]), view, sequence)
        return MethodOutput(jnp.zeros(()), uncertainty, {"hash_codes_seen": jnp.sum(state.counts > 0)})

    def init_carry(self, batch: int) -> Array:
        return RecentHashes().init(batch)

    def stream_uncertainty(
        self, state: HashCounts, carry: Array, view: RepresentationOutput, sequence: SequenceBatch
    ) -> tuple[Array, Array]:
        hashes = state.hashes(sequence.observation)
        hashed = sequence._replace(observation=hashes, raw_observation=hashes)
        carry, recent = RecentHashes().unroll(carry, hashes, hashed)
        return carry, jax.lax.rsqrt(1.0 + state.counts[hashes[1:]] + recent)

    def update_state(self, state: HashCounts, encoder: Encoder, sequence: SequenceBatch) -> HashCounts:
        weight = sequence.observed / self.epochs
        return state._replace(counts=state.counts.at[state.hashes(sequence.observation)].add(weight))
