"""A centred encoder: every layer is zero on average, embeddings are spread, and nothing else changes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import OBSERVATIONS, small_network
from byol_explore.config import NetworkConfig
from byol_explore.envs.base import ActionSpec, EnvSpec
from byol_explore.networks import cpu
from byol_explore.networks.assembly import make_encoder
from byol_explore.networks.centering import Centerable, centered, with_centered_encoders
from byol_explore.networks.layers import Center, Conv, GroupNorm, LayerNorm, Linear
from byol_explore.types import Encoder, PyTree

KINDS = {"grid": "auto", "vector": "auto", "image": "auto", "atari": "atari", "hard-eight": "auto", "dict": "auto"}
COUNT = 64


def observations_like(like: jax.ShapeDtypeStruct, rng: np.random.Generator) -> np.ndarray:
    """That share a lot: most numbers are the same in all observations, a few differ."""
    shared, own = (
        rng.integers(0, 16 if like.shape[-1:] == (2,) else 200, size).astype(like.dtype)
        if jnp.issubdtype(like.dtype, jnp.integer)
        else (5.0 * rng.normal(size=size)).astype(like.dtype)
        for size in (like.shape, (COUNT, *like.shape))
    )
    return np.where(rng.random((COUNT, *like.shape)) < 0.2, own, shared)


def case(kind: str) -> tuple[Encoder, PyTree]:
    spec = EnvSpec("test", OBSERVATIONS["image" if kind == "atari" else kind], ActionSpec((3,)), 10)
    rng = np.random.default_rng(0)
    config = small_network() if kind != "atari" else NetworkConfig(encoder="atari", embedding_size=8)
    encoder = make_encoder(config, spec, jax.random.key(0))
    return encoder, jax.tree.map(lambda like: observations_like(like, rng), spec.observation)


def spread(embedding: Any) -> float:
    unit = np.asarray(embedding) / np.linalg.norm(embedding, axis=-1, keepdims=True)
    return 1.0 - float(np.sum(np.square(unit.mean(axis=0))))


def layer_outputs(encoder: Encoder, observation: PyTree) -> list[np.ndarray]:
    """What each layer that can be centred makes of the observations."""
    outputs: list[np.ndarray] = []

    class Listening:
        def __init__(self, layer: Any) -> None:
            self.layer = layer

        def __call__(self, x: Any) -> Any:
            outputs.append(np.asarray(self.layer(x)))
            return self.layer(x)

    def is_layer(node: object) -> bool:
        return isinstance(node, Centerable)

    def listen(node: Any) -> Any:
        return Listening(node) if is_layer(node) else node

    with cpu.plain_layers():
        jax.tree.map(listen, encoder, is_leaf=is_layer)(observation)
    return outputs


def channel_means(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1]).mean(axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_zero_on_average_and_embeddings_are_spread(kind: str) -> None:
    encoder, observation = case(kind)
    moved = centered(encoder, observation)
    outputs = layer_outputs(moved, observation)
    assert len(outputs) >= 2
    for output in outputs:
        np.testing.assert_allclose(channel_means(output), 0.0, atol=1e-4 * max(1.0, float(np.abs(output).max())))
    before, after = spread(encoder(observation)), spread(moved(observation))
    assert before < 0.8 < after


@pytest.mark.parametrize("kind", KINDS)
def test_weights_stay_as_they_are(kind: str) -> None:
    encoder, observation = case(kind)
    for before, after in zip(jax.tree.leaves(encoder), jax.tree.leaves(centered(encoder, observation)), strict=True):
        assert before.shape == after.shape
        if before.ndim in (2, 4):  # matrices, tables and kernels
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("kind", ["grid", "atari"])
def test_compiled_it_gives_the_same(kind: str) -> None:
    encoder, observation = case(kind)
    eager, compiled = centered(encoder, observation), jax.jit(centered)(encoder, observation)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), eager, compiled)


def test_one_more_time_changes_nothing() -> None:
    encoder, observation = case("grid")
    once = centered(encoder, observation)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), once, centered(once, observation))


def test_all_encoders_of_a_tree_are_centered_and_nothing_else() -> None:
    encoder, observation = case("grid")
    head = Linear(3, 4, jax.random.key(1))
    tree = with_centered_encoders({"encoder": encoder, "head": head}, observation)
    np.testing.assert_array_equal(tree["head"].bias, head.bias)
    jax.tree.map(np.testing.assert_array_equal, tree["encoder"], centered(encoder, observation))


@pytest.mark.parametrize(
    "layer",
    [
        Linear(6, 4, jax.random.key(0)),
        Linear(6, 4, jax.random.key(0), use_bias=False),
        LayerNorm(6),
        GroupNorm(6),
        Conv(6, 4, jax.random.key(0)),
        Center((5, 4, 6)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_layer_takes_off_the_mean_of_what_it_makes(layer: Any) -> None:
    inputs = 3.0 + np.random.default_rng(0).normal(size=(7, 5, 4, 6)).astype(np.float32)
    before, after = np.asarray(layer(inputs)), np.asarray(layer.centered(inputs)(inputs))
    if isinstance(layer, Linear) and layer.bias is None:
        np.testing.assert_array_equal(before, after)
    elif isinstance(layer, Center):
        np.testing.assert_allclose(after, inputs - inputs.mean(axis=0), atol=1e-5)
    else:
        np.testing.assert_allclose(after, before - channel_means(before), atol=1e-4)
