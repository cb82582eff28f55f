"""Random encoders for efficient exploration, RE3 (Seo et al., 2021).

    l_t = log(1 + mean of |f(o_{t+1}) - y| over the K nearest y)

The y are the embeddings of the latest observations that were learned from: about a rollout of the trainer. Where few of
them are near, few visits were, so that an agent that is paid for it raises the entropy of where it goes. Embeddings are
those of a random encoder that stays as it is drawn. There is nothing to train, and nothing is worth anything before the
first observations were learned from.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.curiosity.byol_explore import encode
from byol_explore.networks.assembly import View
from byol_explore.ops.batches import flat
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, Encoder, Sequence

NEIGHBOURS = 3  # the paper's
MOST = 4096  # observations that are remembered, the newest ones


class Bank(NamedTuple):
    """What was learned from last, and what embeds it."""

    encoder: Encoder
    points: Array  # [MOST, N]
    there: Array  # [MOST] bool: False where nothing is yet

    def distances(self, embedding: Array) -> tuple[Array, Array]:
        """[..., K] of embeddings [..., N] to their nearest points, and which of these there are."""
        closeness = 2.0 * embedding @ self.points.T - jnp.sum(jnp.square(self.points), axis=-1)
        _, nearest = jax.lax.top_k(jnp.where(self.there, closeness, -jnp.inf), NEIGHBOURS)
        apart = jnp.linalg.norm(embedding[..., None, :] - self.points[nearest], axis=-1)
        return apart, self.there[nearest]


class RE3(Curiosity):
    """Nothing but its bank."""

    reads_representation = False

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Bank:
        """Nothing was seen."""
        points = jnp.zeros((MOST, materials.embedding_size))
        return Bank(materials.make_encoder(key), points, jnp.zeros((MOST,), bool))

    def __call__(self, state: Bank, view: View, sequence: Sequence) -> CuriosityOutput:
        apart, there = state.distances(encode(state.encoder, sequence.observation)[1:])
        mean = jnp.sum(jnp.where(there, apart, 0.0), axis=-1) / jnp.maximum(jnp.sum(there, axis=-1), 1)
        return CuriosityOutput(jnp.zeros(()), jnp.log1p(mean), {"distance": masked_mean(mean, sequence.valid)})

    def after(self, state: Bank, encoder: Encoder, sequence: Sequence) -> Bank:
        """The new ones in front, and what no longer fits in is forgotten."""
        points = jnp.concatenate([flat(encode(state.encoder, sequence.observation)), state.points])
        there = jnp.concatenate([flat(sequence.seen), state.there])
        kept = jnp.argsort(~there, stable=True)[:MOST]
        return Bank(state.encoder, points[kept], there[kept])
