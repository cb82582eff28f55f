"""From uncertainties and extrinsic rewards to the reward that an agent maximises (section 3.3, appendices A.3 and C).

`compute_rewards` is the whole computation, a pure function of running statistics and a batch: normalise uncertainties
by their running deviation, clip them at their running mean (prioritisation), divide both rewards by their running root
mean square, mix them.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from byol_explore.ops.arrays import masked_mean, mean_per_task, merge_time_batch, split_time_batch


class RunningMoments(NamedTuple):
    """Exponential moving averages of batch means, to be divided by 1 - decay^n after n batches (`bias_corrected`)."""

    mean: Array  # [*stats]
    mean_square: Array  # [*stats]
    num_updates: Array  # [*stats] int32, batches so far


def init_moments(shape: tuple[int, ...] = ()) -> RunningMoments:
    """Return moments before the first batch, [*shape] of them."""
    return RunningMoments(jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape, jnp.int32))


def update_moments(
    moments: RunningMoments, x: Float[Array, "*n"], valid: Bool[Array, "*n"], decay: float, batches: Array | int = 1
) -> RunningMoments:
    """Add a batch to the averages: m <- decay^batches m + (1 - decay^batches) mean(x), same for squares.

    A batch without a valid entry changes nothing.

    Args:
      moments: averages [] before the batch.
      x: [...] values.
      valid: [...] mask.
      decay: decay per batch.
      batches: number of batches that `x` counts for.
    Returns:
      Averages after the batch.
    """
    any_valid, left = jnp.any(valid), decay**batches
    updated = RunningMoments(
        mean=left * moments.mean + (1.0 - left) * masked_mean(x, valid),
        mean_square=left * moments.mean_square + (1.0 - left) * masked_mean(jnp.square(x), valid),
        num_updates=moments.num_updates + batches,
    )
    return jax.tree.map(lambda new, old: jnp.where(any_valid, new, old), updated, moments)


def bias_corrected(moments: RunningMoments, decay: float) -> tuple[Float[Array, "*stats"], Float[Array, "*stats"]]:
    """Divide the averages of n batches by 1 - decay^n.

    Args:
      moments: averages [...].
      decay: decay per batch.
    Returns:
      Mean [...] and mean of squares [...]; zeros before the first batch.
    """
    # The paper's counter is read after an increment too many. This is the usual correction; the first batch is exact.
    log_decay = math.log(decay) if isinstance(decay, float) and decay > 0 else jnp.log(decay)
    weight = -jnp.expm1(moments.num_updates * log_decay)  # 1 - decay^n, without its rounding error
    weight = jnp.where(moments.num_updates > 0, weight, 1.0)
    return moments.mean / weight, moments.mean_square / weight


def bias_corrected_std(
    moments: RunningMoments, decay: float, epsilon: float = 1e-8, minimum: float = 1e-2
) -> Float[Array, "*stats"]:
    """Standard deviation from the corrected averages: sigma^2 = max(E[x^2] - E[x]^2, minimum^2 E[x]^2) + epsilon.

    Args:
      moments: averages [...].
      decay: decay per batch.
      epsilon: keeps sigma above 0.
      minimum: lower bound of sigma, relative to the mean. Equal uncertainties, such as those of counts in a small first
        rollout, are then worth at most 1 / minimum.
    Returns:
      [...] sigma.
    """
    mean, mean_square = bias_corrected(moments, decay)
    return jnp.sqrt(jnp.maximum(mean_square - jnp.square(mean), jnp.square(minimum * mean)) + epsilon)


class RewardNormalizer(NamedTuple):
    """Statistics that make intrinsic rewards of uncertainties."""

    uncertainty: RunningMoments  # of the uncertainties l
    normalized: RunningMoments  # of l / sigma; its mean is the clipping threshold


def init_normalizer(shape: tuple[int, ...] = ()) -> RewardNormalizer:
    """Return a normalizer before the first batch; with a shape, [*shape] of them."""
    return RewardNormalizer(init_moments(shape), init_moments(shape))


def update_and_normalize(
    normalizer: RewardNormalizer,
    uncertainty: Float[Array, "*n"],
    valid: Bool[Array, "*n"],
    decay: float,
    prioritize: bool,
    batches: Array | int = 1,
) -> tuple[RewardNormalizer, Float[Array, "*n"]]:
    """Normalised and prioritised rewards (section 3.3): max(l / sigma - mu_{l/sigma}, 0).

    The batch is added to the statistics first: sigma and mu include it.

    >>> valid = jnp.ones(2, bool)
    >>> _, reward = update_and_normalize(init_normalizer(), jnp.array([0.0, 2.0]), valid, 0.99, prioritize=True)
    >>> reward.round(3).tolist()  # sigma = 1, and the mean of l / sigma is 1
    [0.0, 1.0]

    Args:
      normalizer: statistics before the batch.
      uncertainty: [...] l.
      valid: [...] mask.
      decay: decay of the statistics per batch.
      prioritize: clip at the mean; otherwise rewards are l / sigma.
      batches: number of batches that `uncertainty` counts for.
    Returns:
      Statistics after the batch, and rewards [...]; 0 where invalid.
    """
    raw = update_moments(normalizer.uncertainty, uncertainty, valid, decay, batches)
    reward = uncertainty / bias_corrected_std(raw, decay)
    normalizer = RewardNormalizer(raw, update_moments(normalizer.normalized, reward, valid, decay, batches))
    return normalizer, normalize(normalizer, uncertainty, valid, decay, prioritize)


def normalize(
    normalizer: RewardNormalizer,
    uncertainty: Float[Array, "*n"],
    valid: Bool[Array, "*n"],
    decay: float,
    prioritize: bool,
) -> Float[Array, "*n"]:
    """Rewards as in `update_and_normalize`, without updating the statistics.

    Args:
      normalizer: statistics after at least one batch.
      uncertainty: [...] l.
      valid: [...] mask.
      decay: decay of the statistics per batch.
      prioritize: clip at the mean.
    Returns:
      [...] rewards; 0 where invalid.
    """
    reward = uncertainty / bias_corrected_std(normalizer.uncertainty, decay)
    if prioritize:
        threshold, _ = bias_corrected(normalizer.normalized, decay)
        reward = jnp.maximum(reward - threshold, 0.0)
    return jnp.where(valid, reward, 0.0)


def normalize_per_task(
    normalizers: RewardNormalizer,
    uncertainty: Float[Array, "S B"],
    task: Int[Array, "S B"],
    valid: Bool[Array, "S B"],
    decay: float,
    prioritize: bool,
) -> tuple[RewardNormalizer, Float[Array, "S B"]]:
    """Apply `update_and_normalize` with one normalizer for all tasks, or each transition with that of its task.

    Args:
      normalizers: statistics [1] or [tasks] before the batch.
      uncertainty: [S, B] l.
      task: [S, B] task of each transition.
      valid: [S, B] mask.
      decay: decay of the statistics per batch.
      prioritize: clip at the mean.
    Returns:
      Statistics after the batch, and rewards [S, B]; 0 where invalid.
    """
    count = normalizers.uncertainty.mean.shape[0]
    measured = valid & ((task == jnp.arange(count)[:, None, None]) | (count == 1))  # [count, S, B]
    one = partial(update_and_normalize, decay=decay, prioritize=prioritize)
    normalizers, rewards = jax.vmap(one, (0, None, 0))(normalizers, uncertainty, measured)
    return normalizers, jnp.sum(rewards, axis=0)


class RunningRMS(NamedTuple):
    """Running mean squares of a reward, per task; divide by the weights to correct their bias."""

    mean_square: Array  # [tasks] of all rewards
    weight: Array  # [tasks] 1 - (1 - step)^batches
    nonzero_square: Array  # [tasks] of the rewards that are not 0
    nonzero_weight: Array  # [tasks] 1 - (1 - step)^(batches with such a reward)


def init_rms(tasks: int) -> RunningRMS:
    """Return statistics before the first batch."""
    return RunningRMS(*(jnp.zeros((tasks,)) for _ in RunningRMS._fields))


def divide_by_rms(
    stats: RunningRMS,
    reward: Float[Array, " n"],
    task: Int[Array, " n"],
    valid: Bool[Array, " n"],
    step_size: float,
    minimum: float,
) -> tuple[RunningRMS, Float[Array, " n"]]:
    """Divide rewards by the running root mean square of their task (appendix C).

        r / max(sqrt(E[r^2]), minimum sqrt(E[r^2 | r != 0]))

    The batch is added to the statistics first. Rewards that were all 0 so far are returned unchanged.

    Args:
      stats: statistics before the batch.
      reward: [n] r.
      task: [n] task of each reward.
      valid: [n] mask of the rewards that enter the statistics.
      step_size: step size of the running mean; 0 returns statistics and rewards unchanged.
      minimum: lower bound of the divisor, relative to the root mean square of rewards that are not 0.
    Returns:
      Statistics after the batch, and scaled rewards [n].
    """
    # The bound is relative to the size of the rewards that are not 0: rare ones are divided by at least `minimum` times
    # that size, and rewards times any factor give the same result.
    # No mean is subtracted: that would turn the zeros of a sparse reward into rewards.
    if step_size == 0.0:
        return stats, reward
    tasks, square = stats.mean_square.shape[0], jnp.square(jnp.where(valid, reward, 0.0))
    mean_square, count = mean_per_task(square, task, valid, tasks)
    nonzero_square, nonzero_count = mean_per_task(square, task, valid & (reward != 0), tasks)
    step, nonzero_step = step_size * (count > 0), step_size * (nonzero_count > 0)
    stats = RunningRMS(
        mean_square=stats.mean_square + step * (mean_square - stats.mean_square),
        weight=stats.weight + step * (1.0 - stats.weight),
        nonzero_square=stats.nonzero_square + nonzero_step * (nonzero_square - stats.nonzero_square),
        nonzero_weight=stats.nonzero_weight + nonzero_step * (1.0 - stats.nonzero_weight),
    )
    divisor = jnp.maximum(
        _corrected(stats.mean_square, stats.weight), minimum**2 * _corrected(stats.nonzero_square, stats.nonzero_weight)
    )
    return stats, reward / jnp.sqrt(jnp.where(divisor > 0, divisor, 1.0))[task]


def _corrected(mean: Array, weight: Array) -> Array:
    return mean / jnp.where(weight > 0, weight, 1.0)


class RewardConfig(NamedTuple):
    """Settings that make rewards of uncertainties and extrinsic rewards."""

    regime: str = "mixed"  # "mixed" (extrinsic + lambda intrinsic), "intrinsic" or "extrinsic"
    mixing: Array | float = 0.1  # lambda
    prioritize: bool = True  # clip normalised uncertainties at their mean
    decay: float = 0.99  # of the normalizer's statistics, per batch
    intrinsic_step: float = 0.0  # step size of the intrinsic reward's root mean square; 0 does not divide by it
    extrinsic_step: float = 0.0  # the same for the extrinsic reward
    min_scale: float = 1e-2  # lower bound of both root mean squares, relative to that of rewards other than 0


class RewardStatistics(NamedTuple):
    """Running statistics of `compute_rewards`."""

    normalizer: RewardNormalizer  # [1] for all tasks together, or [tasks]
    extrinsic: RunningRMS
    intrinsic: RunningRMS


class Rewards(NamedTuple):
    """Rewards of a batch, all [S, B]."""

    total: Array  # the reward that the agent maximises: `intrinsic` + `extrinsic`
    normalized: Array  # uncertainties, normalised and perhaps clipped; 0 where invalid
    scaled: Array  # `normalized`, divided by its task's root mean square
    intrinsic: Array  # intrinsic part of `total`
    extrinsic: Array  # extrinsic part of `total`


def init_reward_statistics(tasks: int = 1, *, per_task: bool = True) -> RewardStatistics:
    """Return statistics before the first batch, with a normalizer for each task or one for all."""
    return RewardStatistics(init_normalizer((tasks if per_task else 1,)), init_rms(tasks), init_rms(tasks))


def compute_rewards(
    statistics: RewardStatistics,
    uncertainty: Float[Array, "S B"],
    extrinsic: Float[Array, "S B"],
    task: Int[Array, "S B"],
    valid: Bool[Array, "S B"],
    settings: RewardConfig,
) -> tuple[RewardStatistics, Rewards]:
    """Rewards of a batch: normalise, prioritise, scale, mix. The batch is added to the statistics first.

    Args:
      statistics: running statistics before the batch.
      uncertainty: [S, B] l of each transition.
      extrinsic: [S, B] rewards of the environment.
      task: [S, B] task of each transition.
      valid: [S, B] mask.
      settings: regime, prioritisation and step sizes.
    Returns:
      Statistics after the batch, and the rewards [S, B].
    """
    normalizer, normalized = normalize_per_task(
        statistics.normalizer, uncertainty, task, valid, settings.decay, settings.prioritize
    )

    def scale(stats: RunningRMS, reward: Array, step: float) -> tuple[RunningRMS, Array]:
        flat = merge_time_batch(reward), merge_time_batch(task), merge_time_batch(valid)
        stats, scaled = divide_by_rms(stats, *flat, step, settings.min_scale)
        return stats, split_time_batch(scaled, reward.shape[0])

    extrinsic_stats, extrinsic = scale(statistics.extrinsic, extrinsic, settings.extrinsic_step)
    intrinsic_stats, scaled = scale(statistics.intrinsic, normalized, settings.intrinsic_step)
    extrinsic, intrinsic = mix_rewards(extrinsic, scaled, settings.regime, settings.mixing)
    rewards = Rewards(extrinsic + intrinsic, normalized, scaled, intrinsic, extrinsic)
    return RewardStatistics(normalizer, extrinsic_stats, intrinsic_stats), rewards


def mix_rewards(extrinsic: Array, intrinsic: Array, regime: str, mixing: Array | float) -> tuple[Array, Array]:
    """Parts of the total reward (section 4): r_e and lambda r_i, or one of the two alone.

    Args:
      extrinsic: [...] r_e.
      intrinsic: [...] r_i.
      regime: "mixed", "intrinsic" or "extrinsic".
      mixing: lambda; the mixed regime alone uses it.
    Returns:
      Extrinsic and intrinsic part [...].
    """
    match regime:
        case "mixed":
            return extrinsic, mixing * intrinsic
        case "intrinsic":
            return jnp.zeros_like(extrinsic), intrinsic
        case "extrinsic":
            return extrinsic, jnp.zeros_like(intrinsic)
    raise ValueError(f"unknown regime {regime!r}: it must be mixed, intrinsic or extrinsic")
