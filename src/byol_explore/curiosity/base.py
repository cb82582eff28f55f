"""What a curiosity is: BYOL-Explore, its baselines, and anybody's own.

A method reads sequences of observations and actions, and nothing of an agent. What gradients train is the method
itself, an Equinox module; what they do not train (a target network, counts, running statistics, memories) is its state,
a pytree that `init` makes, and that `after` may change with every batch that was learned from.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import equinox as eqx

from byol_explore.networks.assembly import View
from byol_explore.settings.parts import CuriosityConfig, NetworkConfig
from byol_explore.spaces import ActionSpec
from byol_explore.types import Array, Encoder, PyTree, Sequence


class CuriosityOutput(NamedTuple):
    """What a method says of a batch of sequences."""

    loss: Array  # [] to be minimised
    uncertainty: Array  # [T-1, B] raw, of each transition; no gradient flows through it
    metrics: dict[str, Array]


class Materials(NamedTuple):
    """What a method may build itself from."""

    observation: PyTree  # spec of one observation
    action: ActionSpec
    network: NetworkConfig
    settings: CuriosityConfig
    embedding_size: int  # of the representation that it reads
    make_encoder: Callable[[Array], Encoder]  # a fresh one of that kind from a key, centred as all are


class Curiosity(eqx.Module):
    """A method. Its class says what it is, so that nobody needs to know its name."""

    prioritizes: ClassVar[bool] = False  # its rewards are clipped at their mean, unless set otherwise
    reads_representation: ClassVar[bool] = True  # else it looks at observations through networks of its own
    compares_directions: ClassVar[bool] = False  # its loss does not see the length of embeddings
    is_curious: ClassVar[bool] = True  # else it is never uncertain
    has_target: ClassVar[bool] = False  # predicts the embeddings of an encoder that gradients do not train
    reads: ClassVar[tuple[str, ...]] = ("prioritize",)  # the settings of curiosity that it looks at

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """The method before anything is learned."""
        raise NotImplementedError

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> PyTree:
        """The state before the first batch. `encoder` is that of the representation that the method reads."""
        return ()

    def __call__(self, state: PyTree, view: View, sequence: Sequence) -> CuriosityOutput:
        """Loss and uncertainty of a batch of sequences, which `view` shows through the representation."""
        raise NotImplementedError

    def after(self, state: PyTree, encoder: Encoder, sequence: Sequence) -> PyTree:
        """The state after a learner step that has learned from these sequences."""
        return state

    def target(self, state: PyTree) -> Encoder:
        """The encoder whose embeddings are predicted, of a method that has a target."""
        raise NotImplementedError
