"""Value targets and advantages (V-trace, GAE), and normalisation of value targets (PopArt)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from byol_explore.ops.arrays import mean_per_task


def vtrace_targets(
    value: Float[Array, " T"],
    reward: Float[Array, " S"],
    discount: Float[Array, " S"],
    valid: Bool[Array, " S"],
) -> Float[Array, " S"]:
    """V-trace targets with rho = c = 1: the return to the end of the sequence, bootstrapped from its last value.

        v_t = r_t + gamma_t v_{t+1},   v_{T-1} = V(o_{T-1})

    At an invalid (dummy) transition the target is the value itself, so a truncated episode bootstraps from the value of
    its true last observation, and no return flows in from the next episode.

    >>> value, reward, discount = jnp.array([0.0, 0.0, 8.0]), jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
    >>> vtrace_targets(value, reward, discount, jnp.ones(2, bool)).tolist()
    [4.0, 6.0]

    Args:
      value: [T] V(o_t).
      reward: [S] r_t of the transition from o_t to o_{t+1}.
      discount: [S] gamma_t, 0 where the transition terminates the episode.
      valid: [S] False at dummy transitions.
    Returns:
      [S] targets of V(o_0) to V(o_{T-2}).
    """

    def backward(carry: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        reward_t, discount_t, value_t, valid_t = inputs
        target = jnp.where(valid_t, reward_t + discount_t * carry, value_t)
        return target, target

    _, targets = jax.lax.scan(backward, value[-1], (reward, discount, value[:-1], valid), reverse=True)
    return targets


def generalized_advantage(
    value: Float[Array, " T"],
    reward: Float[Array, " S"],
    discount: Float[Array, " S"],
    valid: Bool[Array, " S"],
    decay: float,
) -> Float[Array, " S"]:
    """Generalised advantage estimation (Schulman et al., 2016).

        delta_t = r_t + gamma_t V(o_{t+1}) - V(o_t),   A_t = delta_t + gamma_t lambda A_{t+1}

    An invalid (dummy) transition has no advantage and passes none on: a truncated episode bootstraps from the value of
    its true last observation.

    >>> value, reward, discount = jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
    >>> generalized_advantage(value, reward, discount, jnp.ones(2, bool), decay=0.5).tolist()
    [1.5, 2.0]

    Args:
      value: [T] V(o_t).
      reward: [S] r_t of the transition from o_t to o_{t+1}.
      discount: [S] gamma_t, 0 where the transition terminates the episode.
      valid: [S] False at dummy transitions.
      decay: lambda.
    Returns:
      [S] advantages A_t.
    """

    def backward(carry: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        error, discount_t, valid_t = inputs
        advantage = jnp.where(valid_t, error + discount_t * decay * carry, 0.0)
        return advantage, advantage

    errors = reward + discount * value[1:] - value[:-1]
    _, advantages = jax.lax.scan(backward, jnp.zeros(()), (errors, discount, valid), reverse=True)
    return advantages


class PopArt(NamedTuple):
    """Running statistics of the value targets of each task (Hessel et al., 2018), bias-corrected."""

    mean: Array  # [tasks]
    mean_square: Array  # [tasks]
    weight: Array  # [tasks] 1 - (1 - beta)^batches, the weight of the batches so far


def init_popart(tasks: int) -> PopArt:
    """Return statistics before the first batch."""
    return PopArt(jnp.zeros((tasks,)), jnp.zeros((tasks,)), jnp.zeros((tasks,)))


def popart_std(stats: PopArt, minimum: float) -> Float[Array, " tasks"]:
    """Standard deviation of the targets: sigma^2 = max(E[x^2] - E[x]^2, minimum^2 E[x^2]).

    Args:
      stats: statistics of each task.
      minimum: lower bound of sigma, relative to the root mean square of the targets.
    Returns:
      [tasks] sigma; 1 where all targets so far were 0, which have no scale.
    """
    # Relative bounds only: multiplying all rewards by 2^k multiplies sigma by exactly 2^k.
    variance = jnp.maximum(stats.mean_square - jnp.square(stats.mean), minimum**2 * stats.mean_square)
    return jnp.sqrt(jnp.where(variance > 0, variance, 1.0))


def update_popart(
    stats: PopArt,
    target: Float[Array, " n"],
    task: Int[Array, " n"],
    valid: Bool[Array, " n"],
    step_size: float,
) -> PopArt:
    """Move the statistics of each task towards those of its targets: mu <- mu + beta / w (mean - mu), same for squares.

    w = 1 - (1 - beta)^n after n batches corrects the bias of the start: the first batch replaces the zeros, then w
    approaches 1.
    Tasks without a valid target keep their statistics.

    Args:
      stats: statistics before the batch.
      target: [n] value targets.
      task: [n] task of each target.
      valid: [n] mask.
      step_size: beta, per batch; 0 changes nothing.
    Returns:
      Statistics after the batch.
    """
    # A step per batch, not per sample: summed over thousands of samples the paper's 0.01 diverges.
    tasks, target = stats.mean.shape[0], jnp.where(valid, target, 0.0)
    mean, count = mean_per_task(target, task, valid, tasks)
    mean_square, _ = mean_per_task(jnp.square(target), task, valid, tasks)
    weight = stats.weight + step_size * (1.0 - stats.weight)
    step = jnp.where(count > 0, step_size / jnp.where(weight > 0, weight, 1.0), 0.0)
    return PopArt(
        mean=stats.mean + step * (mean - stats.mean),
        mean_square=stats.mean_square + step * (mean_square - stats.mean_square),
        weight=jnp.where(count > 0, weight, stats.weight),
    )


def rescale_head(
    weight: Float[Array, "hidden tasks"],
    bias: Float[Array, " tasks"],
    old: PopArt,
    new: PopArt,
    minimum: float,
) -> tuple[Float[Array, "hidden tasks"], Float[Array, " tasks"]]:
    """Keep the unnormalised outputs of a value head while its statistics change.

        w' = w sigma / sigma',   b' = (sigma b + mu - mu') / sigma'

    If all targets so far were 0, sigma is unknown and is taken to be sigma'.

    Args:
      weight: [hidden, tasks] w of the last layer, which predicts (V - mu) / sigma.
      bias: [tasks] b.
      old: statistics mu, sigma that the layer was learned with.
      new: statistics mu', sigma' to use from now on.
      minimum: relative lower bound of sigma and sigma', as in `popart_std`.
    Returns:
      Weight [hidden, tasks] and bias [tasks] for the new statistics.
    """
    new_std = popart_std(new, minimum)
    old_std = jnp.where(old.mean_square > 0, popart_std(old, minimum), new_std)
    return weight * (old_std / new_std), (old_std * bias + old.mean - new.mean) / new_std
