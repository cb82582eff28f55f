"""A centred encoder: every layer is zero on average, embeddings are spread, and nothing else changes."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from builders import OBSERVATIONS, make_spec, network_of, random_array, small_config, small_network
from byol_explore.agent.learner import Learner
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import UserError
from byol_explore.networks import cpu_kernels
from byol_explore.networks.centering import SupportsCentering, center_encoder, center_encoders
from byol_explore.networks.core_inputs import CoreInputs
from byol_explore.networks.cores import GRU
from byol_explore.networks.encoders import make_encoder
from byol_explore.networks.layers import Conv, GroupNorm, LayerNorm, Linear, SubtractMean
from byol_explore.networks.paper_encoders import InstructionEncoder
from byol_explore.networks.representation import Representation
from byol_explore.spaces import ActionSpec, ArraySpace, Vector
from byol_explore.types import Encoder, PyTree

KINDS = ("grid", "vector", "image", "atari", "tokens", "hard-eight", "dict", "minigrid", "atari dict")
COUNT = 64


def observations_like(like: ArraySpace, rng: np.random.Generator) -> np.ndarray:
    """Draw observations that share most numbers and differ in a few."""
    shared, own = (5.0 * random_array(rng, lead, like) if isinstance(like, Vector) else random_array(rng, lead, like)
                   for lead in ((), (COUNT,)))  # fmt: skip
    return np.where(rng.random((COUNT, *like.shape)) < 0.2, own, shared)


def case(kind: str) -> tuple[Encoder, PyTree]:
    observation = {"atari": "image", "atari dict": "dict"}.get(kind, kind)
    spec = EnvSpec("test", OBSERVATIONS[observation], ActionSpec((3,)), 10)
    rng = np.random.default_rng(0)
    config = network_of(observation)
    config = dataclasses.replace(config, encoder="atari") if kind.startswith("atari") else config
    encoder = make_encoder(config, spec, jax.random.key(0))
    return encoder, jax.tree.map(lambda like: observations_like(like, rng), spec.observation)


def spread(embedding: Any) -> float:
    unit = np.asarray(embedding) / np.linalg.norm(embedding, axis=-1, keepdims=True)
    return 1.0 - float(np.sum(np.square(unit.mean(axis=0))))


def layer_outputs(encoder: Encoder, observation: PyTree) -> list[np.ndarray]:
    """Return the outputs of each layer that supports centring."""
    outputs: list[np.ndarray] = []

    class Listening:
        def __init__(self, layer: Any) -> None:
            self.layer = layer

        def __call__(self, x: Any) -> Any:
            if not isinstance(self.layer, InstructionEncoder):  # which is not centred, but the layer behind it
                outputs.append(np.asarray(self.layer(x)))
            return self.layer(x)

    def is_layer(node: object) -> bool:
        return isinstance(node, SupportsCentering)

    def listen(node: Any) -> Any:
        return Listening(node) if is_layer(node) else node

    with cpu_kernels.disable_cpu_kernels():
        jax.tree.map(listen, encoder, is_leaf=is_layer)(observation)
    return outputs


def channel_means(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1]).mean(axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_zero_on_average_and_embeddings_are_spread(kind: str) -> None:
    encoder, observation = case(kind)
    moved = center_encoder(encoder, observation)
    outputs = layer_outputs(moved, observation)
    assert len(outputs) >= (1 if kind == "tokens" else 2)
    for output in outputs:
        np.testing.assert_allclose(channel_means(output), 0.0, atol=1e-4 * max(1.0, float(np.abs(output).max())))
    before, after = spread(encoder(observation)), spread(moved(observation))
    assert before < 0.8 < after


@pytest.mark.parametrize("kind", KINDS)
def test_weights_stay_as_they_are(kind: str) -> None:
    encoder, observation = case(kind)
    for before, after in zip(
        jax.tree.leaves(encoder), jax.tree.leaves(center_encoder(encoder, observation)), strict=True
    ):
        assert before.shape == after.shape
        if before.ndim in (2, 4):  # matrices, tables and kernels
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("kind", ["grid", "atari"])
def test_compiled_it_gives_the_same(kind: str) -> None:
    encoder, observation = case(kind)
    eager, compiled = center_encoder(encoder, observation), jax.jit(center_encoder)(encoder, observation)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), eager, compiled)


def test_centring_twice_equals_centring_once() -> None:
    encoder, observation = case("grid")
    once = center_encoder(encoder, observation)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), once, center_encoder(once, observation))


def test_only_the_encoders_of_a_tree_are_centered() -> None:
    encoder, observation = case("grid")
    head = Linear(3, 4, jax.random.key(1))
    tree = center_encoders({"encoder": encoder, "head": head}, observation)
    np.testing.assert_array_equal(tree["head"].bias, head.bias)
    jax.tree.map(np.testing.assert_array_equal, tree["encoder"], center_encoder(encoder, observation))


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_deviation_only_the_last_layer_is_scaled(kind: str) -> None:
    encoder, observation = case(kind)
    plain, scaled = center_encoder(encoder, observation), center_encoder(encoder, observation, 4.0)
    embedding = np.asarray(scaled(observation))
    np.testing.assert_allclose(embedding.std(axis=0), 4.0, rtol=1e-3)
    np.testing.assert_allclose(embedding.mean(axis=0), 0.0, atol=1e-2)
    changed = [
        before.shape
        for before, after in zip(jax.tree.leaves(plain), jax.tree.leaves(scaled), strict=True)
        if not np.array_equal(before, after)
    ]
    assert len(changed) == 2  # its weights and its biases
    assert {shape[-1] for shape in changed} == {embedding.shape[1]}


class ImageOfMeans(eqx.Module):
    """An encoder of a user, whose last layer can be centred and not scaled."""

    layer: SubtractMean

    def __call__(self, observation: Any) -> Any:
        return self.layer(observation)


def test_last_layer_that_cannot_be_scaled_is_named() -> None:
    observation = np.random.default_rng(0).normal(size=(COUNT, 4)).astype(np.float32)
    encoder = ImageOfMeans(SubtractMean((4,)))
    center_encoder(encoder, observation)
    with pytest.raises(UserError, match="SubtractMean, the last layer of ImageOfMeans, has no method scale_outputs"):
        center_encoder(encoder, observation, 4.0)


def test_a_number_that_never_changes_is_not_blown_up() -> None:
    encoder, observation = case("grid")
    alike = np.repeat(observation[:1], COUNT, axis=0)
    for leaf in jax.tree.leaves(center_encoder(encoder, alike, 4.0)):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize(
    ("kind", "deviation"), [("atari", 16.0), ("atari dict", 16.0), ("image", None), ("dict", None)]
)
def test_scaled_residual_encoder_starts_large_and_its_core_sees_unit_std(kind: str, deviation: float | None) -> None:
    encoder, observation = case(kind)
    inputs = CoreInputs(small_network(), make_spec("vector"), 8, 18, jax.random.key(1))
    tree = {"whole": Representation(encoder, inputs, GRU(6, jax.random.key(2))), "alone": encoder}
    plain, scaled = (center_encoders(tree, observation, scaled=flag) for flag in (False, True))
    for start, expected in ((plain, None), (scaled, deviation)):
        for found in (start["whole"].encoder, start["alone"]):
            jax.tree.map(np.testing.assert_array_equal, found, center_encoder(encoder, observation, expected))
    jax.tree.map(np.testing.assert_array_equal, plain["whole"].inputs, inputs)
    weights = [representation.inputs.project.weight for representation in (plain["whole"], scaled["whole"])]
    np.testing.assert_allclose(weights[0], weights[1] * (deviation or 1.0), rtol=1e-6)


@pytest.mark.parametrize(("method", "is_large"), [("byol-explore", True), ("rnd", False)])
def test_only_for_a_loss_of_directions_embeddings_start_large(method: str, is_large: bool) -> None:
    """RND's errors are distances: large embeddings would scale them, and the distance to learn, by the same factor."""
    _, observation = case("atari")
    network = dataclasses.replace(small_network(), encoder="atari")
    config = dataclasses.replace(small_config(method), network=network)
    spec = EnvSpec("test", OBSERVATIONS["image"], ActionSpec((3,)), 10)
    online = Learner(config, spec, 1).init(jax.random.key(0), observation).online
    found = np.asarray(online.actor.representation.encoder(observation)).std(axis=0)
    assert np.allclose(found, 16.0, rtol=1e-2) == is_large


@pytest.mark.parametrize(
    "layer",
    [
        Linear(6, 4, jax.random.key(0)),
        Linear(6, 4, jax.random.key(0), use_bias=False),
        LayerNorm(6),
        GroupNorm(6),
        Conv(6, 4, jax.random.key(0)),
        SubtractMean((5, 4, 6)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_layer_subtracts_the_mean_of_its_outputs(layer: Any) -> None:
    inputs = 3.0 + np.random.default_rng(0).normal(size=(7, 5, 4, 6)).astype(np.float32)
    before, after = np.asarray(layer(inputs)), np.asarray(layer.centered(inputs)(inputs))
    if isinstance(layer, Linear) and layer.bias is None:
        np.testing.assert_array_equal(before, after)
    elif isinstance(layer, SubtractMean):
        np.testing.assert_allclose(after, inputs - inputs.mean(axis=0), atol=1e-5)
    else:
        np.testing.assert_allclose(after, before - channel_means(before), atol=1e-4)
