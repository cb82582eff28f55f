"""V-MPO (Song et al., 2020) as section 4.1 and appendix C use it.

Samples are a flat axis: the whole batch, over time and environments, so that "the top half" is global.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.ops.moments import masked_mean


class Duals(NamedTuple):
    """Lagrange multipliers, all kept positive by `project_duals`."""

    temperature: Array  # [] eta
    categorical: Array  # [D] alpha of each discrete component
    mean: Array  # [C] alpha of each Gaussian mean
    covariance: Array  # [C] alpha of each Gaussian variance


def top_samples(
    advantage: Float[Array, " n"], valid: Bool[Array, " n"], top_fraction: float
) -> Bool[Array, " n"]:
    """The valid samples whose advantage is among the best `top_fraction` of the valid ones (at least one)."""
    ranked = -jnp.sort(-jnp.where(valid, advantage, -jnp.inf))
    keep = jnp.maximum(jnp.floor(top_fraction * jnp.sum(valid)).astype(jnp.int32), 1)
    return valid & (advantage >= ranked[keep - 1])


class PolicyLoss(NamedTuple):
    policy: Array  # [] -sum psi log pi
    temperature: Array  # [] the dual's own loss
    top: Array  # [n] the samples used


def policy_loss(
    log_prob: Float[Array, " n"],
    advantage: Float[Array, " n"],
    valid: Bool[Array, " n"],
    temperature: Float[Array, ""],
    epsilon: float,
    top_fraction: float,
) -> PolicyLoss:
    """-sum psi log pi with psi = softmax(A / eta) over the top samples, and eta eps + eta log mean exp(A / eta)."""
    advantage = jax.lax.stop_gradient(advantage)
    top = top_samples(advantage, valid, top_fraction)
    any_valid = jnp.any(valid)
    outside = jnp.where(any_valid, -jnp.inf, 0.0)  # an all -inf softmax would be NaN
    logits = jnp.where(top, advantage / temperature, outside)
    log_sum = jax.nn.logsumexp(logits)
    weights = jax.lax.stop_gradient(jnp.exp(logits - log_sum))
    log_mean = log_sum - jnp.log(jnp.maximum(jnp.sum(top), 1))
    return PolicyLoss(
        policy=jnp.where(any_valid, -jnp.sum(jnp.where(top, weights * log_prob, 0.0)), 0.0),
        temperature=jnp.where(any_valid, temperature * epsilon + temperature * log_mean, 0.0),
        top=top,
    )


def kl_penalty(
    kl: Float[Array, " n"], valid: Bool[Array, " n"], alpha: Float[Array, ""], epsilon: float
) -> Float[Array, ""]:
    """alpha (eps - sg KL) + sg(alpha) KL, averaged over all valid samples."""
    stop = jax.lax.stop_gradient
    return masked_mean(alpha * (epsilon - stop(kl)) + stop(alpha) * kl, valid)


def project_duals(duals: Duals, minimum: float = 1e-8) -> Duals:
    """Back to the positive side after an optimiser step; a dual clipped only inside the loss would get stuck."""
    return jax.tree.map(lambda dual: jnp.maximum(dual, minimum), duals)
