"""The clipped surrogate of PPO (Schulman et al., 2017)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.ops.moments import masked_mean


def clipped_surrogate(
    log_ratio: Float[Array, " n"], advantage: Float[Array, " n"], clip: float
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """-min(r A, clip(r, 1 - c, 1 + c) A) of each sample, and whether its ratio r = pi / pi_old was outside."""
    ratio = jnp.exp(log_ratio)
    inside = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, inside * advantage), jax.lax.stop_gradient(jnp.abs(ratio - 1.0) > clip)


def standardize(advantage: Float[Array, " n"], valid: Bool[Array, " n"], epsilon: float = 1e-8) -> Float[Array, " n"]:
    """Advantages of the valid samples with mean 0 and deviation 1."""
    centered = advantage - masked_mean(advantage, valid)
    return centered / jnp.sqrt(masked_mean(jnp.square(centered), valid) + epsilon)
