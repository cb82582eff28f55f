"""An encoder for observations with several entries."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from byol_explore.networks.encoders import ObservationEncoder, VectorEncoder
from byol_explore.networks.layers import Linear
from byol_explore.types import Encoder

ImageFactory = Callable[[tuple[int, int, int], int, Array], Encoder]


class DictEncoder(ObservationEncoder):
    """A small encoder per entry, their outputs concatenated, ReLU, linear to N.

    Entries of bytes [H, W, C] are images, for which `image` makes an encoder of (shape, size, key); all others are
    read as flat vectors.
    """

    entries: dict[str, Encoder]
    linear: Linear

    def __init__(
        self, spec: Mapping[str, jax.ShapeDtypeStruct], hidden: Sequence[int], size: int, key: Array, *,
        image: ImageFactory,
    ) -> None:  # fmt: skip
        *keys, linear_key = jax.random.split(key, len(spec) + 1)
        self.entries = {
            name: image(spec[name].shape, size, k)
            if is_image(spec[name])
            else VectorEncoder(spec[name].size, hidden, size, k)
            for name, k in zip(sorted(spec), keys, strict=True)
        }
        self.linear = Linear(len(spec) * size, size, linear_key)

    def __call__(self, observation: dict[str, Array]) -> Float[Array, "n N"]:
        parts = [self.entries[name](observation[name]) for name in sorted(self.entries)]
        return self.linear(jax.nn.relu(jnp.concatenate(parts, axis=-1)))


def is_image(spec: jax.ShapeDtypeStruct) -> bool:
    return len(spec.shape) == 3 and spec.dtype == jnp.uint8
