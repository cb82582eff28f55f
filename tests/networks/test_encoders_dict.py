"""The encoder of several entries: against NumPy, and each entry read by its own part."""

import jax
import numpy as np
import pytest

from builders import call, make, make_spec, network_of, numpy_linear, numpy_mlp, random_observation, small_network
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.encoders import DictEncoder, make_encoder
from byol_explore.spaces import ActionSpec, Grid, Image, Tokens, Vector

SPEC = EnvSpec(
    "test",
    {"mind": Vector(3), "eye": Image(9, 6, 3), "arm/0": Vector(4), "map": Grid(3, 2, (5, 4)), "task": Tokens(3, 7)},
    ActionSpec((3,)),
    10,
)


def made() -> DictEncoder:
    return make(lambda key: make_encoder(small_network(), SPEC, key))


def random_entries(batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    return jax.tree.map(np.asarray, random_observation(np.random.default_rng(seed), SPEC, (batch,)))


def test_outputs_equal_numpy() -> None:
    """Entries in the order of their names, whatever order they come in."""
    encoder, entries = made(), random_entries(5)
    parts = {name: np.asarray(call(encoder.entries[name], entries[name]), np.float64) for name in entries}
    for name in ("arm/0", "mind"):
        np.testing.assert_allclose(
            parts[name], numpy_mlp(encoder.entries[name].mlp, entries[name]), rtol=1e-4, atol=1e-5
        )
    joined = np.concatenate([parts[name] for name in ("arm/0", "eye", "map", "mind", "task")], axis=-1)
    expected = numpy_linear(encoder.linear, np.maximum(joined, 0.0))
    assert expected.shape == (5, 8)
    np.testing.assert_allclose(call(encoder, entries), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(call(encoder, dict(reversed(entries.items()))), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(SPEC.observation))
def test_every_entry_reaches_the_embedding(name: str) -> None:
    encoder, entries, others = made(), random_entries(4), random_entries(4, seed=1)
    changed = {**entries, name: others[name]}
    assert np.any(np.asarray(call(encoder, entries)) != np.asarray(call(encoder, changed)))


def test_of_a_single_entry_it_is_that_entrys_encoder() -> None:
    encoder = make(lambda key: make_encoder(network_of("hard-eight"), make_spec("hard-eight"), key))
    entries = random_observation(np.random.default_rng(0), make_spec("hard-eight"), (2,))
    assert encoder.linear is None
    assert list(encoder.entries) == ["rgb"]
    np.testing.assert_array_equal(call(encoder, entries), call(encoder.entries["rgb"], entries["rgb"]))


def test_entries_of_one_shape_start_differently() -> None:
    spec = SPEC._replace(observation={"a": Vector(3), "b": Vector(3)})
    encoder = make_encoder(small_network(), spec, jax.random.key(0))
    assert isinstance(encoder, DictEncoder)
    first, second = (np.asarray(encoder.entries[name].mlp.layers[0].weight) for name in "ab")  # pyright: ignore
    assert np.all(first != second)
