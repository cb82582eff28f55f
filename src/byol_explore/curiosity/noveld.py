"""NovelD: the difference of novelties, at the first visit of an episode (Zhang et al., 2021).

    l_t = max(nov(o_{t+1}) - alpha nov(o_t), 0)   if o_{t+1} was not seen before in this episode, else 0

Novelty nov(o) is the error of RND's predictor, as a distance. So curiosity pays for steps over the border of what is
known, and only once per episode: going back and forth is worth nothing.

Observations are the same if their codes are. Symbols, words and pixels must be equal; numbers of vectors, which arrive
normalised, must lie in the same cells of half a deviation, for no two of them are ever equal. Where pixels are noisy
every observation is a first one, and the first factor is all that is left.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.base import CuriosityOutput
from byol_explore.curiosity.rnd import RND
from byol_explore.networks.assembly import View
from byol_explore.networks.recall import Recall
from byol_explore.ops import moments
from byol_explore.types import Array, Encoder, PyTree, Sequence

ALPHA = 0.5  # the paper's
CELL = 0.5  # of a normalised number
MOST = 1024  # different observations of an episode that are remembered, the newest ones


@dataclass(frozen=True)
class Visits(Recall):
    """Codes [B, MOST] of the observations of an episode, 0 where there are no more."""

    def blank(self, batch: int) -> Array:
        return jnp.zeros((batch, MOST), jnp.uint32)

    def after(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        code = codes(observation)[:, None]
        longer = jnp.concatenate([code, memory[:, :-1]], axis=1)
        return jnp.where(jnp.any(memory == code, axis=1, keepdims=True), memory, longer)

    def novelty(self, memory: Array, embedding: Array, observation: PyTree) -> Array:
        """1 for what has not been seen, 0 for what has."""
        return 1.0 - jnp.any(memory == codes(observation)[:, None], axis=1)


class NovelD(RND):
    """RND's two networks, and the visits of each episode."""

    @classmethod
    def recall(cls, embedding_size: int) -> Visits:
        return Visits()

    def __call__(self, state: Encoder, view: View, sequence: Sequence) -> CuriosityOutput:
        error = self.errors(state, sequence)
        novelty = jnp.sqrt(jax.lax.stop_gradient(error))
        _, is_new = Visits().walk(view.episode, view.embedding, sequence)
        gain = jnp.maximum(novelty[1:] - ALPHA * novelty[:-1], 0.0)
        loss = moments.masked_mean(error, sequence.seen)
        first = moments.masked_mean(is_new, sequence.valid)
        return CuriosityOutput(loss, gain * is_new, {"prediction_error": loss[None], "first_visits": first})


def codes(observation: PyTree) -> Array:
    """[B] numbers of observations [B, ...]: those of two that differ are the same once in 2^32 times."""
    rng = np.random.default_rng(0)

    def code(x: Array) -> Array:
        cells = jnp.floor(x / CELL).astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.floating) else x
        weights = rng.integers(0, 2**32, int(np.prod(x.shape[1:])), np.uint32) | np.uint32(1)
        return jnp.sum(cells.reshape(len(x), -1).astype(jnp.uint32) * weights, axis=1, dtype=jnp.uint32)

    total = sum(map(code, jax.tree.leaves(observation)), start=jnp.zeros((), jnp.uint32))
    return jnp.maximum(total, 1)
