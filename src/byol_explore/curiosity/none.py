"""No curiosity: the pure RL baseline."""

import equinox as eqx
import jax.numpy as jnp

from byol_explore.curiosity.base import CuriosityOutput
from byol_explore.networks.assembly import View
from byol_explore.types import Encoder, Trajectory


class NoCuriosity(eqx.Module):
    """Certain of everything: no loss, no uncertainty."""

    def initial_target(self, encoder: Encoder, fresh: Encoder) -> tuple[()]:
        return ()

    def update_target(self, target: tuple[()], encoder: Encoder) -> tuple[()]:
        return ()

    def __call__(self, target: tuple[()], view: View, trajectory: Trajectory) -> CuriosityOutput:
        zero = jnp.zeros(())
        return CuriosityOutput(zero, jnp.zeros_like(trajectory.reward), {"prediction_error": zero[None]})
