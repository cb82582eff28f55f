"""Uncertainties and the task's own rewards, made into the one reward that an agent maximises.

`make_rewards` is all that a learner, the doctor or anybody else needs: a pure function of
running statistics and a batch.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from byol_explore.ops import moments
from byol_explore.ops.batches import flat, timed


def initial_normalizers(count: int) -> moments.Normalizer:
    """One normalizer for all tasks, or one for each: every field has an axis in front."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), moments.initial_normalizer())


def intrinsic_reward(
    normalizers: moments.Normalizer,
    uncertainty: Float[Array, "S B"],
    task: Int[Array, "S B"],
    valid: Bool[Array, "S B"],
    decay: float,
    prioritize: bool,
) -> tuple[moments.Normalizer, Float[Array, "S B"]]:
    """Uncertainties normalised and, if so wished, clipped at their mean (section 3.3, appendix A.3).

    With a normalizer for each task a transition is measured by those of its own task; 0 where invalid.
    """
    one = partial(moments.intrinsic_reward, decay=decay, prioritize=prioritize)
    normalizers, rewards = jax.vmap(one, (0, None, 0))(normalizers, uncertainty, _measured_by(normalizers, task, valid))
    return normalizers, jnp.sum(rewards, axis=0)


def _measured_by(
    normalizers: moments.Normalizer, task: Int[Array, "S B"], valid: Bool[Array, "S B"]
) -> Bool[Array, "count S B"]:
    """The transitions that each normalizer measures."""
    count = normalizers.raw.mean.shape[0]
    return valid & ((task == jnp.arange(count)[:, None, None]) | (count == 1))


class RewardScale(NamedTuple):
    """Running mean square of a reward, per task, bias-corrected by the weight it has seen."""

    mean_square: Array  # [tasks]
    weight: Array  # [tasks] 1 - (1 - step)^batches


def initial_scale(tasks: int) -> RewardScale:
    return RewardScale(jnp.zeros((tasks,)), jnp.zeros((tasks,)))


def rescale(
    stats: RewardScale,
    reward: Float[Array, " n"],
    task: Int[Array, " n"],
    valid: Bool[Array, " n"],
    step_size: float,
    minimum: float,
) -> tuple[RewardScale, Float[Array, " n"]]:
    """The reward divided by its running root mean square (appendix C); a step size of 0 leaves it alone.

    No mean is taken off: that would pay for zeros. Statistics take in the batch first.
    """
    if step_size == 0.0:
        return stats, reward
    tasks = stats.mean_square.shape[0]
    weight = jax.nn.one_hot(task, tasks) * valid[:, None]
    squares = jnp.square(jnp.where(valid, reward, 0.0)) @ weight
    count = jnp.sum(weight, axis=0)
    step = step_size * (count > 0)
    batch = squares / jnp.maximum(count, 1.0)
    stats = RewardScale(
        mean_square=stats.mean_square + step * (batch - stats.mean_square),
        weight=stats.weight + step * (1.0 - stats.weight),
    )
    return stats, reward / root_mean_square(stats, minimum)[task]


def root_mean_square(stats: RewardScale, minimum: float) -> Float[Array, " tasks"]:
    """What rewards of each task are divided by."""
    mean_square = stats.mean_square / jnp.maximum(stats.weight, 1e-12)
    return jnp.maximum(jnp.sqrt(mean_square), minimum)


class RewardSettings(NamedTuple):
    """How uncertainties become rewards (section 3.3, appendices A.3 and C)."""

    regime: str = "mixed"  # extrinsic + lambda intrinsic, or one of the two: "intrinsic", "extrinsic"
    mixing: Array | float = 0.1  # lambda
    prioritize: bool = True  # clip normalised uncertainties at their mean
    decay: float = 0.99  # of the normalizer's statistics
    intrinsic_step: float = 0.0  # of the intrinsic reward's scale, 0 for none
    extrinsic_step: float = 0.0
    min_scale: float = 1e-2  # that is divided by


class RewardStatistics(NamedTuple):
    """What is known of rewards so far."""

    normalizer: moments.Normalizer  # one for all tasks, or one for each: [1 or tasks] in every field
    extrinsic: RewardScale
    intrinsic: RewardScale


class Rewards(NamedTuple):
    """A batch's rewards, all [S, B]."""

    total: Array  # what the agent maximises
    normalized: Array  # uncertainties normalised and perhaps clipped, 0 where no transition is
    scaled: Array  # these on their task's scale
    intrinsic: Array  # the part of the total that is curiosity's
    extrinsic: Array  # and the task's


def initial_statistics(tasks: int = 1, *, per_task: bool = True) -> RewardStatistics:
    """Before the first batch; with a normalizer for each task, or one for all."""
    return RewardStatistics(initial_normalizers(tasks if per_task else 1), initial_scale(tasks), initial_scale(tasks))


def make_rewards(
    statistics: RewardStatistics,
    uncertainty: Float[Array, "S B"],
    extrinsic: Float[Array, "S B"],
    task: Int[Array, "S B"],
    valid: Bool[Array, "S B"],
    settings: RewardSettings,
) -> tuple[RewardStatistics, Rewards]:
    """Rewards of a batch, and the statistics with the batch in them, which are those that it is measured by."""
    normalizer, normalized = intrinsic_reward(
        statistics.normalizer, uncertainty, task, valid, settings.decay, settings.prioritize
    )

    def on_scale(stats: RewardScale, reward: Array, step: float) -> tuple[RewardScale, Array]:
        stats, scaled = rescale(stats, flat(reward), flat(task), flat(valid), step, settings.min_scale)
        return stats, timed(scaled, reward.shape[0])

    extrinsic_stats, own = on_scale(statistics.extrinsic, extrinsic, settings.extrinsic_step)
    intrinsic_stats, scaled = on_scale(statistics.intrinsic, normalized, settings.intrinsic_step)
    own_part, part = parts(own, scaled, settings.regime, settings.mixing)
    rewards = Rewards(own_part + part, normalized, scaled, part, own_part)
    return RewardStatistics(normalizer, extrinsic_stats, intrinsic_stats), rewards


def parts(extrinsic: Array, intrinsic: Array, regime: str, mixing: Array | float) -> tuple[Array, Array]:
    """What the task and what curiosity pays (section 4): r_e and lambda r_i, or one of the two alone."""
    match regime:
        case "mixed":
            return extrinsic, mixing * intrinsic
        case "intrinsic":
            return jnp.zeros_like(extrinsic), intrinsic
        case "extrinsic":
            return extrinsic, jnp.zeros_like(intrinsic)
    raise ValueError(f"unknown regime {regime!r}")
