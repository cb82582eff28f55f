"""An encoder of one's own: numbers as waves of many lengths (Tancik et al., 2020), which tells near ones apart.

    byol-explore train --env examples.lock:Lock --network.encoder examples.waves:Waves

The frequencies are drawn once and no gradient trains them. The last layer is one of the package's, so its bias is
centred on the first observations as in every other encoder.
"""

from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Vector
from byol_explore.types import Array

WAVES = 64


class Waves(ObservationEncoder):
    """Sines and cosines of random projections, then a linear layer."""

    reads = (Vector,)

    frequencies: Array  # [numbers, WAVES]
    output: Linear

    @classmethod
    def make(cls, spec: Vector, network: NetworkConfig, size: int, key: Array) -> Self:
        drawn, output = jax.random.split(key)
        return cls(jax.random.normal(drawn, (spec.size, WAVES)), Linear(2 * WAVES, size, output))

    def __call__(self, observation: Array) -> Array:
        angles = observation @ jax.lax.stop_gradient(self.frequencies)
        return self.output(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1))
