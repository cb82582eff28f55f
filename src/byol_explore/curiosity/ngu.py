"""Never give up, NGU (Badia et al., 2020): novelty in the episode, times lifelong novelty.

    d_i      = |f(o_{t+1}) - f(o_i)|^2 / m   of the K nearest of the episode's o_0 ... o_t
    kernel_i = epsilon / (max(d_i - xi, 0) + epsilon)
    episodic = 1 / (sqrt(sum over i of kernel_i) + c)
    lifelong = 1 + (e(o_{t+1}) - mean of e) / standard deviation of e
    l_t      = episodic * min(max(lifelong, 1), L)

A second visit in the same episode has a small uncertainty, however little is known of the place. An inverse model
trains the embeddings f, so they contain what actions change, and little else; e is the error of RND's predictor. The
mean m of the squared distances and the statistics of e are running averages over the sequences that were learned from;
m is measured inside of each sequence. Uncertainties are 0 before the first learner step. The paper's limit of the
similarity, 8, is left out: K = 10 neighbours do not reach it.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from byol_explore.curiosity.byol_explore import encode_sequence
from byol_explore.curiosity.icm import inverse_loss
from byol_explore.curiosity.method import BuildContext, MethodOutput
from byol_explore.curiosity.rnd import RND
from byol_explore.networks.episodic_memory import NearestNeighborMemory
from byol_explore.networks.representation import PolicyHead, RepresentationOutput
from byol_explore.ops import arrays, rewards
from byol_explore.types import Array, Encoder, SequenceBatch

NEIGHBORS, EPSILON, XI, C, LIMIT = 10, 1e-4, 8e-3, 1e-3, 5.0  # of the paper
CAPACITY = 512  # newest observations of an episode that are remembered; 30,000 in the paper
DECAY = 0.99  # of the running statistics


class NGUState(NamedTuple):
    """Random encoder and running statistics."""

    target: Encoder
    distances: rewards.RunningMoments  # d, of the neighbours
    errors: rewards.RunningMoments  # e


class NGU(RND):
    """RND, with an inverse model and a memory of the embeddings of the episode."""

    uses_representation = True
    has_target_encoder = False
    config_fields = ("share_representation", "prioritize")

    inverse: PolicyHead

    @classmethod
    def create(cls, context: BuildContext, key: Array) -> Self:
        predictor, inverse = jax.random.split(key)
        size, hidden = context.embedding_size, context.network.predictor_hidden
        return cls(context.make_encoder(predictor), PolicyHead(2 * size, hidden, context.action, inverse))

    @classmethod
    def episodic_memory(cls, embedding_size: int) -> NearestNeighborMemory:
        return NearestNeighborMemory(embedding_size, CAPACITY, NEIGHBORS)

    def init_state(self, context: BuildContext, encoder: Encoder, key: Array) -> NGUState:
        return NGUState(context.make_encoder(key), rewards.init_moments(), rewards.init_moments())

    def __call__(self, state: NGUState, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        features = jax.lax.stop_gradient(view.embedding)
        _, nearest = self.episodic_memory(features.shape[-1]).unroll(view.episodic_memory, features, sequence)
        error = self.errors(state.target, sequence)
        mean, _ = rewards.bias_corrected(state.errors, DECAY)
        z_score = (jax.lax.stop_gradient(error[1:]) - mean) / rewards.bias_corrected_std(state.errors, DECAY)
        _, mean_square = rewards.bias_corrected(state.distances, DECAY)
        novelty = episodic_bonus(nearest / jnp.maximum(mean_square, 1e-8)) * jnp.clip(1.0 + z_score, 1.0, LIMIT)
        inverse = inverse_loss(self.inverse, view, sequence)
        rnd_loss = arrays.masked_mean(error, sequence.observed)
        uncertainty = jnp.where(state.distances.num_updates > 0, novelty, 0.0)
        metrics = {"prediction_error": rnd_loss[None], "inverse_loss": inverse}
        return MethodOutput(inverse + rnd_loss, uncertainty, metrics)

    def update_state(self, state: NGUState, encoder: Encoder, sequence: SequenceBatch) -> NGUState:
        """Update the running statistics."""
        embedding, errors = encode_sequence(encoder, sequence.observation), self.errors(state.target, sequence)
        memory = self.episodic_memory(embedding.shape[-1])
        _, nearest = memory.unroll(memory.init(embedding.shape[1]), embedding, sequence)
        exists = sequence.valid[..., None] & jnp.isfinite(nearest)  # infinite: fewer than K neighbours
        distances = rewards.update_moments(state.distances, jnp.sqrt(nearest), exists, DECAY)
        return NGUState(state.target, distances, rewards.update_moments(state.errors, errors, sequence.observed, DECAY))


def episodic_bonus(nearest: Array) -> Array:
    """Return the episodic novelty [...] of squared distances [..., K], in units of their running mean."""
    kernel = EPSILON / (jnp.maximum(nearest - XI, 0.0) + EPSILON)
    return 1.0 / (jnp.sqrt(jnp.sum(kernel, axis=-1)) + C)
