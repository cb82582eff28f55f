"""Random network distillation, RND (Burda et al., 2019), as appendix B describes it.

    e(o) = |g(o) - f_random(o)|^2,   loss = mean of e,   l_t = e(o_{t+1})

The predictor g learns the random encoder where it has seen many observations, so its error is a measure of novelty.
"""

from typing import Self

import jax

from byol_explore.curiosity.method import BuildContext, IntrinsicMethod, MethodOutput
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops import arrays, world_model
from byol_explore.ops.arrays import merge_time_batch, split_time_batch
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch


class RND(IntrinsicMethod):
    """A predictor of a random encoder; the state is that encoder, which never changes."""

    uses_representation = False
    has_target_encoder = True

    predictor: Encoder

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        return cls(context.make_encoder(jax.random.split(key)[0]))

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> PyTree:
        return context.make_encoder(key)

    def __call__(self, state: PyTree, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        error = self.errors(state, sequence)
        loss = arrays.masked_mean(error, sequence.observed)
        return MethodOutput(
            loss=loss,
            uncertainty=jax.lax.stop_gradient(error[1:]),
            metrics={"prediction_error": loss[None]},
        )

    def errors(self, state: Encoder, sequence: SequenceBatch) -> Array:
        """Compute the squared errors [T, B] at every observation."""
        observation = jax.tree.map(merge_time_batch, sequence.observation)
        errors = world_model.squared_distance(self.predictor(observation), state(observation))
        return split_time_batch(errors, sequence.is_first.shape[0])
