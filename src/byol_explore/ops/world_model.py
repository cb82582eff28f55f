"""The world model's loss, masks and uncertainty, and the target network (section 3.2).

The world model predicts the K embeddings that follow each o_t. `loss[t, k-1]` is the error of prediction (t, k): of
f(o_{t+k}), made at o_t. Predictions that cross an episode's end are masked.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

T = TypeVar("T")


def l2_normalize(x: Float[Array, "*batch N"], epsilon: float = 1e-8) -> Float[Array, "*batch N"]:
    """Scale vectors to unit length: x / |x|.

    >>> l2_normalize(jnp.array([0.0, 4.0])).tolist()
    [0.0, 1.0]

    Args:
      x: [..., N].
      epsilon: added to |x| in quadrature, so that the gradient is finite at zero.
    Returns:
      [..., N].
    """
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + epsilon**2)


def cosine_distance(prediction: Float[Array, "*batch N"], target: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """BYOL's loss between directions (section 3.2 ii): |g / |g| - sg(f / |f|)|^2.

    >>> float(cosine_distance(jnp.array([2.0, 0.0]), jnp.array([0.0, 3.0])))
    2.0

    Args:
      prediction: [..., N] g.
      target: [..., N] f, which gets no gradient.
    Returns:
      [...] in [0, 4]: 0 for equal directions, 4 for opposite ones.
    """
    difference = l2_normalize(prediction) - jax.lax.stop_gradient(l2_normalize(target))
    return jnp.sum(jnp.square(difference), axis=-1)


def squared_distance(prediction: Float[Array, "*batch N"], target: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """Error of RND and ICM (appendix B): |g - sg(f)|^2.

    Args:
      prediction: [..., N] g.
      target: [..., N] f, which gets no gradient.
    Returns:
      [...].
    """
    return jnp.sum(jnp.square(prediction - jax.lax.stop_gradient(target)), axis=-1)


def ema(old: T, new: T, decay: float) -> T:
    """Exponential moving average of the target network: phi <- alpha phi + (1 - alpha) theta.

    Args:
      old: tree of arrays, phi.
      new: tree of the same structure, theta.
      decay: alpha; 1 never moves the target.
    Returns:
      Tree of the same structure.
    """
    return jax.tree.map(lambda o, n: decay * o + (1.0 - decay) * n, old, new)


def prediction_mask(is_first: Bool[Array, " T"], horizon: int) -> Bool[Array, "S K"]:
    """Mask of the predictions that stay inside one episode and the sequence.

    >>> prediction_mask(jnp.array([True, False, False, True]), 2).tolist()
    [[True, True], [True, False], [False, False]]

    Args:
      is_first: [T] True where an episode begins.
      horizon: K, number of steps predicted ahead.
    Returns:
      [S, K] entry [t, k-1] is for the prediction of o_{t+k} made at o_t.
    """
    length = is_first.shape[0]
    landing = jnp.arange(length - 1)[:, None] + jnp.arange(1, horizon + 1)[None, :]
    episode = jnp.cumsum(is_first)
    same_episode = episode[jnp.minimum(landing, length - 1)] == episode[:-1, None]
    return (landing < length) & same_episode


def mean_over_horizon(
    losses: Float[Array, "S K"], valid: Bool[Array, "S K"]
) -> tuple[Float[Array, " S"], Bool[Array, " S"]]:
    """Loss of each start (section 3.2 iii): 1/K(t) sum_k loss(t, k), with K(t) the number of valid k.

    Args:
      losses: [S, K] loss(t, k).
      valid: [S, K] mask from `prediction_mask`.
    Returns:
      Means [S], 0 without a valid k; and the mask [S] of starts that have any.
    """
    count = jnp.sum(valid, axis=1)
    total = jnp.sum(jnp.where(valid, losses, 0.0), axis=1)
    return total / jnp.maximum(count, 1), count > 0


def transition_uncertainty(losses: Float[Array, "S K"], valid: Bool[Array, "S K"]) -> Float[Array, " S"]:
    """Uncertainty of each transition (section 3.2 iv): l_t = sum over p + q = t + 1 of loss(p, q).

    The sum is over all predictions that land on o_{t+1}, not over those made at o_t.

    >>> losses, valid = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[True, True], [True, False]])
    >>> transition_uncertainty(losses, valid).tolist()  # o_1: 1; o_2: 3 from o_1 and 2 from o_0
    [1.0, 5.0]

    Args:
      losses: [S, K] loss(p, q).
      valid: [S, K] mask from `prediction_mask`.
    Returns:
      [S]; 0 at transitions that no valid prediction lands on.
    """
    # A transition is novel if observing o_{t+1} was surprising, whenever it was predicted. Sums over k from one start
    # would credit the transition into o_{t+1} with errors about later observations.
    starts, horizon = losses.shape
    masked = jnp.where(valid, losses, 0.0)
    uncertainty = masked[:, 0]
    for q in range(2, min(horizon, starts) + 1):
        uncertainty = uncertainty + jnp.pad(masked[: starts - q + 1, q - 1], (q - 1, 0))
    return uncertainty
