"""Disagreement of an ensemble of one-step predictors (Pathak et al., 2019).

    loss = mean over i of |g_i(f(o_t), a_t) - f(o_{t+1})|^2
    l_t  = variance over i of g_i(f(o_t), a_t), summed over the numbers of an embedding

The predictors differ in nothing but how they began. Where there is much to learn they differ; what is noise they all
learn to expect on average, and so agree. Embeddings are those of a random encoder that stays as it is drawn.
"""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.curiosity.byol_explore import encode
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.assembly import View
from byol_explore.networks.layers import MLP, Linear
from byol_explore.ops import latent, moments
from byol_explore.types import Array, Encoder, Sequence

MEMBERS = 5


class Disagreement(Curiosity):
    """The ensemble; its state is the random encoder."""

    reads_representation = False
    has_target = True

    action: ActionEmbedding
    project_action: Linear
    members: MLP  # every array has an axis of members in front

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """Members have the predictor's hidden layers."""
        network, size = materials.network, materials.embedding_size
        action, project, members = jax.random.split(key, 3)

        def member(key: Array) -> MLP:
            return MLP(size + network.action_size, network.predictor_hidden, size, key)

        return cls(
            action=ActionEmbedding(materials.action, network.action_size, action, bins=network.action_bins),
            project_action=Linear(network.action_size, network.action_size, project),
            members=jax.vmap(member)(jax.random.split(members, MEMBERS)),
        )

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Encoder:
        """The random encoder."""
        return materials.make_encoder(key)

    def target(self, state: Encoder) -> Encoder:
        return state

    def __call__(self, state: Encoder, view: View, sequence: Sequence) -> CuriosityOutput:
        embedding = encode(state, sequence.observation)
        action = self.action(sequence.action, None, self.project_action)
        inputs = jnp.concatenate([embedding[:-1], action], axis=-1)
        predictions = eqx.filter_vmap(lambda member: member(inputs))(self.members)  # [members, T-1, B, N]
        error = jnp.mean(latent.squared_distance(predictions, jnp.broadcast_to(embedding[1:], predictions.shape)), 0)
        loss = moments.masked_mean(error, sequence.valid)
        variance = jnp.sum(jnp.var(jax.lax.stop_gradient(predictions), axis=0), axis=-1)
        return CuriosityOutput(loss, variance, {"prediction_error": loss[None]})
