"""The protocol that BYOL-Explore and its baselines share."""

from typing import NamedTuple, Protocol

from byol_explore.networks.assembly import View
from byol_explore.types import Array, Encoder, PyTree, Trajectory


class CuriosityOutput(NamedTuple):
    """What a method says of a batch of sequences."""

    loss: Array  # [] to be minimised
    uncertainty: Array  # [T-1, B] raw, of each transition; no gradient flows through it
    metrics: dict[str, Array]


class Curiosity(Protocol):
    """A method's trainable part, an Equinox module.

    It reads the world through a representation: the policy's own when shared, else a second one. `encoder` is
    that representation's encoder, `fresh` a random draw of the same shape.
    """

    def initial_target(self, encoder: Encoder, fresh: Encoder) -> PyTree:
        """What predictions are compared with and gradients do not train."""
        ...

    def __call__(self, target: PyTree, view: View, trajectory: Trajectory) -> CuriosityOutput:
        """Loss and uncertainty of a batch of sequences, which may be spread over devices."""
        ...

    def update_target(self, target: PyTree, encoder: Encoder) -> PyTree:
        """The target after a learner step."""
        ...
