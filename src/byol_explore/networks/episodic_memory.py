"""Per-episode memories, carried along a stream beside the recurrent state.

The agent carries a memory from observation to observation while it acts, a `MethodLearner` from sequence to sequence.
So every sequence comes with the memory before its first observation (`RepresentationOutput.episodic_memory`), wherever
its episode was cut. The encoder may have learned since, as with a recurrent state.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.ops.arrays import where_batch
from byol_explore.types import Array, PyTree, SequenceBatch


# Frozen, because these rules are a static field of a jitted module, which must be hashable.
@dataclass(frozen=True)
class EpisodicMemory:
    """Rules of a per-episode memory, without parameters. This base class remembers nothing."""

    def init(self, batch: int) -> PyTree:
        """Return the memory [B, ...] of empty episodes."""
        return ()

    def insert(self, memory: PyTree, embedding: Array, observation: PyTree) -> PyTree:
        """Add one observation to each episode.

        Args:
          memory: [B, ...].
          embedding: [B, N] f(o).
          observation: [B, ...] o, not normalised: the normalizer moves during an episode.
        Returns:
          Memory [B, ...].
        """
        return memory

    def novelty(self, memory: PyTree, embedding: Array, observation: PyTree) -> Array:
        """Return the novelty [B] (or [B, ...]) of an observation relative to the memory of its episode."""
        return jnp.ones(embedding.shape[0])

    def step(self, memory: PyTree, embedding: Array, observation: PyTree, is_first: Array) -> PyTree:
        """Add one observation of a stream; the memory is emptied first where `is_first` [B] is True."""
        memory = where_batch(is_first, self.init(is_first.shape[0]), memory)
        return self.insert(memory, embedding, observation)

    def unroll(self, memory: PyTree, embedding: Array, sequence: SequenceBatch) -> tuple[PyTree, Array]:
        """Advance the memory along sequences.

        The last observation is not added: it is the first one of the sequence that follows. Padding is not added.

        Args:
          memory: [B, ...] before the first observation.
          embedding: [T, B, N].
          sequence: `raw` [T, B, ...], `is_first` and `observed` [T, B].
        Returns:
          The memory before the last observation, and novelties [T-1, B]: transition t has the novelty of o_{t+1}
          relative to its episode up to o_t.
        """

        def step(memory: PyTree, inputs: Any) -> tuple[PyTree, Array]:
            (embedding, observation), following, is_first, is_observed = inputs
            updated = self.step(memory, embedding, observation, is_first)
            return where_batch(is_observed, updated, memory), self.novelty(updated, *following)

        if not jax.tree.leaves(memory):
            return memory, jnp.ones(sequence.valid.shape)
        steps = (embedding, sequence.raw)
        current, following = jax.tree.map(lambda x: x[:-1], steps), jax.tree.map(lambda x: x[1:], steps)
        return jax.lax.scan(step, memory, (current, following, sequence.is_first[:-1], sequence.observed[1:]))


NO_MEMORY = EpisodicMemory()


class EmbeddingRing(NamedTuple):
    """Ring buffer of embeddings. Observation i of the episode is at i modulo `capacity`; older entries are stale."""

    embedding: Array  # [B, capacity, N]
    length: Array  # [B] observations of the episode so far


@dataclass(frozen=True)
class NearestNeighborMemory(EpisodicMemory):
    """Remember an episode as a list of embeddings. Novelties are squared distances [B, K] to the nearest neighbours.

    Distances are infinite if there are fewer than K. The list is a ring buffer of the newest observations. A new
    episode resets the count instead of the entries, and whole sequences are compared with the ring at once: a step
    costs one write, a sequence one matrix product.
    """

    size: int  # N
    capacity: int
    neighbors: int  # K

    def init(self, batch: int) -> EmbeddingRing:
        return EmbeddingRing(jnp.zeros((batch, self.capacity, self.size)), jnp.zeros(batch, jnp.int32))

    def insert(self, memory: EmbeddingRing, embedding: Array, observation: PyTree) -> EmbeddingRing:
        never = jnp.zeros(memory.length.shape, bool)
        return self._write(memory, embedding, never, ~never)

    def novelty(self, memory: EmbeddingRing, embedding: Array, observation: PyTree) -> Array:
        distances = squared_distances(embedding[None], memory.embedding)[0]
        return self._nearest(jnp.where(self._age(memory) < memory.length[:, None], distances, jnp.inf))

    def step(self, memory: EmbeddingRing, embedding: Array, observation: PyTree, is_first: Array) -> EmbeddingRing:
        return self._write(memory, embedding, is_first, jnp.ones_like(is_first))

    def unroll(self, memory: EmbeddingRing, embedding: Array, sequence: SequenceBatch) -> tuple[EmbeddingRing, Array]:
        """Compare every o_{t+1} with the ring and with the sequence itself. Returns (memory, distances [T-1, B, K])."""
        current, following = embedding[:-1], embedding[1:]
        is_first, is_observed = sequence.is_first[:-1], sequence.observed[1:]
        episode = jnp.cumsum(is_first, axis=0)  # [T-1, B] index of the episode, 0 for the one before the sequence
        step = jnp.arange(len(current))
        age = self._age(memory)
        in_ring = (
            (age < memory.length[:, None]) & (age + step[:, None, None] + 1 < self.capacity) & (episode == 0)[..., None]
        )
        lag = (step[:, None] - step)[:, None, :]  # [T-1, 1, T-1] steps from o_i to o_t
        in_sequence = (lag >= 0) & (lag < self.capacity) & (episode[..., None] == episode.T)
        distances = [
            jnp.where(in_ring, squared_distances(following, memory.embedding), jnp.inf),
            jnp.where(in_sequence, squared_distances(following, current.swapaxes(0, 1)), jnp.inf),
        ]
        nearest = self._nearest(jnp.concatenate(distances, axis=-1))

        def write(memory: EmbeddingRing, inputs: tuple[Array, Array, Array]) -> tuple[EmbeddingRing, None]:
            return self._write(memory, *inputs), None

        return jax.lax.scan(write, memory, (current, is_first, is_observed))[0], nearest

    def _write(self, memory: EmbeddingRing, embedding: Array, is_first: Array, is_observed: Array) -> EmbeddingRing:
        """Write embeddings [B, N] where `is_observed` [B] is True."""
        count = jnp.where(is_first, 0, memory.length)
        index = jnp.where(is_observed, count % self.capacity, self.capacity)  # an index out of bounds is not written
        written = memory.embedding.at[jnp.arange(len(index)), index].set(embedding, mode="drop")
        return EmbeddingRing(written, jnp.where(is_observed, count + 1, memory.length))

    def _age(self, memory: EmbeddingRing) -> Array:
        """Steps [B, capacity] since each entry was written."""
        return (memory.length[:, None] - 1 - jnp.arange(self.capacity)) % self.capacity

    def _nearest(self, distances: Array) -> Array:
        return -jax.lax.top_k(-distances, self.neighbors)[0]


def squared_distances(one: Array, others: Array) -> Array:
    """Squared distances [T, B, M] between vectors [T, B, N] and [B, M, N]."""
    squares = jnp.sum(jnp.square(one), axis=-1)[..., None] + jnp.sum(jnp.square(others), axis=-1)
    products = jnp.einsum("tbn,bmn->tbm", one, others, precision="highest")  # a small difference of large numbers
    return jnp.maximum(squares - 2.0 * products, 0.0)
