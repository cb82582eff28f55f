"""The intrinsic curiosity module (Pathak et al., 2017) as appendix B describes it."""

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.agent import log_prob
from byol_explore.config import NetworkConfig
from byol_explore.curiosity.base import CuriosityOutput
from byol_explore.envs.base import ActionSpec
from byol_explore.networks.actions import ActionEmbedding
from byol_explore.networks.assembly import View
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.layers import MLP, Linear
from byol_explore.ops import latent, moments
from byol_explore.types import Array, Encoder, Trajectory


class ICM(eqx.Module):
    """An inverse model shapes the encoder; a forward model on stopped features gives the uncertainty."""

    inverse: PolicyHead
    action: ActionEmbedding
    project_action: Linear
    forward: MLP

    def __init__(self, network: NetworkConfig, spec: ActionSpec, embedding_size: int, key: Array) -> None:
        inverse, action, project, forward = jax.random.split(key, 4)
        self.inverse = PolicyHead(2 * embedding_size, network.predictor_hidden, spec, inverse)
        self.action = ActionEmbedding(spec, network.action_size, action, bins=network.action_bins)
        self.project_action = Linear(network.action_size, network.action_size, project)
        inputs = embedding_size + network.action_size
        self.forward = MLP(inputs, network.predictor_hidden, embedding_size, forward)

    def initial_target(self, encoder: Encoder, fresh: Encoder) -> tuple[()]:
        return ()

    def update_target(self, target: tuple[()], encoder: Encoder) -> tuple[()]:
        return ()

    def __call__(self, target: tuple[()], view: View, trajectory: Trajectory) -> CuriosityOutput:
        before, after = view.embedding[:-1], view.embedding[1:]
        guess = self.inverse(jnp.concatenate([before, after], axis=-1))
        inverse_loss = -log_prob(guess, trajectory.action)
        action = self.action(trajectory.action, None, self.project_action)
        prediction = self.forward(jnp.concatenate([jax.lax.stop_gradient(before), action], axis=-1))
        error = latent.squared_distance(prediction, after)
        valid = trajectory.valid
        inverse_mean = moments.masked_mean(inverse_loss, valid)
        forward_mean = moments.masked_mean(error, valid)
        return CuriosityOutput(
            loss=inverse_mean + forward_mean,
            uncertainty=jax.lax.stop_gradient(error),
            metrics={"prediction_error": forward_mean[None], "inverse_loss": inverse_mean},
        )
