"""No curiosity: the pure RL baseline."""

from typing import Self

import jax.numpy as jnp

from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials
from byol_explore.networks.assembly import View
from byol_explore.types import Array, Sequence


class NoCuriosity(Curiosity):
    """Certain of everything: no loss, no uncertainty."""

    is_curious = False
    reads = ()

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()

    def __call__(self, state: tuple[()], view: View, sequence: Sequence) -> CuriosityOutput:
        zero = jnp.zeros(())
        return CuriosityOutput(zero, jnp.zeros(sequence.valid.shape), {"prediction_error": zero[None]})
