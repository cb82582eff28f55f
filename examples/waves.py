"""A user-defined encoder: random Fourier features (Tancik et al., 2020), which separate close numbers.

    byol-explore train --env examples.lock:Lock --network.encoder examples.waves:Waves

The frequencies are random and never change. The last layer is one of the package's, so its bias is centred on the first
observations as in every other encoder.
"""

from typing import Self

import jax
import jax.numpy as jnp

from byol_explore.config.sections import NetworkConfig
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear
from byol_explore.spaces import Vector
from byol_explore.types import Array

WAVES = 64


class Waves(ObservationEncoder):
    """Sines and cosines of random projections, then a linear layer."""

    supported_spaces = (Vector,)

    frequencies: Array  # [numbers, WAVES]
    output: Linear

    @classmethod
    def make(cls, spec: Vector, network: NetworkConfig, size: int, key: Array) -> Self:
        frequencies, output = jax.random.split(key)
        return cls(jax.random.normal(frequencies, (spec.size, WAVES)), Linear(2 * WAVES, size, output))

    def __call__(self, observation: Array) -> Array:
        angles = observation @ jax.lax.stop_gradient(self.frequencies)
        return self.output(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1))
