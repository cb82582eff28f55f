"""Hybrid action distribution, and the losses of V-MPO (Song et al., 2020) and PPO (Schulman et al., 2017).

A policy is a product of D categoricals and a diagonal Gaussian of C dimensions; either part may be empty. Losses take
samples [n] of a whole batch, over time and environments, so that "the top half" of them is global.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.ops.arrays import masked_mean
from byol_explore.types import Action, Policy


def log_prob(policy: Policy, action: Action) -> Float[Array, ""]:
    """Log-probability of an action: log pi(a), the sum over all components.

    Args:
      policy: logits [n_i] of each discrete component, mean and standard deviation [C].
      action: categories [D] and continuous values [C].
    Returns:
      [] log pi(a).
    """
    total = jnp.sum(jax.scipy.stats.norm.logpdf(action.continuous, policy.mean, policy.stddev))
    for index, logits in enumerate(policy.logits):
        chosen = jax.nn.one_hot(action.discrete[index], logits.shape[-1])
        total += jnp.sum(chosen * jax.nn.log_softmax(logits))
    return total


def entropy(policy: Policy) -> Float[Array, ""]:
    """Entropy in nats, the sum over all components.

    Args:
      policy: logits [n_i] of each discrete component, standard deviation [C].
    Returns:
      [] entropy.
    """
    total = jnp.sum(0.5 * jnp.log(2 * jnp.pi * jnp.e) + jnp.log(policy.stddev))
    for logits in policy.logits:
        total += categorical_entropy(logits)
    return total


def categorical_entropy(logits: Float[Array, " categories"]) -> Float[Array, ""]:
    """Entropy in nats of a categorical given by logits [categories]: -sum p log p."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p)


def categorical_kl(p: Float[Array, " categories"], q: Float[Array, " categories"]) -> Float[Array, ""]:
    """KL(p || q) in nats of two categoricals given by logits [categories]: sum p (log p - log q)."""
    log_p, log_q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))


def mean_kl(target: Policy, online: Policy) -> Float[Array, " C"]:
    """KL(target || online) per dimension if only the mean moves: (mu_online - mu)^2 / (2 sigma^2).

    Args:
      target: mean mu and standard deviation sigma, [C] each.
      online: mean [C].
    Returns:
      [C] in nats.
    """
    return 0.5 * jnp.square((online.mean - target.mean) / target.stddev)


def covariance_kl(target: Policy, online: Policy) -> Float[Array, " C"]:
    """KL(target || online) per dimension if only the deviation moves: (rho^2 - 1) / 2 - log rho.

    Args:
      target: standard deviation sigma [C].
      online: standard deviation [C]; rho = sigma / sigma_online.
    Returns:
      [C] in nats.
    """
    ratio = target.stddev / online.stddev
    return 0.5 * (jnp.square(ratio) - 1.0) - jnp.log(ratio)


def sample_action(policy: Policy, key: Array) -> Action:
    """Sample actions of a batch of policies.

    Args:
      policy: logits [..., n_i], mean and standard deviation [..., C].
      key: one key [] for the whole batch, or one for each policy of a batch [B].
    Returns:
      Action with categories [..., D] and continuous values [..., C].
    """
    if key.ndim:
        return jax.vmap(sample_action)(policy, key)
    keys = jax.random.split(key, len(policy.logits) + 1)
    discrete = [jax.random.categorical(k, logits) for k, logits in zip(keys[1:], policy.logits, strict=True)]
    noise = jax.random.normal(keys[0], policy.mean.shape)
    return _make_action(discrete, policy.mean + policy.stddev * noise)


def greedy_action(policy: Policy) -> Action:
    """Return the most likely category of each component, and the mean.

    Args:
      policy: logits [..., n_i], mean [..., C].
    Returns:
      Action with categories [..., D] and continuous values [..., C].
    """
    return _make_action([jnp.argmax(logits, axis=-1) for logits in policy.logits], policy.mean)


def _make_action(discrete: list[Array], continuous: Array) -> Action:
    """Stack the categories [...] of each component; there may be none."""
    stacked = jnp.stack(discrete, axis=-1) if discrete else jnp.zeros((*continuous.shape[:-1], 0))
    return Action(stacked.astype(jnp.int32), continuous)


class Duals(NamedTuple):
    """Dual variables of V-MPO: its temperature and the multipliers of its KL constraints, all positive."""

    log_temperature: Array  # [] log eta: an optimiser step multiplies eta, whatever its size
    categorical: Array  # [D] alpha of each discrete component
    mean: Array  # [C] alpha of each Gaussian mean
    covariance: Array  # [C] alpha of each Gaussian variance


def top_advantage_mask(
    advantage: Float[Array, " n"], valid: Bool[Array, " n"], top_fraction: float
) -> Bool[Array, " n"]:
    """Mask of the valid samples with the highest advantages.

    >>> top_advantage_mask(jnp.array([3.0, 1.0, 9.0, 2.0]), jnp.array([True, True, False, True]), 0.7).tolist()
    [True, False, False, True]

    Args:
      advantage: [n] A.
      valid: [n] mask.
      top_fraction: share of the valid samples to keep, rounded down to whole samples but at least to one.
    Returns:
      [n] mask. Ties with the last of the top are kept too.
    """
    masked = jnp.where(valid, advantage, -jnp.inf)
    # Compare sorted advantages with each other only: the compiler may compute an unsorted copy a second time with
    # another last bit, and the last of the top would drop out.
    ranked, order = jax.lax.sort((-masked, jnp.arange(masked.shape[0])), num_keys=1)
    keep = jnp.maximum(jnp.floor(top_fraction * jnp.sum(valid)).astype(jnp.int32), 1)
    top = jnp.zeros(masked.shape, bool).at[order].set(ranked <= ranked[keep - 1])
    return valid & top


