"""Actions as inputs of a recurrent core."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.errors import UserError
from byol_explore.networks.layers import Linear, truncated_normal
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action


class ActionEmbedding(eqx.Module):
    """A learned vector per action, and one for "no action yet" before an episode's first observation.

    Each discrete component and each binned continuous dimension has a table; their rows are added up,
    which is a linear layer on the concatenated one-hots.
    """

    tables: Float[Array, "rows size"]
    nothing: Float[Array, " size"]
    spec: ActionSpec = eqx.field(static=True)
    bins: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, spec: ActionSpec, size: int, key: Array, *, bins: int | tuple[int, ...] = 9) -> None:
        bins = bins_per_dimension(spec, bins)
        rows = sum(spec.discrete) + sum(bins)
        components = len(spec.discrete) + spec.continuous
        table_key, nothing_key = jax.random.split(key)
        self.tables = truncated_normal(table_key, (rows, size), max(components, 1))
        self.nothing = truncated_normal(nothing_key, (size,), 1)
        self.spec, self.bins = spec, bins

    @property
    def size(self) -> int:
        return self.nothing.shape[0]

    def one_hots(self, action: Action) -> Float[Array, "*batch rows"]:
        """The chosen rows of all tables, marked with ones."""
        parts = [jax.nn.one_hot(action.discrete[..., i], n) for i, n in enumerate(self.spec.discrete)]
        for dimension, bins in enumerate(self.bins):
            unit = jnp.clip((action.continuous[..., dimension] + 1.0) / 2.0, 0.0, 1.0)
            parts.append(jax.nn.one_hot(jnp.minimum((unit * bins).astype(jnp.int32), bins - 1), bins))
        return jnp.concatenate(parts, axis=-1)

    def __call__(
        self, action: Action, is_first: Bool[Array, "*batch"] | None, through: Linear
    ) -> Float[Array, "*batch outputs"]:
        """`through` applied to the embedding, computed on the few rows of the tables instead of the whole batch."""
        tables = jnp.concatenate([self.tables, self.nothing[None]]) @ through.weight
        one_hots = self.one_hots(action)
        nothing = jnp.zeros(one_hots.shape[:-1]) if is_first is None else is_first.astype(one_hots.dtype)
        chosen = jnp.concatenate([one_hots * (1.0 - nothing)[..., None], nothing[..., None]], axis=-1)
        embedded = chosen @ tables
        return embedded if through.bias is None else embedded + through.bias


def bins_per_dimension(spec: ActionSpec, bins: int | tuple[int, ...]) -> tuple[int, ...]:
    """One number of bins for each continuous dimension of an action; a UserError if they are not as many."""
    if isinstance(bins, int) or not spec.continuous:
        return (bins,) * spec.continuous if isinstance(bins, int) else ()
    if len(bins) != spec.continuous:
        raise UserError(
            f"network.action_bins is {bins}, {len(bins)} in number, where actions have {spec.continuous} continuous "
            "dimensions: it must be one number for all of them, or one for each"
        )
    return bins
