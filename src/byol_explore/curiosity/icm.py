"""Intrinsic curiosity module, ICM (Pathak et al., 2017), as appendix B describes it.

    L_inverse = -log p(a_t | f(o_t), f(o_{t+1}))
    L_forward = |g(sg f(o_t), a_t) - sg f(o_{t+1})|^2
    loss = L_inverse + L_forward,   l_t = L_forward

The gradient of L_inverse alone reaches the encoder, so embeddings contain what actions change.
"""

from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.core_inputs import ActionEmbedding
from byol_explore.networks.layers import MLP, Linear
from byol_explore.networks.representation import PolicyHead, RepresentationOutput
from byol_explore.ops import arrays, policy, world_model
from byol_explore.types import Array, SequenceBatch


class ICM(IntrinsicMethod):
    """Inverse model, which trains the encoder, and forward model, which reads its embeddings without gradient."""

    config_fields = ("share_representation", "prioritize")

    inverse: PolicyHead
    action: ActionEmbedding
    project_action: Linear
    forward: MLP

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        network, size = context.network, context.embedding_size
        inverse, action, project, forward = jax.random.split(key, 4)
        return cls(
            inverse=PolicyHead(2 * size, network.predictor_hidden, context.action, inverse),
            action=ActionEmbedding(context.action, network.action_embedding_size, action, bins=network.action_bins),
            project_action=Linear(network.action_embedding_size, network.action_embedding_size, project),
            forward=MLP(size + network.action_embedding_size, network.predictor_hidden, size, forward),
        )

    def __call__(self, state: tuple[()], view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        before, after = view.embedding[:-1], view.embedding[1:]
        action = self.action(sequence.action, None, self.project_action)
        prediction = self.forward(jnp.concatenate([jax.lax.stop_gradient(before), action], axis=-1))
        error = world_model.squared_distance(prediction, after)
        inverse, forward = inverse_loss(self.inverse, view, sequence), arrays.masked_mean(error, sequence.valid)
        metrics = {"prediction_error": forward[None], "inverse_loss": inverse}
        return MethodOutput(inverse + forward, jax.lax.stop_gradient(error), metrics)


def inverse_loss(inverse: PolicyHead, view: RepresentationOutput, sequence: SequenceBatch) -> Array:
    """Compute the mean of -log p(a_t | f(o_t), f(o_{t+1})) over the valid transitions.

    Args:
      inverse: head from two embeddings [..., 2 N] to a distribution of actions.
      view: embeddings [T, B, N].
      sequence: actions [T-1, B, ...].
    """
    prediction = inverse(jnp.concatenate([view.embedding[:-1], view.embedding[1:]], axis=-1))
    return arrays.masked_mean(-jax.vmap(jax.vmap(policy.log_prob))(prediction, sequence.action), sequence.valid)