class VMPOLoss(NamedTuple):
    """Losses of `policy_loss`."""

    policy: Array  # [] L_pi
    temperature: Array  # [] L_eta
    top_mask: Array  # [n] samples that enter the losses


def policy_loss(
    log_prob: Float[Array, " n"],
    advantage: Float[Array, " n"],
    valid: Bool[Array, " n"],
    temperature: Float[Array, ""],
    epsilon: float,
    top_fraction: float,
) -> VMPOLoss:
    """V-MPO's policy and temperature loss (Song et al., 2020, eq. 3 and 4).

        psi = softmax(A / eta) over the top samples
        L_pi = -sum psi log pi,   L_eta = eta (epsilon + log mean exp(A / eta))

    Args:
      log_prob: [n] log pi(a | o) of the online policy.
      advantage: [n] A, which gets no gradient.
      valid: [n] mask.
      temperature: [] eta.
      epsilon: bound in nats on KL(psi || uniform).
      top_fraction: share of the valid samples that enter the losses, highest advantages first.
    Returns:
      Scalar losses, and the mask [n] of the top samples. Both losses are 0 without a valid sample.
    """
    advantage = jax.lax.stop_gradient(advantage)
    top = top_advantage_mask(advantage, valid, top_fraction)
    best = jax.lax.stop_gradient(jnp.max(jnp.where(top, advantage, -jnp.inf)))
    best = jnp.where(jnp.isfinite(best), best, 0.0)  # a batch without a valid sample
    logits = jnp.where(top, advantage - best, 0.0) / temperature
    exponentials = jnp.where(top, jnp.exp(logits), 0.0)
    total, count = jnp.sum(exponentials), jnp.sum(top)
    total, any_valid = jnp.where(count > 0, total, 1.0), count > 0
    weights = jax.lax.stop_gradient(exponentials / total)  # psi
    log_mean = jnp.log(total) - jnp.log(jnp.maximum(count, 1))  # of exp((A - best) / eta)
    return VMPOLoss(
        policy=-jnp.sum(jnp.where(top, weights * log_prob, 0.0)),
        # best / eta inside the logarithm would drown the rest of the gradient once eta is small
        temperature=jnp.where(any_valid, temperature * (epsilon + log_mean) + best, 0.0),
        top_mask=top,
    )


def kl_penalty(
    kl: Float[Array, " n"], valid: Bool[Array, " n"], alpha: Float[Array, ""], epsilon: float
) -> Float[Array, ""]:
    """Lagrangian of a KL constraint (Song et al., 2020, eq. 5): mean of alpha (epsilon - sg(KL)) + sg(alpha) KL.

    Args:
      kl: [n] KL(target || online) of each sample.
      valid: [n] mask; all valid samples count, not only the top ones.
      alpha: [] multiplier.
      epsilon: bound of the constraint in nats.
    Returns:
      [] loss of the policy and of the multiplier.
    """
    stop = jax.lax.stop_gradient
    return masked_mean(alpha * (epsilon - stop(kl)) + stop(alpha) * kl, valid)


def project_duals(duals: Duals, minimum: float = 1e-8) -> Duals:
    """Clip the temperature and all multipliers at `minimum` after an optimiser step."""
    # Clipping inside the loss instead would stop the gradient of a dual below the bound for ever.
    log_temperature = jnp.maximum(duals.log_temperature, math.log(minimum))
    return Duals(log_temperature, *(jnp.maximum(dual, minimum) for dual in duals[1:]))


def clipped_surrogate(
    log_ratio: Float[Array, " n"], advantage: Float[Array, " n"], clip: float
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """PPO's clipped surrogate loss (Schulman et al., 2017): -min(r A, clip(r, 1 - c, 1 + c) A).

    >>> loss, is_clipped = clipped_surrogate(jnp.log(jnp.array([1.0, 2.0])), jnp.array([3.0, 4.0]), 0.25)
    >>> loss.tolist(), is_clipped.tolist()
    ([-3.0, -5.0], [False, True])

    Args:
      log_ratio: [n] log r = log pi(a | o) - log pi_old(a | o).
      advantage: [n] A.
      clip: c.
    Returns:
      Loss [n] of each sample, and the mask [n] of ratios outside 1 - c to 1 + c.
    """
    ratio = jnp.exp(log_ratio)
    inside = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.minimum(ratio * advantage, inside * advantage), jax.lax.stop_gradient(jnp.abs(ratio - 1.0) > clip)


def standardize_advantage(
    advantage: Float[Array, " n"], valid: Bool[Array, " n"], epsilon: float = 1e-8
) -> Float[Array, " n"]:
    """Shift and scale advantages to mean 0 and standard deviation 1 over the valid samples.

    Args:
      advantage: [n] A.
      valid: [n] mask.
      epsilon: added to the variance.
    Returns:
      [n]; invalid entries are shifted and scaled alike.
    """
    centered = advantage - masked_mean(advantage, valid)
    return centered / jnp.sqrt(masked_mean(jnp.square(centered), valid) + epsilon)
