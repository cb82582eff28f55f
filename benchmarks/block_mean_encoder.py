"""A cheap image encoder, so that a benchmark measures the cost of the runtime."""

from typing import Self

import jax.numpy as jnp

from byol_explore.config.sections import NetworkConfig
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.networks.layers import Linear
from byol_explore.spaces import Image
from byol_explore.types import Array

BLOCK = 12  # side of a square in pixels


class BlockMeanEncoder(ObservationEncoder):
    """A linear layer on the mean of every square of pixels."""

    supported_spaces = (Image,)

    linear: Linear

    @classmethod
    def make(cls, spec: Image, network: NetworkConfig, size: int, key: Array) -> Self:
        height, width, channels = spec.shape
        return cls(Linear(height // BLOCK * (width // BLOCK) * channels, size, key))

    def __call__(self, observation: Array) -> Array:
        count, height, width, channels = observation.shape
        blocks = observation.reshape(count, height // BLOCK, BLOCK, width // BLOCK, BLOCK, channels)
        return self.linear(jnp.mean(blocks.astype(jnp.float32), axis=(2, 4)).reshape(count, -1) / 255.0)
