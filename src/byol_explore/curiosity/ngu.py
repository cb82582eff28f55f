"""Never give up, NGU (Badia et al., 2020): new in this episode, times how new at all.

    d_i      = |f(o_{t+1}) - f(o_i)|^2 / m   of the K nearest of the episode's o_0 ... o_t
    kernel_i = epsilon / (max(d_i - xi, 0) + epsilon)
    episodic = 1 / (sqrt(sum over i of kernel_i) + c)
    lifelong = 1 + (e(o_{t+1}) - mean of e) / deviation of e
    l_t      = episodic * min(max(lifelong, 1), L)

Going somewhere again in the same episode is worth little, however little is known of it. An inverse model shapes the
embeddings f, so that they tell what actions change and little else; e is the error of RND's predictor. The mean m of
the squared distances and the statistics of e are running ones, of what was learned from: m as found inside of
sequences. Before the first of them nothing is worth anything. The paper's limit of similarity, 8, is left out: K = 10
neighbours do not reach it.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.base import CuriosityOutput, Materials
from byol_explore.curiosity.byol_explore import encode
from byol_explore.curiosity.icm import inverse_losses
from byol_explore.curiosity.rnd import RND
from byol_explore.networks.assembly import View
from byol_explore.networks.heads import PolicyHead
from byol_explore.networks.neighbours import Neighbours
from byol_explore.ops import moments
from byol_explore.types import Array, Encoder, Sequence

NEIGHBOURS, EPSILON, XI, C, LIMIT = 10, 1e-4, 8e-3, 1e-3, 5.0  # the paper's
MOST = 512  # observations of an episode that are remembered, the newest ones; the paper remembers 30,000
DECAY = 0.99  # of the running statistics


class Known(NamedTuple):
    """The random encoder, and running statistics."""

    target: Encoder
    distances: moments.Moments  # to the nearest
    errors: moments.Moments  # of RND's predictor


class NGU(RND):
    """RND's two networks, the inverse model, and what each episode has seen."""

    reads_representation = True
    has_target = False
    reads = ("share", "prioritize")

    inverse: PolicyHead

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        predictor, inverse = jax.random.split(key)
        size, hidden = materials.embedding_size, materials.network.predictor_hidden
        return cls(materials.make_encoder(predictor), PolicyHead(2 * size, hidden, materials.action, inverse))

    @classmethod
    def recall(cls, embedding_size: int) -> Neighbours:
        return Neighbours(embedding_size, MOST, NEIGHBOURS)

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> Known:
        return Known(materials.make_encoder(key), moments.initial_moments(), moments.initial_moments())

    def __call__(self, state: Known, view: View, sequence: Sequence) -> CuriosityOutput:
        features = jax.lax.stop_gradient(view.embedding)
        _, nearest = self.recall(features.shape[-1]).walk(view.episode, features, sequence)
        error, (mean, _) = self.errors(state.target, sequence), moments.corrected(state.errors, DECAY)
        surprise = (jax.lax.stop_gradient(error[1:]) - mean) / moments.standard_deviation(state.errors, DECAY)
        usual = jnp.maximum(moments.corrected(state.distances, DECAY)[1], 1e-8)  # the mean of squares
        novelty = episodic(nearest / usual) * jnp.clip(1.0 + surprise, 1.0, LIMIT)
        inverse = moments.masked_mean(inverse_losses(self.inverse, view.embedding, sequence.action), sequence.valid)
        distilled = moments.masked_mean(error, sequence.seen)
        uncertainty = jnp.where(state.distances.batches > 0, novelty, 0.0)
        metrics = {"prediction_error": distilled[None], "inverse_loss": inverse}
        return CuriosityOutput(inverse + distilled, uncertainty, metrics)

    def after(self, state: Known, encoder: Encoder, sequence: Sequence) -> Known:
        """The statistics move."""
        embedding, errors = encode(encoder, sequence.observation), self.errors(state.target, sequence)
        recall = self.recall(embedding.shape[-1])
        _, nearest = recall.walk(recall.blank(embedding.shape[1]), embedding, sequence)
        there = sequence.valid[..., None] & jnp.isfinite(nearest)
        distances = moments.update_moments(state.distances, jnp.sqrt(nearest), there, DECAY)
        return Known(state.target, distances, moments.update_moments(state.errors, errors, sequence.seen, DECAY))


def episodic(nearest: Array) -> Array:
    """[...] of squared distances [..., K], in units of their usual mean."""
    kernel = EPSILON / (jnp.maximum(nearest - XI, 0.0) + EPSILON)
    return 1.0 / (jnp.sqrt(jnp.sum(kernel, axis=-1)) + C)
