"""Open-loop windows over a sequence (section 3.2): which prediction goes where, and which is valid."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def window_validity(is_first: Bool[Array, " T"], horizon: int) -> Bool[Array, "S K"]:
    """Whether the prediction of o_{t+k} made at o_t, entry [t, k-1], stays inside one episode and the sequence."""
    length = is_first.shape[0]
    landing = jnp.arange(length - 1)[:, None] + jnp.arange(1, horizon + 1)[None, :]
    episode = jnp.cumsum(is_first)
    same_episode = episode[jnp.minimum(landing, length - 1)] == episode[:-1, None]
    return (landing < length) & same_episode


def mean_over_horizon(
    losses: Float[Array, "S K"], valid: Bool[Array, "S K"]
) -> tuple[Float[Array, " S"], Bool[Array, " S"]]:
    """1/K(t) sum_k loss(t, k) with K(t) the number of valid k, and which starts have any (section 3.2 iii)."""
    count = jnp.sum(valid, axis=1)
    total = jnp.sum(jnp.where(valid, losses, 0.0), axis=1)
    return total / jnp.maximum(count, 1), count > 0


def sum_over_landings(losses: Float[Array, "S K"], valid: Bool[Array, "S K"]) -> Float[Array, " S"]:
    """l_t = sum over p + q = t + 1 of loss(p, q): all predictions that land on o_{t+1} (section 3.2 iv)."""
    starts, horizon = losses.shape
    masked = jnp.where(valid, losses, 0.0)
    uncertainty = masked[:, 0]
    for q in range(2, min(horizon, starts) + 1):
        uncertainty = uncertainty + jnp.pad(masked[: starts - q + 1, q - 1], (q - 1, 0))
    return uncertainty
