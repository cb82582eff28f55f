"""Random network distillation (Burda et al., 2019) as appendix B describes it."""

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import CuriosityOutput
from byol_explore.networks.assembly import View
from byol_explore.ops import latent, moments
from byol_explore.types import Encoder, Trajectory


class RND(eqx.Module):
    """A predictor regresses a fixed random encoder; a transition's uncertainty is the error at o_{t+1}."""

    predictor: Encoder

    def initial_target(self, encoder: Encoder, fresh: Encoder) -> Encoder:
        return fresh

    def update_target(self, target: Encoder, encoder: Encoder) -> Encoder:
        return target

    def __call__(self, target: Encoder, view: View, trajectory: Trajectory) -> CuriosityOutput:
        lead = trajectory.is_first.shape
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), trajectory.observation)
        error = latent.squared_distance(self.predictor(flat), target(flat)).reshape(lead)
        loss = moments.masked_mean(error, jnp.ones(lead, bool))
        return CuriosityOutput(
            loss=loss,
            uncertainty=jax.lax.stop_gradient(error[1:]),
            metrics={"prediction_error": loss[None]},
        )
