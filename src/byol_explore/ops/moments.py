"""Running statistics of rewards: the intrinsic reward's normalizer and the extrinsic reward's scale.

Section 3.3 and appendix A.3. The paper's counter is read after an increment too many; dividing by
1 - decay^n after n batches is the usual bias correction, and makes the first batch exact.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Moments(NamedTuple):
    """Exponential moving averages of batch means; divide by `1 - decay^batches` before use."""

    mean: Array  # []
    mean_square: Array  # []
    batches: Array  # [] seen so far


def initial_moments() -> Moments:
    return Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))


def masked_mean(x: Float[Array, "*n"], valid: Bool[Array, "*n"]) -> Float[Array, ""]:
    """Mean over the valid entries, 0 when there are none."""
    total, count = jnp.sum(jnp.where(valid, x, 0.0)), jnp.sum(valid)
    return total / jnp.maximum(count, 1)


def update_moments(
    moments: Moments, x: Float[Array, "*n"], valid: Bool[Array, "*n"], decay: float, batches: Array | int = 1
) -> Moments:
    """One batch into the averages, with the weight of so many; a batch without a valid entry changes nothing."""
    seen, left = jnp.any(valid), decay**batches
    updated = Moments(
        mean=left * moments.mean + (1.0 - left) * masked_mean(x, valid),
        mean_square=left * moments.mean_square + (1.0 - left) * masked_mean(jnp.square(x), valid),
        batches=moments.batches + batches,
    )
    return jax.tree.map(lambda new, old: jnp.where(seen, new, old), updated, moments)


def corrected(moments: Moments, decay: float) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Bias-corrected mean and mean of squares; zeros before the first batch. Of one or of several normalizers."""
    log_decay = math.log(decay) if isinstance(decay, float) and decay > 0 else jnp.log(decay)
    weight = -jnp.expm1(moments.batches * log_decay)  # 1 - decay^batches, without its rounding error
    weight = jnp.where(moments.batches > 0, weight, 1.0)
    return moments.mean / weight, moments.mean_square / weight


def standard_deviation(moments: Moments, decay: float, epsilon: float = 1e-8) -> Float[Array, "*n"]:
    """sqrt(max(E[x^2] - E[x]^2, 0) + epsilon) of the corrected averages."""
    mean, mean_square = corrected(moments, decay)
    return jnp.sqrt(jnp.maximum(mean_square - jnp.square(mean), 0.0) + epsilon)


class Normalizer(NamedTuple):
    """State of the intrinsic reward's normalizer."""

    raw: Moments  # of the uncertainties l
    normalized: Moments  # of l / sigma; its mean is the clipping threshold


def initial_normalizer() -> Normalizer:
    return Normalizer(initial_moments(), initial_moments())


def intrinsic_reward(
    normalizer: Normalizer,
    uncertainty: Float[Array, "*n"],
    valid: Bool[Array, "*n"],
    decay: float,
    prioritize: bool,
    batches: Array | int = 1,
) -> tuple[Normalizer, Float[Array, "*n"]]:
    """max(l / sigma - mu_{l/sigma}, 0), or l / sigma without prioritisation; 0 where invalid.

    The statistics are updated with the batch first, which may be several at once, then used on it.
    """
    raw = update_moments(normalizer.raw, uncertainty, valid, decay, batches)
    reward = uncertainty / standard_deviation(raw, decay)
    normalizer = Normalizer(raw, update_moments(normalizer.normalized, reward, valid, decay, batches))
    return normalizer, measured(normalizer, uncertainty, valid, decay, prioritize)


def measured(
    normalizer: Normalizer,
    uncertainty: Float[Array, "*n"],
    valid: Bool[Array, "*n"],
    decay: float,
    prioritize: bool,
) -> Float[Array, "*n"]:
    """The same by statistics as they stand, which must have seen something."""
    reward = uncertainty / standard_deviation(normalizer.raw, decay)
    if prioritize:
        threshold, _ = corrected(normalizer.normalized, decay)
        reward = jnp.maximum(reward - threshold, 0.0)
    return jnp.where(valid, reward, 0.0)
