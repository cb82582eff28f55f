"""What a curiosity is: BYOL-Explore, its baselines, and anybody's own.

A method reads sequences of observations and actions, and nothing of an agent. What gradients train is the method
itself, an Equinox module; what they do not train (a target network, counts, running statistics, memories) is its state,
a pytree that `init` makes, and that `after` may change with every batch that was learned from.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax

from byol_explore.errors import UserError, lacking
from byol_explore.networks.assembly import View
from byol_explore.networks.recall import NOTHING, Recall
from byol_explore.ops.moments import masked_mean
from byol_explore.settings.parts import CuriosityConfig, NetworkConfig
from byol_explore.spaces import ActionSpec
from byol_explore.types import Array, Encoder, PyTree, Sequence


class CuriosityOutput(NamedTuple):
    """What a method says of a batch of sequences."""

    loss: Array  # [] to be minimised
    uncertainty: Array  # [T-1, B] raw, of each transition; no gradient flows through it
    metrics: dict[str, Array]  # "prediction_error" [K] per step ahead among them, else it is the mean uncertainty


class Materials(NamedTuple):
    """What a method may build itself from."""

    observation: PyTree  # spec of one observation
    action: ActionSpec
    network: NetworkConfig
    settings: CuriosityConfig
    embedding_size: int  # of the representation that it reads
    make_encoder: Callable[[Array], Encoder]  # a fresh one of that kind from a key, centred as all are
    epochs: int = 1  # how often every sequence is learned from


class Curiosity(eqx.Module):
    """A method. Its class says what it is, so that nobody needs to know its name."""

    prioritizes: ClassVar[bool] = False  # its rewards are clipped at their mean, unless set otherwise
    reads_representation: ClassVar[bool] = True  # else it looks at observations through networks of its own
    compares_directions: ClassVar[bool] = False  # its loss does not see the length of embeddings
    is_curious: ClassVar[bool] = True  # else it is never uncertain
    has_target: ClassVar[bool] = False  # predicts the embeddings of an encoder that gradients do not train
    contrasts: ClassVar[bool] = False  # what it says of a transition depends on the others of its batch
    reads: ClassVar[tuple[str, ...]] = ("prioritize",)  # the settings of curiosity that it looks at

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        """The method before anything is learned."""
        raise lacking("method", cls, "make")

    @classmethod
    def recall(cls, embedding_size: int) -> Recall:
        """What it remembers of the episode under way, in embeddings of that size; `view.episode` is such a memory."""
        return NOTHING

    def init(self, materials: Materials, encoder: Encoder, key: Array) -> PyTree:
        """The state before the first batch. `encoder` is that of the representation that the method reads."""
        return ()

    def __call__(self, state: PyTree, view: View, sequence: Sequence) -> CuriosityOutput:
        """Loss and uncertainty of a batch of sequences, which `view` shows through the representation."""
        raise lacking("method", type(self), "__call__")

    def opened(self, batch: int) -> PyTree:
        """What `follow` carries along so many streams, before the first of their sequences."""
        return ()

    def follow(self, state: PyTree, carry: PyTree, view: View, sequence: Sequence) -> tuple[PyTree, Array]:
        """Uncertainties [T-1, B] of sequences that continue others, as if all were one, and what the next will need.

        A method that looks at more than one transition at a time defines this and `opened`; nothing trains here.
        """
        return carry, self(state, view, sequence).uncertainty

    def after(self, state: PyTree, encoder: Encoder, sequence: Sequence) -> PyTree:
        """The state after a learner step that has learned from these sequences."""
        return state

    def target(self, state: PyTree) -> Encoder:
        """The encoder whose embeddings are predicted, of a method that has a target."""
        raise lacking("method", type(self), "target")


def ask(method: Curiosity, state: PyTree, view: View, sequence: Sequence) -> CuriosityOutput:
    """What a method says of a batch of sequences; a UserError if that is not what it should be."""
    output, name = method(state, view, sequence), type(method).__name__
    if not isinstance(output, CuriosityOutput):
        raise UserError(f"method {name} answers with a {type(output).__name__}: it must be a CuriosityOutput")
    expected = {"a loss": (output.loss, ()), "an uncertainty": (output.uncertainty, sequence.valid.shape)}
    for what, (array, shape) in expected.items():
        if array.shape != shape:
            raise UserError(f"method {name} answers with {what} of shape {array.shape}: it must be {shape}")
    mean = masked_mean(output.uncertainty, sequence.valid)
    return output._replace(metrics={"prediction_error": mean[None], **output.metrics})


def move(method: Curiosity, state: PyTree, encoder: Encoder, sequence: Sequence) -> PyTree:
    """The method's state after a learner step; a UserError if it has become another kind of thing."""
    after = method.after(state, encoder, sequence)
    types = [(jax.tree.structure(tree), *map(_type, jax.tree.leaves(tree))) for tree in (state, after)]
    if types[0] != types[1]:
        raise UserError(f"method {type(method).__name__}: after makes a state of other types or shapes than init")
    return after


def _type(leaf: Array) -> tuple[tuple[int, ...], str]:
    return leaf.shape, str(leaf.dtype)
