"""Random network distillation (Burda et al., 2019) as appendix B describes it."""

from typing import Self

import jax

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.assembly import View
from byol_explore.ops import latent, moments
from byol_explore.ops.batches import flat, timed
from byol_explore.types import Array, Encoder, PyTree, Sequence


class RND(Curiosity):
    """A predictor regresses a fixed random encoder; a transition's uncertainty is the error at o_{t+1}."""

    reads_representation = False
    has_target = True

    predictor: Encoder

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls(materials.make_encoder(jax.random.split(key)[0]))

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> PyTree:
        """The random encoder."""
        return materials.make_encoder(key)

    def target(self, state: Encoder) -> Encoder:
        return state

    def __call__(self, state: PyTree, view: View, sequence: Sequence) -> CuriosityOutput:
        error = self.errors(state, sequence)
        loss = moments.masked_mean(error, sequence.seen)
        return CuriosityOutput(
            loss=loss,
            uncertainty=jax.lax.stop_gradient(error[1:]),
            metrics={"prediction_error": loss[None]},
        )

    def errors(self, state: Encoder, sequence: Sequence) -> Array:
        """[T, B] at each observation."""
        observation = jax.tree.map(flat, sequence.observation)
        errors = latent.squared_distance(self.predictor(observation), state(observation))
        return timed(errors, sequence.is_first.shape[0])
