"""NovelD: the difference of novelties, at the first visit of an episode (Zhang et al., 2021).

    nov(o) = |g(o) - f_random(o)|   (RND)
    l_t    = max(nov(o_{t+1}) - alpha nov(o_t), 0)   if o_{t+1} is new in this episode, else 0

The reward is for steps across the border of the known, once per episode: going back and forth is worth nothing.

Two observations are the same if their hashes are equal: equal symbols, words and pixels, and for vectors, whose numbers
are hardly ever equal, numbers in the same bins. With noisy pixels every observation is new, and the maximum alone
remains.

The bins are fixed. Bins in units of the running standard deviation would move during an episode: an observation seen
before would count as new, and acting and learning would disagree. Numbers that stay far below 0.1 share one bin; scale
such observations up.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from byol_explore.curiosity.method import MethodOutput
from byol_explore.curiosity.rnd import RND
from byol_explore.networks.episodic_memory import EpisodicMemory
from byol_explore.networks.representation import RepresentationOutput
from byol_explore.ops import arrays
from byol_explore.types import Array, Encoder, PyTree, SequenceBatch

ALPHA = 0.5  # of the paper
CAPACITY = 1024  # newest hashes of an episode that are remembered
# Bins of numbers below FINEST are FINEST * BIN_RATIO wide; those of larger numbers are BIN_RATIO times their size.
FINEST, BIN_RATIO = 0.1, 0.25


@dataclass(frozen=True)
class VisitedHashes(EpisodicMemory):
    """Different hashes [B, CAPACITY] of the observations of an episode, newest first; 0 in empty places."""

    def init(self, batch: int) -> Array:
        return jnp.zeros((batch, CAPACITY), jnp.uint32)

    def insert(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        new = observation_hash(observation)[:, None]
        inserted = jnp.concatenate([new, memory[:, :-1]], axis=1)
        return jnp.where(jnp.any(memory == new, axis=1, keepdims=True), memory, inserted)

    def novelty(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        """Return 1 for an observation that is new in the episode, otherwise 0."""
        return 1.0 - jnp.any(memory == observation_hash(observation)[:, None], axis=1)


class NovelD(RND):
    """RND, with a memory of the observations of the episode."""

    @classmethod
    def episodic_memory(cls, embedding_size: int) -> VisitedHashes:
        return VisitedHashes()

    def __call__(self, state: Encoder, view: RepresentationOutput, sequence: SequenceBatch) -> MethodOutput:
        error = self.errors(state, sequence)
        novelty = jnp.sqrt(jax.lax.stop_gradient(error))
        _, is_new = VisitedHashes().unroll(view.episodic_memory, view.embedding, sequence)
        gain = jnp.maximum(novelty[1:] - ALPHA * novelty[:-1], 0.0)
        loss = arrays.masked_mean(error, sequence.observed)
        metrics = {"prediction_error": loss[None], "first_visit_fraction": arrays.masked_mean(is_new, sequence.valid)}
        return MethodOutput(loss, gain * is_new, metrics)


def observation_hash(observation: PyTree) -> Array:
    """Hash raw observations [B, ...] to uint32 [B], at least 1. Different ones collide once in 2^32 times."""
    rng = np.random.default_rng(0)

    def hash_leaf(x: Array) -> Array:
        cells = bin_numbers(x) if jnp.issubdtype(x.dtype, jnp.floating) else x
        weights = rng.integers(0, 2**32, int(np.prod(x.shape[1:])), np.uint32) | np.uint32(1)
        return jnp.sum(cells.reshape(len(x), -1).astype(jnp.uint32) * weights, axis=1, dtype=jnp.uint32)

    total = sum(map(hash_leaf, jax.tree.leaves(observation)), start=jnp.zeros((), jnp.uint32))
    return jnp.maximum(total, 1)


def bin_numbers(x: Float[Array, "*n"]) -> Int[Array, "*n"]:
    """Return the bin of each number: round(asinh(x / FINEST) / BIN_RATIO), so bin 0 is centred on zero."""
    return jnp.round(jnp.arcsinh(jnp.nan_to_num(x) / FINEST) / BIN_RATIO).astype(jnp.int32)
