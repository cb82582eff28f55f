"""Exploration via elliptical episodic bonuses, E3B (Henaff et al., 2022).

    C_t = ridge I + sum of f(o_i) f(o_i)^T over the episode's observations o_0 ... o_t
    l_t = f(o_{t+1})^T C_t^-1 f(o_{t+1})

An observation is worth much if its embedding lies in a direction that this episode has not been in yet. C^-1 is kept,
for each environment, and moves with every observation by Sherman and Morrison's formula; where an episode begins it is
I / ridge again:

    u = C^-1 f,   C^-1 <- C^-1 - u u^T / (1 + f^T u)

An inverse model shapes the embeddings, so that they tell what actions change and little else: that is all that is
trained. With sharing the agent's own losses shape them too.
"""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.curiosity.icm import inverse_losses
from byol_explore.networks.assembly import View
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.recall import Recall
from byol_explore.ops import moments
from byol_explore.types import Array, PyTree, Sequence

RIDGE = 0.1  # the paper's


@dataclass(frozen=True)
class Ellipse(Recall):
    """The inverse covariance C^-1 [B, N, N] of an episode's embeddings."""

    size: int

    def blank(self, batch: int) -> Array:
        return jnp.broadcast_to(jnp.eye(self.size) / RIDGE, (batch, self.size, self.size))

    def after(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        """By Sherman and Morrison's formula."""
        along = jnp.einsum("bij,bj->bi", memory, embedding)
        length = jnp.maximum(jnp.sum(along * embedding, axis=-1), 0.0)
        return memory - along[:, :, None] * along[:, None, :] / (1.0 + length)[:, None, None]

    def novelty(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        """The embedding's length in units of the ellipse."""
        return jnp.maximum(jnp.einsum("bi,bij,bj->b", embedding, memory, embedding), 0.0)


class E3B(Curiosity):
    """The inverse model, and the ellipse of each episode."""

    reads = ("share", "prioritize")

    inverse: PolicyHead

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls(PolicyHead(2 * materials.embedding_size, materials.network.predictor_hidden, materials.action, key))

    @classmethod
    def recall(cls, embedding_size: int) -> Ellipse:
        return Ellipse(embedding_size)

    def __call__(self, state: tuple[()], view: View, sequence: Sequence) -> CuriosityOutput:
        features = jax.lax.stop_gradient(view.embedding)
        _, uncertainty = self.recall(features.shape[-1]).walk(view.episode, features, sequence)
        loss = moments.masked_mean(inverse_losses(self.inverse, view.embedding, sequence.action), sequence.valid)
        return CuriosityOutput(loss, uncertainty, {"inverse_loss": loss})
