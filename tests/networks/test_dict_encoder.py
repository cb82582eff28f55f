"""The encoder of several entries: against NumPy, and each entry read by its own part."""

from typing import Any

import jax
import numpy as np
import pytest

from builders import call, make, numpy_linear, numpy_mlp
from byol_explore.networks.dict_encoder import DictEncoder, is_image
from byol_explore.networks.encoders import AtariEncoder, VectorEncoder

SPEC = {
    "mind": jax.ShapeDtypeStruct((3,), np.float32),
    "eye": jax.ShapeDtypeStruct((9, 6, 3), np.uint8),
    "arm/0": jax.ShapeDtypeStruct((2, 2), np.int32),
    "flag": jax.ShapeDtypeStruct((), np.bool_),
}


def make_encoder(image: Any = AtariEncoder) -> DictEncoder:
    return make(lambda key: DictEncoder(SPEC, (10,), 8, key, image=image))


def random_entries(batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2, (batch, *like.shape)).astype(like.dtype) for name, like in SPEC.items()}


def test_outputs_equal_numpy() -> None:
    """Entries in the order of their names, whatever order they come in."""
    encoder, entries = make_encoder(), random_entries(5)
    vectors = {
        name: numpy_mlp(encoder.entries[name].mlp, entries[name].reshape(5, -1)) for name in SPEC if name != "eye"
    }
    eye = np.asarray(call(encoder.entries["eye"], entries["eye"]), np.float64)
    joined = np.concatenate([vectors["arm/0"], eye, vectors["flag"], vectors["mind"]], axis=-1)
    expected = numpy_linear(encoder.linear, np.maximum(joined, 0.0))
    assert expected.shape == (5, 8)
    np.testing.assert_allclose(call(encoder, entries), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(call(encoder, dict(reversed(entries.items()))), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(SPEC))
def test_every_entry_reaches_the_embedding(name: str) -> None:
    encoder, entries = make_encoder(), random_entries(4)
    changed = {**entries, name: (1 - entries[name].astype(np.int32)).astype(entries[name].dtype)}
    assert np.all(np.any(np.asarray(call(encoder, entries)) != np.asarray(call(encoder, changed)), axis=-1))


def test_the_factory_makes_encoders_of_images_only() -> None:
    asked = []

    def image(shape: tuple[int, int, int], size: int, key: jax.Array) -> VectorEncoder:
        asked.append((shape, size))
        return VectorEncoder(9 * 6 * 3, (), size, key)

    encoder = make_encoder(image)
    assert asked == [((9, 6, 3), 8)]
    assert {name: type(entry) for name, entry in encoder.entries.items()} == dict.fromkeys(SPEC, VectorEncoder)
    assert [name for name, like in SPEC.items() if is_image(like)] == ["eye"]


def test_entries_of_one_shape_start_differently() -> None:
    spec = {"a": SPEC["mind"], "b": SPEC["mind"]}
    encoder = DictEncoder(spec, (), 4, jax.random.key(0), image=AtariEncoder)
    first, second = (np.asarray(encoder.entries[name].mlp.layers[0].weight) for name in "ab")
    assert np.all(first != second)
