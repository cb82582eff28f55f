"""An encoder for observations with several entries."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear


class DictEncoder(ObservationEncoder):
    """An encoder per entry, their outputs of size N concatenated, ReLU, linear to N.

    Of a single entry it is that entry's encoder. Entries that have none are not looked at.
    """

    entries: dict[str, ObservationEncoder]
    linear: Linear | None

    def __init__(self, entries: Mapping[str, ObservationEncoder], size: int, key: Array) -> None:
        self.entries = dict(entries)
        self.linear = Linear(len(entries) * size, size, key) if len(entries) > 1 else None

    def __call__(self, observation: dict[str, Array]) -> Float[Array, "n N"]:
        parts = [self.entries[name](observation[name]) for name in sorted(self.entries)]
        if self.linear is None:
            return parts[0]
        return self.linear(jax.nn.relu(jnp.concatenate(parts, axis=-1)))
