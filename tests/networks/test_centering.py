"""A centred encoder: every layer is zero on average, embeddings are spread, and nothing else changes."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from builders import OBSERVATIONS, network_of, random_array, small_config, small_network
from byol_explore.envs.base import EnvSpec
from byol_explore.learner import Learner
from byol_explore.networks import cpu
from byol_explore.networks.assembly import Representation
from byol_explore.networks.centering import Centerable, centered, with_centered_encoders
from byol_explore.networks.choosing import make_encoder
from byol_explore.networks.cores import GRU
from byol_explore.networks.inputs import ActionInputs
from byol_explore.networks.layers import Center, Conv, GroupNorm, LayerNorm, Linear
from byol_explore.networks.words import WordReader
from byol_explore.spaces import ActionSpec, Kind, Vector
from byol_explore.types import Encoder, PyTree

KINDS = ("grid", "vector", "image", "atari", "tokens", "hard-eight", "dict", "minigrid", "atari dict")
COUNT = 64


def observations_like(like: Kind, rng: np.random.Generator) -> np.ndarray:
    """That share a lot: most numbers are the same in all observations, a few differ."""
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
    """What each layer that can be centred makes of the observations."""
    outputs: list[np.ndarray] = []

    class Listening:
        def __init__(self, layer: Any) -> None:
            self.layer = layer

        def __call__(self, x: Any) -> Any:
            if not isinstance(self.layer, WordReader):  # which is not centred, but the layer behind it
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
    assert len(outputs) >= (1 if kind == "tokens" else 2)
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


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_deviation_only_the_last_layer_is_scaled(kind: str) -> None:
    encoder, observation = case(kind)
    plain, scaled = centered(encoder, observation), centered(encoder, observation, 4.0)
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


def test_a_number_that_never_changes_is_not_blown_up() -> None:
    encoder, observation = case("grid")
    alike = np.repeat(observation[:1], COUNT, axis=0)
    for leaf in jax.tree.leaves(centered(encoder, alike, 4.0)):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize(
    ("kind", "deviation"), [("atari", 16.0), ("atari dict", 16.0), ("image", None), ("dict", None)]
)
def test_the_residual_encoder_starts_large_if_asked_and_its_core_sees_unit_deviations(
    kind: str, deviation: float | None
) -> None:
    encoder, observation = case(kind)
    inputs = ActionInputs(8, 18, ActionSpec((3,)), jax.random.key(1), action_size=5, bins=4)
    tree = {"whole": Representation(encoder, inputs, GRU(6, jax.random.key(2))), "alone": encoder}
    plain, scaled = (with_centered_encoders(tree, observation, scaled=flag) for flag in (False, True))
    for start, expected in ((plain, None), (scaled, deviation)):
        for found in (start["whole"].encoder, start["alone"]):
            jax.tree.map(np.testing.assert_array_equal, found, centered(encoder, observation, expected))
    jax.tree.map(np.testing.assert_array_equal, plain["whole"].inputs, inputs)
    weights = [representation.inputs.project_embedding.weight for representation in (plain["whole"], scaled["whole"])]
    np.testing.assert_allclose(weights[0], weights[1] * (deviation or 1.0), rtol=1e-6)


@pytest.mark.parametrize(("method", "is_large"), [("byol-explore", True), ("rnd", False)])
def test_only_for_a_loss_of_directions_embeddings_start_large(method: str, is_large: bool) -> None:
    """RND's errors are distances: a start as large would make them, and the way to learn, as much longer."""
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
