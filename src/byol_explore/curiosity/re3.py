"""Random encoders for efficient exploration, RE3 (Seo et al., 2021).

    l_t = log(1 + mean of |f(o_{t+1}) - y| over the K nearest y)

The y are embeddings of the latest observations that were learned from, about one rollout of the trainer. The distance
to the nearest ones is large where visits are rare, so an agent that maximises it raises the entropy of the states that
it visits. The encoder f is random and never changes. Nothing is trained, and uncertainties are 0 before the first
learner step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.curiosity.byol_explore import encode_sequence
from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops.arrays import masked_mean, merge_time_batch
from byol_explore.types import Array, Encoder, SequenceBatch

NEIGHBORS = 3  # K, of the paper
CAPACITY = 4096  # newest observations that are kept


class EmbeddingBuffer(NamedTuple):
    """The random encoder, and embeddings of the latest observations."""

    encoder: Encoder
    embeddings: Array  # [CAPACITY, N] newest first
    is_filled: Array  # [CAPACITY] bool

    def distances(self, embedding: Array) -> tuple[Array, Array]:
        """Return distances [..., K] from embeddings [..., N] to their nearest neighbors, and which of these exist."""
        closeness = 2.0 * embedding @ self.embeddings.T - jnp.sum(jnp.square(self.embeddings), axis=-1)
        _, nearest = jax.lax.top_k(jnp.where(self.is_filled, closeness, -jnp.inf), NEIGHBORS)
        # Subtract the neighbours themselves: the difference of squared lengths would round small distances.
        distance = jnp.linalg.norm(embedding[..., None, :] - self.embeddings[nearest], axis=-1)
        return distance, self.is_filled[nearest]


class RE3(IntrinsicMethod):
    """Nothing to train; the state is the buffer of embeddings."""

    uses_representation = False

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> EmbeddingBuffer:
        """Return an empty buffer."""
        embeddings = jnp.zeros((CAPACITY, context.embedding_size))
        return EmbeddingBuffer(context.make_encoder(key), embeddings, jnp.zeros((CAPACITY,), bool))

    def __call__(self, state: EmbeddingBuffer, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        distance, exists = state.distances(encode_sequence(state.encoder, sequence.observation)[1:])
        mean = jnp.sum(jnp.where(exists, distance, 0.0), axis=-1) / jnp.maximum(jnp.sum(exists, axis=-1), 1)
        return MethodOutput(jnp.zeros(()), jnp.log1p(mean), {"knn_distance": masked_mean(mean, sequence.valid)})

    def update_state(self, state: EmbeddingBuffer, encoder: Encoder, sequence: SequenceBatch) -> EmbeddingBuffer:
        """Insert the new embeddings in front of the old ones; drop the oldest."""
        new = merge_time_batch(encode_sequence(state.encoder, sequence.observation))
        embeddings = jnp.concatenate([new, state.embeddings])
        is_filled = jnp.concatenate([merge_time_batch(sequence.observed), state.is_filled])
        kept = jnp.argsort(~is_filled, stable=True)[:CAPACITY]  # padding and empty places go last
        return EmbeddingBuffer(state.encoder, embeddings[kept], is_filled[kept])
