"""The hybrid action distribution: log-probability, entropy and divergences, unbatched; samples of any batch."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from byol_explore.types import Action, Policy


def log_prob(policy: Policy, action: Action) -> Float[Array, ""]:
    """Log pi(a), summed over all components."""
    total = jnp.sum(jax.scipy.stats.norm.logpdf(action.continuous, policy.mean, policy.stddev))
    for index, logits in enumerate(policy.logits):
        chosen = jax.nn.one_hot(action.discrete[index], logits.shape[-1])
        total += jnp.sum(chosen * jax.nn.log_softmax(logits))
    return total


def entropy(policy: Policy) -> Float[Array, ""]:
    """Entropy, summed over all components."""
    total = jnp.sum(0.5 * jnp.log(2 * jnp.pi * jnp.e) + jnp.log(policy.stddev))
    for logits in policy.logits:
        total += categorical_entropy(logits)
    return total


def categorical_entropy(logits: Float[Array, " categories"]) -> Float[Array, ""]:
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p)


def categorical_kl(p: Float[Array, " categories"], q: Float[Array, " categories"]) -> Float[Array, ""]:
    """KL(p || q) of two categoricals given by logits."""
    log_p, log_q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))


def mean_kl(target: Policy, online: Policy) -> Float[Array, " C"]:
    """KL per dimension when only the mean moves: the target's variance is kept."""
    return 0.5 * jnp.square((online.mean - target.mean) / target.stddev)


def covariance_kl(target: Policy, online: Policy) -> Float[Array, " C"]:
    """KL per dimension when only the variance moves: the target's mean is kept."""
    ratio = target.stddev / online.stddev
    return 0.5 * (jnp.square(ratio) - 1.0) - jnp.log(ratio)


def sample(policy: Policy, key: Array) -> Action:
    """Actions at random, one for each policy of the batch."""
    keys = jax.random.split(key, len(policy.logits) + 1)
    discrete = [jax.random.categorical(k, logits) for k, logits in zip(keys[1:], policy.logits, strict=True)]
    noise = jax.random.normal(keys[0], policy.mean.shape)
    return _action(discrete, policy.mean + policy.stddev * noise)


def mode(policy: Policy) -> Action:
    """The greedy actions."""
    return _action([jnp.argmax(logits, axis=-1) for logits in policy.logits], policy.mean)


def _action(discrete: list[Array], continuous: Array) -> Action:
    stacked = jnp.stack(discrete, axis=-1) if discrete else jnp.zeros((*continuous.shape[:-1], 0))
    return Action(stacked.astype(jnp.int32), continuous)
