"""PopArt (Hessel et al., 2019) on the value head, statistics per task (appendix C)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class PopArt(NamedTuple):
    """Running statistics of the value targets, one entry per task."""

    mean: Array  # [tasks]
    mean_square: Array  # [tasks]


def initial_popart(tasks: int) -> PopArt:
    return PopArt(jnp.zeros((tasks,)), jnp.ones((tasks,)))


def scale(stats: PopArt, minimum: float, maximum: float = 1e6) -> Float[Array, " tasks"]:
    """Standard deviation of the targets, kept inside the bounds."""
    variance = stats.mean_square - jnp.square(stats.mean)
    return jnp.sqrt(jnp.clip(variance, minimum**2, maximum**2))


def update_popart(
    stats: PopArt,
    target: Float[Array, " n"],
    task: Int[Array, " n"],
    valid: Bool[Array, " n"],
    step_size: float,
) -> PopArt:
    """Move each task's statistics towards the mean of its targets in this batch.

    A step per batch, not per sample: summed over thousands of samples the paper's 0.01 diverges.
    Tasks that are not in the batch keep their statistics.
    """
    weight = jax.nn.one_hot(task, stats.mean.shape[0]) * valid[:, None]
    target = jnp.where(valid, target, 0.0)
    count, total, total_square = jnp.sum(weight, axis=0), target @ weight, jnp.square(target) @ weight
    step = step_size * (count > 0)
    count = jnp.maximum(count, 1.0)
    return PopArt(
        mean=stats.mean + step * (total / count - stats.mean),
        mean_square=stats.mean_square + step * (total_square / count - stats.mean_square),
    )


def preserve_outputs(
    weight: Float[Array, "hidden tasks"],
    bias: Float[Array, " tasks"],
    old: PopArt,
    new: PopArt,
    minimum: float,
) -> tuple[Float[Array, "hidden tasks"], Float[Array, " tasks"]]:
    """The head under new statistics whose unnormalised outputs are those of the old head under the old ones."""
    old_scale, new_scale = scale(old, minimum), scale(new, minimum)
    return (
        weight * (old_scale / new_scale),
        (old_scale * bias + old.mean - new.mean) / new_scale,
    )
