"""Exploration via elliptical episodic bonuses, E3B (Henaff et al., 2022).

    C_t = ridge I + sum of f(o_i) f(o_i)^T over the episode's observations o_0 ... o_t
    l_t = f(o_{t+1})^T C_t^-1 f(o_{t+1})

The uncertainty is large if the embedding of o_{t+1} has a direction that this episode has not visited. Each environment
keeps C^-1, which is I / ridge where an episode begins. The Sherman-Morrison formula updates it with every observation:

    u = C^-1 f,   C^-1 <- C^-1 - u u^T / (1 + f^T u)

The loss is that of an inverse model alone, so embeddings contain what actions change, and little else. If the
representation is shared, the agent's losses train them too.
"""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.icm import inverse_loss
from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.episodic_memory import EpisodicMemory
from byol_explore.networks.representation import PolicyHead, RepresentationOutput
from byol_explore.types import Array, PyTree, SequenceBatch

RIDGE = 0.1  # of the paper


@dataclass(frozen=True)
class InverseCovariance(EpisodicMemory):
    """Inverse covariance C^-1 [B, N, N] of the embeddings of an episode."""

    size: int

    def init(self, batch: int) -> Array:
        return jnp.broadcast_to(jnp.eye(self.size) / RIDGE, (batch, self.size, self.size))

    def insert(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        # Sherman-Morrison formula: no matrix is inverted.
        product = jnp.einsum("bij,bj->bi", memory, embedding)
        # Float32 updates can make C^-1 slightly indefinite.
        squared_length = jnp.maximum(jnp.sum(product * embedding, axis=-1), 0.0)
        return memory - product[:, :, None] * product[:, None, :] / (1.0 + squared_length)[:, None, None]

    def novelty(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        """Return f^T C^-1 f of the embeddings [B]."""
        # As in `insert`, float32 errors must not make it negative.
        return jnp.maximum(jnp.einsum("bi,bij,bj->b", embedding, memory, embedding), 0.0)


class E3B(IntrinsicMethod):
    """Inverse model; the uncertainty comes from the memory of the episode."""

    config_fields = ("share_representation", "prioritize")

    inverse: PolicyHead

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        return cls(PolicyHead(2 * context.embedding_size, context.network.predictor_hidden, context.action, key))

    @classmethod
    def episodic_memory(cls, embedding_size: int) -> InverseCovariance:
        return InverseCovariance(embedding_size)

    def __call__(self, state: tuple[()], view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        features = jax.lax.stop_gradient(view.embedding)
        _, uncertainty = self.episodic_memory(features.shape[-1]).unroll(view.episodic_memory, features, sequence)
        loss = inverse_loss(self.inverse, view, sequence)
        return MethodOutput(loss, uncertainty, {"inverse_loss": loss})
