"""Signs of life that can be read off one batch."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from byol_explore.curiosity.base import Curiosity
from byol_explore.networks.layers import trained
from byol_explore.ops import latent
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, Encoder, PyTree

# A reward in units of its own deviation, clipped at its mean, is 0.4 on average if it is normal (and was 0.3 to 0.4 in
# all clipped runs once their statistics fitted). A tenth of it is what a deviation leaves that is ten times too large.
LEAST_PAID = 0.04


def error_growth(errors: Sequence[float]) -> float | None:
    """Error of the longest prediction over that of the shortest; None where there are not two.

    A world model that knows something is less certain about what is further away. Embeddings that have collapsed are
    as easy to predict at every horizon. An error of exactly 0 is that of a horizon for which episodes are too short.
    """
    known = [error for error in errors if error > 0.0]
    return known[-1] / known[0] if len(known) > 1 else None


def vitals(
    method: Curiosity, state: PyTree, encoder: Encoder, embedding: Array, seen: Array | None = None
) -> dict[str, Array]:
    """Whether embeddings [T, B, N] differ from each other, and how far the target is from the encoder that follows.

    Embeddings outside of the mask `seen` [T, B] are of nothing.
    """
    unit = latent.l2_normalize(embedding)
    mean = jax.vmap(masked_mean, (-1, None))(unit, jnp.ones(unit.shape[:-1], bool) if seen is None else seen)
    metrics = {"embedding_spread": 1.0 - jnp.sum(jnp.square(mean))}
    if method.has_target and method.reads_representation:
        apart = jax.tree.map(jnp.subtract, method.target(state), encoder)
        metrics["target_distance"] = optax.tree.norm(trained(apart)) / optax.tree.norm(trained(encoder))
    return jax.tree.map(jax.lax.stop_gradient, metrics)
