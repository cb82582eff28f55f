"""Vectors by their running mean and deviation: x becomes (x - mean) / deviation, cut off at five deviations.

Numbers of a vector may be of any size, metres beside radians beside counts, and an encoder with random weights sees
the largest alone. The statistics are those of all observations that were learned from. They are a part of the actor,
so that whoever acts, learns, films or evaluates with it sees the same, and checkpoints keep them; no gradient trains
them.
"""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.networks.layers import Untrained
from byol_explore.spaces import Vector
from byol_explore.types import PyTree

LIMIT = 5.0  # deviations
EPSILON = 1e-6  # added to variances: a number that never changes becomes 0, not rounding errors blown up


class VectorNormalizer(Untrained):
    """Statistics of one vector. Before the first batch it leaves everything as it is."""

    mean: Float[Array, " size"]
    variance: Float[Array, " size"]
    count: Float[Array, ""]  # observations so far; a float, as all that is inside networks

    def __init__(self, size: int) -> None:
        self.mean, self.variance, self.count = jnp.zeros((size,)), jnp.ones((size,)), jnp.zeros(())

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        mean, variance, count = jax.lax.stop_gradient((self.mean, self.variance, self.count))
        normalized = (x - mean) * jax.lax.rsqrt(jnp.maximum(variance, 0.0) + EPSILON)
        return jnp.where(count > 0, jnp.clip(normalized, -LIMIT, LIMIT), x)

    def moved(self, x: Float[Array, "*batch size"], seen: Bool[Array, "*batch"] | None = None) -> Self:
        """With a batch in the statistics: mean and variance of both together (Chan et al., 1979).

        Vectors outside of the mask do not count, and there must be others.
        """
        axes, where = tuple(range(x.ndim - 1)), None if seen is None else seen[..., None]
        count = x.size // x.shape[-1] if seen is None else jnp.sum(seen)
        share = count / (self.count + count)  # of the batch in all
        apart = jnp.mean(x, axis=axes, where=where) - self.mean
        variance = (1.0 - share) * self.variance + share * jnp.var(x, axis=axes, where=where)
        return eqx.tree_at(
            lambda node: (node.mean, node.variance, node.count),
            self,
            (
                self.mean + share * apart,
                variance + share * (1.0 - share) * jnp.square(apart),
                self.count + count,
            ),
        )


class ObservationNormalizer(eqx.Module):
    """Normalises the vectors of an observation, and leaves everything else as it is."""

    entries: dict[str, VectorNormalizer]  # an observation of one kind is an entry without a name

    def __init__(self, spec: PyTree, *, normalizes: bool = True) -> None:
        kinds = spec if isinstance(spec, dict) else {"": spec}
        vectors = {name: kind for name, kind in kinds.items() if isinstance(kind, Vector) and normalizes}
        self.entries = {name: VectorNormalizer(vector.size) for name, vector in vectors.items()}

    def __call__(self, observation: PyTree) -> PyTree:
        if not isinstance(observation, dict):
            return self.entries[""](observation) if self.entries else observation
        return {name: self.entries[name](x) if name in self.entries else x for name, x in observation.items()}

    def moved(self, observation: PyTree, seen: Array | None = None) -> Self:
        """With a batch of observations [..., size] in the statistics, or those of them in a mask [...]."""
        named: dict[str, Any] = observation if isinstance(observation, dict) else {"": observation}
        entries = {name: entry.moved(named[name], seen) for name, entry in self.entries.items()}
        return eqx.tree_at(lambda node: node.entries, self, entries)
