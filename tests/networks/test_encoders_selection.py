"""Which encoder reads what: by kind, by name, and in one line what does not fit."""

import dataclasses
from typing import Any, Self

import jax
import numpy as np
import pytest

from builders import SENSES, call, make, make_spec, network_of, random_observation, small_network
from byol_explore.config.sections import NetworkConfig
from byol_explore.envs.interface import EnvSpec
from byol_explore.errors import UserError
from byol_explore.networks.encoders import (
    DictEncoder,
    GridEncoder,
    ImageEncoder,
    ObservationEncoder,
    VectorEncoder,
    core_input_entries,
    encoded_entries,
    make_encoder,
    select_encoders,
)
from byol_explore.networks.layers import Linear
from byol_explore.networks.paper_encoders import AtariEncoder, HardEightEncoder, TokensEncoder
from byol_explore.registry import ENCODERS
from byol_explore.spaces import Vector


class Mine(ObservationEncoder):
    """A user's encoder outside the package."""

    supported_spaces = (Vector,)

    linear: Linear

    @classmethod
    def make(cls, spec: Vector, network: NetworkConfig, size: int, key: jax.Array) -> Self:
        return cls(Linear(spec.size, size, key))

    def __call__(self, observation: Any) -> Any:
        return self.linear(observation)


class Wide(Mine):
    """Makes embeddings of another size than it is told to."""

    @classmethod
    def make(cls, spec: Vector, network: NetworkConfig, size: int, key: jax.Array) -> Self:
        return cls(Linear(spec.size, size + 1, key))


def with_encoder(name: str, observation: str = "grid") -> NetworkConfig:
    return dataclasses.replace(network_of(observation), encoder=name)


@pytest.mark.parametrize(
    ("observation", "kind"),
    [
        ("grid", GridEncoder),
        ("vector", VectorEncoder),
        ("image", ImageEncoder),
        ("tokens", TokensEncoder),
        ("hard-eight", DictEncoder),
        ("dict", DictEncoder),
        ("minigrid", DictEncoder),
    ],
)
def test_every_kind_has_a_usual_encoder(observation: str, kind: type) -> None:
    spec, network = make_spec(observation), network_of(observation)
    encoder = make(lambda key: make_encoder(network, spec, key))
    assert type(encoder) is kind
    frames = random_observation(np.random.default_rng(0), spec, (2,))
    assert jax.eval_shape(encoder, frames).shape == (2, 8)
    wider = make(lambda key: make_encoder(network, spec, key, 12))
    assert jax.eval_shape(wider, frames).shape == (2, 12)


@pytest.mark.parametrize(
    ("observation", "name", "kind"),
    [
        ("image", "atari", AtariEncoder),
        ("image", "hard-eight", HardEightEncoder),
        ("image", "vector", VectorEncoder),
        ("grid", "vector", VectorEncoder),
        ("vector", f"{__name__}:Mine", Mine),
    ],
)
def test_other_encoders_must_be_named(observation: str, name: str, kind: type) -> None:
    encoder = make(lambda key: make_encoder(with_encoder(name), make_spec(observation), key))
    assert type(encoder).__name__ == kind.__name__
    frames = random_observation(np.random.default_rng(0), make_spec(observation), (2,))
    assert call(encoder, frames).shape == (2, 8)


def test_the_named_encoder_reads_the_entries_it_supports() -> None:
    spec = make_spec("dict")
    assert select_encoders(with_encoder("atari"), spec) == {"arm/joints": "vector", "rgb": "atari"}
    assert select_encoders(with_encoder("vector"), spec) == {"arm/joints": "vector", "rgb": "vector"}
    assert select_encoders(small_network(), spec) == {"arm/joints": "vector", "rgb": "image"}
    encoder = make(lambda key: make_encoder(with_encoder("atari"), spec, key))
    assert type(encoder.entries["rgb"]) is AtariEncoder


@pytest.mark.parametrize(
    ("observation", "encoder", "words"),
    [
        ("vector", "atari", r"'atari' does not fit the observations of 'test' \(Vector\): choose from: vector$"),
        ("dict", "tokens", r"\(Image, Vector\): choose from: vector, image, atari, hard-eight$"),
        ("grid", "tokens", r"\(Grid\): choose from: grid, vector$"),
        ("tokens", "vector", r"\(Tokens\): choose from: tokens$"),
        ("hard-eight", "tokens", r"\(Image\): choose from: vector, image, atari, hard-eight$"),
        ("grid", "eyes", r"'eyes'.*grid, vector, image, atari, hard-eight, tokens"),
        ("vector", f"{__name__}:Wide", r"Wide' returns \(2, 9\) for two observations: it must be \(2, 8\)$"),
        ("grid", "byol_explore.spaces:Vector", r"is no subclass of byol_explore.networks.encoders.ObservationEncoder"),
    ],
)
def test_an_encoder_that_does_not_fit_is_named(observation: str, encoder: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        make_encoder(with_encoder(encoder, observation), make_spec(observation), jax.random.key(0))
    assert "\n" not in str(error.value)


def test_all_encoders_list_their_spaces() -> None:
    for name in ENCODERS.names():
        assert issubclass(ENCODERS.get(name), ObservationEncoder)
        assert ENCODERS.get(name).supported_spaces, name


def test_an_unknown_space_is_refused() -> None:
    spec = make_spec()._replace(observation=jax.ShapeDtypeStruct((4, 3, 2), np.uint8))
    with pytest.raises(UserError, match=r"observation space of 'test' is ShapeDtypeStruct.*Vector, Grid or Tokens"):
        make_encoder(small_network(), spec, jax.random.key(0))


def test_entries_are_encoded_or_read_by_the_core_alone() -> None:
    spec, network = make_spec("hard-eight"), network_of("hard-eight")
    assert list(encoded_entries(network, spec)) == ["rgb"]
    assert tuple(core_input_entries(network, spec)) == SENSES


@pytest.mark.parametrize(
    ("observation", "names", "words"),
    [
        ("hard-eight", ("rgb",), r"core_inputs 'rgb' is Image\(.*: it must be a Vector or Tokens"),
        ("minigrid", ("image",), r"'image' is Grid\("),
        ("hard-eight", ("hand",), "unknown entry of network.core_inputs 'hand'; choose from: hand_force"),
        ("vector", ("joints",), "unknown entry of network.core_inputs 'joints'"),
        ("vector", ("",), "unknown entry of network.core_inputs ''"),
    ],
)
def test_unsupported_core_inputs_are_named(observation: str, names: tuple[str, ...], words: str) -> None:
    network = dataclasses.replace(small_network(), core_inputs=names)
    with pytest.raises(UserError, match=words):
        make_encoder(network, make_spec(observation), jax.random.key(0))


def test_something_must_be_left_to_predict() -> None:
    spec: EnvSpec = make_spec()._replace(observation={"a": Vector(2), "b": Vector(3)})
    network = dataclasses.replace(small_network(), core_inputs=("a", "b"))
    with pytest.raises(UserError, match="core_inputs a, b leaves no entry"):
        make_encoder(network, spec, jax.random.key(0))
