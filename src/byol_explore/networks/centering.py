"""A start that depends on data: the output of every layer of an encoder is zero on average over some observations.

BYOL-Explore compares directions of embeddings (section 3.2 ii). Observations share a lot: most cells of a grid are
unseen, the background of a game stands still, floor and sky fill a first-person view. An encoder with random weights
and zero biases turns what they share into one large mean vector, so its embeddings start nearly parallel; every
prediction is right from the start, bootstrapping pulls the embeddings closer still, and curiosity is paid for nothing.

Biases that take the mean off cure it without changing an equation: what is left at each layer is how observations
differ. They are computed once, from front to back, as data-dependent initialisation does (Salimans & Kingma, 2016),
here without the scale. A layer that can do this has a method `centered(inputs)`; all other parts of an encoder need
not know of it.
"""

from typing import Any, Protocol, runtime_checkable

import jax

from byol_explore.networks import cpu
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.types import Array, Encoder, PyTree


@runtime_checkable
class Centerable(Protocol):
    """A layer that can make its own outputs zero on average."""

    def __call__(self, x: Array) -> Array: ...
    def centered(self, x: Array) -> Any:
        """The layer whose outputs for these inputs are zero on average."""
        ...


class _Watched:
    """Stands in for a layer: centres it on the inputs that come, keeps the result and answers with it."""

    def __init__(self, layer: Centerable) -> None:
        self.layer: Any = layer

    def __call__(self, x: Array) -> Array:
        self.layer = self.layer.centered(x)
        return self.layer(x)


def centered(encoder: Encoder, observation: PyTree) -> Encoder:
    """The encoder whose layers have outputs that are zero on average over a batch of observations [n, ...].

    Layers are centred as the observations pass through them, so each sees what the centred ones before it make.
    """
    watched = jax.tree.map(
        lambda node: _Watched(node) if isinstance(node, Centerable) else node,
        encoder,
        is_leaf=lambda node: isinstance(node, Centerable),
    )
    with cpu.plain_layers():  # in one piece: the mean over a few observations at a time would be another one
        watched(observation)
    return jax.tree.map(lambda node: node.layer if isinstance(node, _Watched) else node, watched)


def with_centered_encoders(tree: PyTree, observation: PyTree) -> PyTree:
    """A tree of modules in which every encoder is centred on these observations."""

    def is_encoder(node: object) -> bool:
        return isinstance(node, ObservationEncoder)

    return jax.tree.map(
        lambda node: centered(node, observation) if is_encoder(node) else node, tree, is_leaf=is_encoder
    )
