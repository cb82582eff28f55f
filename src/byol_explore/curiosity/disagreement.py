"""Disagreement of an ensemble of one-step predictors (Pathak et al., 2019).

    loss = mean over i of |g_i(f(o_t), a_t) - f(o_{t+1})|^2
    l_t  = sum over n of the variance over i of g_i(f(o_t), a_t)_n

The predictors g_i differ in their initial weights only. They disagree where there is much to learn. Where o_{t+1} is
noise they all converge to its mean, and agree. The encoder f is random and never changes.
"""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.byol_explore import encode_sequence
from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.core_inputs import ActionEmbedding
from byol_explore.networks.layers import MLP, Linear
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops import arrays, world_model
from byol_explore.types import Array, Encoder, SequenceBatch

ENSEMBLE_SIZE = 5


class Disagreement(IntrinsicMethod):
    """Ensemble of predictors; the state is the random encoder."""

    uses_representation = False
    has_target_encoder = True

    action: ActionEmbedding
    project_action: Linear
    ensemble: MLP  # leading axis of every array: members

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        network, size = context.network, context.embedding_size
        action, project, members = jax.random.split(key, 3)

        def member(key: Array) -> MLP:
            return MLP(size + network.action_embedding_size, network.predictor_hidden, size, key)

        return cls(
            action=ActionEmbedding(context.action, network.action_embedding_size, action, bins=network.action_bins),
            project_action=Linear(network.action_embedding_size, network.action_embedding_size, project),
            ensemble=jax.vmap(member)(jax.random.split(members, ENSEMBLE_SIZE)),
        )

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> Encoder:
        return context.make_encoder(key)

    def __call__(self, state: Encoder, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        embedding = encode_sequence(state, sequence.observation)
        action = self.action(sequence.action, None, self.project_action)
        inputs = jnp.concatenate([embedding[:-1], action], axis=-1)
        predictions = eqx.filter_vmap(lambda member: member(inputs))(self.ensemble)  # [members, T-1, B, N]
        targets = jnp.broadcast_to(embedding[1:], predictions.shape)
        error = jnp.mean(world_model.squared_distance(predictions, targets), axis=0)
        loss = arrays.masked_mean(error, sequence.valid)
        variance = jnp.sum(jnp.var(jax.lax.stop_gradient(predictions), axis=0), axis=-1)
        return MethodOutput(loss, variance, {"prediction_error": loss[None]})
