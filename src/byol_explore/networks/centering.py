"""A start that depends on data: the output of every layer of an encoder is zero on average over some observations.

BYOL-Explore compares directions of embeddings (section 3.2 ii). Observations share a lot: most cells of a grid are
unseen, the background of a game stands still, floor and sky fill a first-person view. An encoder with random weights
and zero biases turns what they share into one large mean vector, so its embeddings start nearly parallel; every
prediction is right from the start, bootstrapping pulls the embeddings closer still, and curiosity is paid for nothing.

Biases that take the mean off cure it without changing an equation: what is left at each layer is how observations
differ. They are computed once, from front to back, as data-dependent initialisation does (Salimans & Kingma, 2016).
A layer that can do this has a method `centered(inputs)`; all other parts of an encoder need not know of it.

Embeddings then stay apart as long as the world model learns faster than what it predicts moves. Adam moves every
weight by about the learning rate, whatever its size, so in a layer with a thousand inputs that are never negative one
step shifts all embeddings together by a good part of what tells them apart. Therefore the last layer can start large:
the loss does not see the length of embeddings, but the same step then turns them less. The core that reads them starts
as much smaller, so at the start it sees what it would see of unit deviations. `DEVIATIONS` says for which encoders;
docs/atari.md has the measurements.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from byol_explore.networks import cpu
from byol_explore.networks.assembly import Representation
from byol_explore.networks.dict_encoder import DictEncoder
from byol_explore.networks.encoders import AtariEncoder, ObservationEncoder
from byol_explore.types import Array, Encoder, PyTree

DEVIATIONS: dict[type, float] = {AtariEncoder: 16.0}  # of each number of an embedding, at the start; others as drawn
SMALLEST = 1e-3  # deviation that is divided by: a number that never changes is not blown up


@runtime_checkable
class Centerable(Protocol):
    """A layer that can make its own outputs zero on average."""

    def __call__(self, x: Array) -> Array: ...
    def centered(self, x: Array) -> Any:
        """The layer whose outputs for these inputs are zero on average."""
        ...


class _Watched:
    """Stands in for a layer: centres it on the inputs that come, keeps the result and answers with it."""

    def __init__(self, layer: Centerable, order: "list[_Watched]") -> None:
        self.layer: Any = layer
        self.order = order  # in which layers are called

    def __call__(self, x: Array) -> Array:
        self.layer = self.layer.centered(x)
        self.order.append(self)
        return self.layer(x)


def centered(encoder: Encoder, observation: PyTree, deviation: float | None = None) -> Encoder:
    """The encoder whose layers have outputs that are zero on average over a batch of observations [n, ...].

    Layers are centred as the observations pass through them, so each sees what the centred ones before it make. With a
    deviation the last layer is scaled so that each number of the embeddings has it.
    """
    order: list[_Watched] = []
    watched = jax.tree.map(
        lambda node: _Watched(node, order) if isinstance(node, Centerable) else node,
        encoder,
        is_leaf=lambda node: isinstance(node, Centerable),
    )
    with cpu.plain_layers():  # in one piece: the mean over a few observations at a time would be another one
        embedding = watched(observation)
    if deviation is not None:
        order[-1].layer = order[-1].layer.scaled(deviation / jnp.maximum(jnp.std(embedding, axis=0), SMALLEST))
    return jax.tree.map(lambda node: node.layer if isinstance(node, _Watched) else node, watched)


def starting_deviation(encoder: object) -> float | None:
    """What `DEVIATIONS` says; of an encoder of several entries, the largest of theirs."""
    parts = encoder.entries.values() if isinstance(encoder, DictEncoder) else [encoder]
    return max((DEVIATIONS[type(part)] for part in parts if type(part) in DEVIATIONS), default=None)


def with_centered_encoders(tree: PyTree, observation: PyTree, *, scaled: bool = False) -> PyTree:
    """A tree of modules in which every encoder is centred on these observations, and if asked to, scaled.

    Only where no loss sees the length of embeddings may they be scaled, as `DEVIATIONS` says.
    """

    def deviation_of(encoder: object) -> float | None:
        return starting_deviation(encoder) if scaled else None

    def start(node: Any) -> Any:
        if isinstance(node, ObservationEncoder):
            return centered(node, observation, deviation_of(node))
        if isinstance(node, Representation):
            inputs, deviation = node.inputs, deviation_of(node.encoder)
            inputs = inputs if deviation is None else inputs.for_deviation(deviation)
            return Representation(start(node.encoder), inputs, node.core)
        return node

    return jax.tree.map(start, tree, is_leaf=lambda node: isinstance(node, ObservationEncoder | Representation))
