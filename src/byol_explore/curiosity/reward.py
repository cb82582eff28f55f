"""Extrinsic and intrinsic rewards, each on its scale, made into the one that the agent maximises."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from byol_explore.ops import moments


def initial_normalizers(count: int) -> moments.Normalizer:
    """One normaliser for all tasks, or one for each: every field has an axis in front."""
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

    With a normaliser for each task a transition is measured by those of its own task; 0 where invalid.
    """
    count = normalizers.raw.mean.shape[0]
    mine = valid & ((task == jnp.arange(count)[:, None, None]) | (count == 1))  # [count, S, B]
    one = partial(moments.intrinsic_reward, decay=decay, prioritize=prioritize)
    normalizers, rewards = jax.vmap(one, (0, None, 0))(normalizers, uncertainty, mine)
    return normalizers, jnp.sum(rewards, axis=0)


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
    mean_square = stats.mean_square / jnp.maximum(stats.weight, 1e-12)
    return stats, reward / jnp.maximum(jnp.sqrt(mean_square), minimum)[task]


def mix(extrinsic: Float[Array, "*n"], intrinsic: Float[Array, "*n"], regime: str, mixing: float) -> Float[Array, "*n"]:
    """r_e + lambda r_i (mixed), r_i (intrinsic) or r_e (extrinsic), section 4."""
    match regime:
        case "mixed":
            return extrinsic + mixing * intrinsic
        case "intrinsic":
            return intrinsic
        case "extrinsic":
            return extrinsic
    raise ValueError(f"unknown regime {regime!r}")
