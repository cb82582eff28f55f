"""Signs of life that can be read off one batch."""

import jax
import jax.numpy as jnp
import optax

from byol_explore.curiosity.base import Curiosity
from byol_explore.networks.layers import trained
from byol_explore.ops import latent
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array, Encoder, PyTree


def vitals(method: Curiosity, state: PyTree, encoder: Encoder, embedding: Array) -> dict[str, Array]:
    """Whether embeddings [T, B, N] differ from each other, and how far the target is from the encoder that follows."""
    unit = latent.l2_normalize(embedding)
    mean = jax.vmap(masked_mean, (-1, None))(unit, jnp.ones(unit.shape[:-1], bool))
    metrics = {"embedding_spread": 1.0 - jnp.sum(jnp.square(mean))}
    if method.has_target and method.reads_representation:
        apart = jax.tree.map(jnp.subtract, method.target(state), encoder)
        metrics["target_distance"] = optax.tree.norm(trained(apart)) / optax.tree.norm(trained(encoder))
    return jax.tree.map(jax.lax.stop_gradient, metrics)
