"""The value head in PopArt's normalised units, a value per task (appendix C)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from byol_explore.networks.layers import Linear
from byol_explore.ops import popart
from byol_explore.ops.batches import flat
from byol_explore.ops.moments import masked_mean
from byol_explore.types import Array


class Critic(NamedTuple):
    """Reads values off beliefs and learns them; the settings of PopArt."""

    tasks: int
    step: float  # of PopArt's statistics
    min_scale: float

    def values(self, layer: Linear, stats: popart.PopArt, hidden: Array, task: Array) -> Array:
        """[T, B] in units of the reward, from the head's last layer and what comes before it; no gradient."""
        normalized = jax.lax.stop_gradient(self._chosen(layer(hidden), task))
        return popart.scale(stats, self.min_scale)[task] * normalized + stats.mean[task]

    def update(self, stats: popart.PopArt, target: Array, task: Array, valid: Array) -> popart.PopArt:
        """The statistics with a batch of targets in them."""
        return popart.update_popart(stats, flat(target), flat(task), flat(valid), self.step)

    def loss(
        self, layer: Linear, before: popart.PopArt, after: popart.PopArt, hidden: Array, task: Array, target: Array,
        valid: Array,
    ) -> Array:  # fmt: skip
        """Squared error in normalised units of the head that has been rescaled from old to new statistics.

        PopArt takes in the targets first and the head is rescaled; the loss is that of the rescaled head, and its
        gradient is applied to it.
        """
        rescaled = self.rescaled(layer, before, after)
        # Computes with the rescaled layer, passes the gradient straight on to the parameters.
        through = jax.tree.map(lambda old, new: old + jax.lax.stop_gradient(new - old), layer, rescaled)
        normalized = self._chosen(through(hidden), task)
        expected = (target - after.mean[task]) / popart.scale(after, self.min_scale)[task]
        return masked_mean(jnp.square(normalized - expected), valid)

    def rescaled(self, layer: Linear, old: popart.PopArt, new: popart.PopArt) -> Linear:
        """The head's last layer whose values stay the same under new statistics."""
        assert layer.bias is not None
        parameters = popart.preserve_outputs(layer.weight, layer.bias, old, new, self.min_scale)
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, parameters)

    def _chosen(self, outputs: Array, task: Array) -> Array:
        return jnp.sum(jax.nn.one_hot(task, self.tasks) * outputs, axis=-1)
