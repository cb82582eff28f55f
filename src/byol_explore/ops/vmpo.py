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


def top_samples(advantage: Float[Array, " n"], valid: Bool[Array, " n"], top_fraction: float) -> Bool[Array, " n"]:
    """The valid samples whose advantage is among the best `top_fraction` of all valid ones (at least one).

    Sorted advantages are compared with each other: beside its sorted copy, one that the compiler computes a second time
    may differ in its last bit, and the last of the top would fall out.
    """
    everybody = jnp.where(valid, advantage, -jnp.inf)
    ranked, order = jax.lax.sort((-everybody, jnp.arange(everybody.shape[0])), num_keys=1)
    keep = jnp.maximum(jnp.floor(top_fraction * jnp.sum(valid)).astype(jnp.int32), 1)
    top = jnp.zeros(everybody.shape, bool).at[order].set(ranked <= ranked[keep - 1])
    return valid & top


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
    best = jax.lax.stop_gradient(jnp.max(jnp.where(top, advantage, -jnp.inf)))
    best = jnp.where(jnp.isfinite(best), best, 0.0)  # a batch without a valid sample
    logits = jnp.where(top, advantage - best, 0.0) / temperature
    exponentials = jnp.where(top, jnp.exp(logits), 0.0)
    total, count = jnp.sum(exponentials), jnp.sum(top)
    total, any_valid = jnp.where(count > 0, total, 1.0), count > 0
    weights = jax.lax.stop_gradient(exponentials / total)
    log_mean = jnp.log(total) - jnp.log(jnp.maximum(count, 1))  # of exp((A - best) / eta)
    return PolicyLoss(
        policy=-jnp.sum(jnp.where(top, weights * log_prob, 0.0)),
        # best / eta inside the logarithm would drown the rest of the gradient once eta is small
        temperature=jnp.where(any_valid, temperature * (epsilon + log_mean) + best, 0.0),
        top=top,
    )


def kl_penalty(
    kl: Float[Array, " n"], valid: Bool[Array, " n"], alpha: Float[Array, ""], epsilon: float
) -> Float[Array, ""]:
    """Alpha (eps - sg KL) + sg(alpha) KL, averaged over all valid samples."""
    stop = jax.lax.stop_gradient
    return masked_mean(alpha * (epsilon - stop(kl)) + stop(alpha) * kl, valid)


def project_duals(duals: Duals, minimum: float = 1e-8) -> Duals:
    """Back to the positive side after an optimiser step; a dual clipped only inside the loss would get stuck."""
    return jax.tree.map(lambda dual: jnp.maximum(dual, minimum), duals)
