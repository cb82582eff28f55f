"""The intrinsic curiosity module (Pathak et al., 2017) as appendix B describes it."""

from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.assembly import View
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.layers import MLP, Linear
from byol_explore.ops import latent, moments, policies
from byol_explore.types import Action, Array, Sequence


class ICM(Curiosity):
    """An inverse model shapes the encoder; a forward model on stopped features gives the uncertainty."""

    reads = ("share", "prioritize")

    inverse: PolicyHead
    action: ActionEmbedding
    project_action: Linear
    forward: MLP

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """Both models have the predictor's hidden layers."""
        network, size = materials.network, materials.embedding_size
        inverse, action, project, forward = jax.random.split(key, 4)
        return cls(
            inverse=PolicyHead(2 * size, network.predictor_hidden, materials.action, inverse),
            action=ActionEmbedding(materials.action, network.action_size, action, bins=network.action_bins),
            project_action=Linear(network.action_size, network.action_size, project),
            forward=MLP(size + network.action_size, network.predictor_hidden, size, forward),
        )

    def __call__(self, state: tuple[()], view: View, sequence: Sequence) -> CuriosityOutput:
        before, after = view.embedding[:-1], view.embedding[1:]
        action = self.action(sequence.action, None, self.project_action)
        prediction = self.forward(jnp.concatenate([jax.lax.stop_gradient(before), action], axis=-1))
        error = latent.squared_distance(prediction, after)
        valid = sequence.valid
        inverse_mean = moments.masked_mean(inverse_losses(self.inverse, view.embedding, sequence.action), valid)
        forward_mean = moments.masked_mean(error, valid)
        return CuriosityOutput(
            loss=inverse_mean + forward_mean,
            uncertainty=jax.lax.stop_gradient(error),
            metrics={"prediction_error": forward_mean[None], "inverse_loss": inverse_mean},
        )


def inverse_losses(inverse: PolicyHead, embedding: Array, action: Action) -> Array:
    """-log p(a_t | f(o_t), f(o_{t+1})) [T-1, B] of embeddings [T, B, N]: what they tell of the action between them."""
    guess = inverse(jnp.concatenate([embedding[:-1], embedding[1:]], axis=-1))
    return -jax.vmap(jax.vmap(policies.log_prob))(guess, action)
