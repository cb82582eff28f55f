"""Encoders: the paper's shapes and parameter counts, and their outputs against NumPy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import (
    call,
    make,
    numpy_conv,
    numpy_linear,
    numpy_max_pool,
    numpy_mlp,
    numpy_standardize,
    parameter_count,
)
from byol_explore.networks.encoders import GridEncoder, ImageEncoder, VectorEncoder
from byol_explore.networks.paper_encoders import AtariEncoder, HardEightEncoder, ResidualUnit, ResNet
from byol_explore.spaces import Grid

# A unit has a convolution and two residual blocks of two convolutions each, 3 x 3 with bias.
UNITS = [(1, 16), (16, 32), (32, 32)]


def conv_parameters(inputs: int, outputs: int) -> int:
    return 3 * 3 * inputs * outputs + outputs


def unit_parameters(inputs: int, channels: int) -> int:
    return conv_parameters(inputs, channels) + 4 * conv_parameters(channels, channels)


def bytes_image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def shapes(encoder: Any, observation: Any) -> tuple[int, ...]:
    return jax.eval_shape(lambda e, o: e(o), encoder, observation).shape


def numpy_norm(norm: Any, x: np.ndarray) -> np.ndarray:
    return numpy_standardize(x) * np.asarray(norm.scale) + np.asarray(norm.bias)


def numpy_resnet(resnet: ResNet, image: np.ndarray) -> np.ndarray:
    """One image of bytes to flat features, as appendix A.1 tells it."""
    x = (image - np.asarray(resnet.center.mean)) / 255.0
    for unit in resnet.units:
        x = numpy_max_pool(numpy_conv(unit.conv, x))
        for block in unit.blocks:
            inner = numpy_conv(block.first, np.maximum(x, 0.0))
            x = x + numpy_conv(block.second, np.maximum(inner, 0.0))
        x = x if unit.norm is None else numpy_norm(unit.norm, x)
    return np.maximum(x, 0.0).reshape(-1)


def test_atari_parameter_count_and_shapes() -> None:
    """84 x 84 is halved to 42, 21 and 11, so the linear layer reads 11 * 11 * 32 features."""
    encoder = jax.eval_shape(lambda key: AtariEncoder((84, 84, 1), 512, key), jax.random.key(0))
    convolutions = sum(unit_parameters(*unit) for unit in UNITS)
    norms = 2 * (16 + 32 + 32)
    linear = 11 * 11 * 32 * 512 + 512
    assert parameter_count(encoder) == convolutions + norms + linear + 84 * 84
    assert convolutions + norms + linear == 2_080_448  # trained; the mean image is not
    frames = jax.ShapeDtypeStruct((5, 84, 84, 1), np.uint8)
    assert shapes(encoder.resnet, frames) == (5, 11 * 11 * 32)
    assert shapes(encoder, frames) == (5, 512)


def test_hard_eight_parameter_count_and_shapes() -> None:
    """72 x 96 is halved to 9 x 12."""
    encoder = jax.eval_shape(lambda key: HardEightEncoder((72, 96, 3), 256, key), jax.random.key(0))
    convolutions = unit_parameters(3, 16) + unit_parameters(16, 32) + unit_parameters(32, 32)
    linears = (9 * 12 * 32 * 1024 + 1024) + (1024 * 256 + 256)
    assert parameter_count(encoder) == convolutions + linears + 2 * 1024 + 72 * 96 * 3  # and the mean image
    frames = jax.ShapeDtypeStruct((5, 72, 96, 3), np.uint8)
    assert shapes(encoder.resnet, frames) == (5, 9 * 12 * 32)
    assert shapes(encoder, frames) == (5, 256)


@pytest.mark.parametrize("shape", [(84, 84, 1), (72, 96, 3), (9, 7, 1), (1, 2, 3)])
def test_feature_count_is_that_of_the_stack(shape: tuple[int, int, int]) -> None:
    resnet = jax.eval_shape(lambda key: ResNet(shape, key, normalize=False), jax.random.key(0))
    assert ResNet.features(shape) == shapes(resnet, jax.ShapeDtypeStruct((1, *shape), np.uint8))[1]


def test_only_atari_has_a_norm_at_the_end_of_each_unit() -> None:
    def both(key: jax.Array) -> tuple[AtariEncoder, HardEightEncoder]:
        return AtariEncoder((9, 9, 1), 8, key), HardEightEncoder((9, 9, 3), 8, key)

    atari, hard_eight = jax.eval_shape(both, jax.random.key(0))
    assert [unit.norm.scale.shape for unit in atari.resnet.units] == [(16,), (32,), (32,)]
    assert [unit.norm for unit in hard_eight.resnet.units] == [None] * 3


def test_the_norm_is_the_last_thing_a_unit_does() -> None:
    unit = make(lambda key: ResidualUnit(1, 4, key, normalize=True))
    out = np.asarray(call(unit, 10.0 * np.random.default_rng(0).normal(size=(2, 6, 5, 1)).astype(np.float32)))
    standard = (out - np.asarray(unit.norm.bias)) / np.asarray(unit.norm.scale)
    np.testing.assert_allclose(standard.mean(axis=(1, 2, 3)), 0.0, atol=1e-4)
    np.testing.assert_allclose(standard.std(axis=(1, 2, 3)), 1.0, atol=1e-3)


def test_atari_encoder_equals_numpy() -> None:
    encoder = make(lambda key: AtariEncoder((9, 6, 1), 8, key))
    frames = bytes_image(2, 9, 6, 1)
    out = np.asarray(call(encoder, frames))
    for index in range(2):
        expected = numpy_linear(encoder.linear, numpy_resnet(encoder.resnet, frames[index]))
        np.testing.assert_allclose(out[index], expected, rtol=1e-3, atol=1e-4)


def test_hard_eight_encoder_equals_numpy() -> None:
    encoder = make(lambda key: HardEightEncoder((9, 6, 3), 8, key, hidden=16))
    frames = bytes_image(2, 9, 6, 3)
    out = np.asarray(call(encoder, frames))
    for index in range(2):
        hidden = numpy_linear(encoder.hidden, numpy_resnet(encoder.resnet, frames[index]))
        expected = numpy_linear(encoder.linear, np.maximum(numpy_norm(encoder.norm, hidden), 0.0))
        np.testing.assert_allclose(out[index], expected, rtol=1e-3, atol=1e-4)


def slow_image(encoder: ImageEncoder, image: np.ndarray) -> np.ndarray:
    """One image: zeros on the right and below until squares of 12 fit, then square by square."""
    height, width = (-(-side // 12) for side in image.shape[:2])
    padded = np.zeros((height * 12, width * 12, image.shape[2]))
    padded[: image.shape[0], : image.shape[1]] = image
    mean, squares = np.asarray(encoder.center.mean), []
    for top, left in np.ndindex(height, width):
        square = padded[12 * top : 12 * top + 12, 12 * left : 12 * left + 12]
        patches = [
            (square[6 * y : 6 * y + 6, 6 * x : 6 * x + 6].reshape(-1) - mean[2 * top + y, 2 * left + x]) / 255.0
            for y in range(2)
            for x in range(2)
        ]
        inner = [np.maximum(numpy_linear(encoder.patches, patch), 0.0) for patch in patches]
        squares.append(np.maximum(numpy_linear(encoder.groups, np.concatenate(inner)), 0.0))
    return numpy_linear(encoder.linear, numpy_norm(encoder.norm, np.concatenate(squares)))


@pytest.mark.parametrize("shape", [(24, 36, 1), (25, 12, 3), (13, 23, 2), (5, 7, 1)])
def test_image_encoder_equals_numpy(shape: tuple[int, int, int]) -> None:
    """Images of whole squares of 12 pixels, and those that need a border."""
    encoder = make(lambda key: ImageEncoder(shape, 8, key, widths=(5, 6)))
    mean = np.random.default_rng(1).uniform(0, 255, encoder.center.mean.shape).astype(np.float32)
    encoder = eqx.tree_at(lambda e: e.center.mean, encoder, jnp.asarray(mean))
    frames = bytes_image(2, *shape)
    out = np.asarray(call(encoder, frames))
    assert out.shape == (2, 8)
    for index in range(2):
        np.testing.assert_allclose(out[index], slow_image(encoder, frames[index]), rtol=1e-3, atol=1e-4)


def test_image_encoder_of_atari_needs_no_border() -> None:
    """84 x 84 pixels are 7 x 7 squares of 12."""
    encoder = jax.eval_shape(lambda key: ImageEncoder((84, 84, 1), 128, key), jax.random.key(0))
    assert encoder.padding == ((0, 0), (0, 0), (0, 0), (0, 0))
    features = 7 * 7 * 64
    linears = (36 * 32 + 32) + (4 * 32 * 64 + 64) + (features * 128 + 128)
    assert parameter_count(encoder) == linears + 2 * features + 84 * 84  # and the mean image, not trained
    assert shapes(encoder, jax.ShapeDtypeStruct((5, 84, 84, 1), np.uint8)) == (5, 128)


@pytest.mark.parametrize("symbols", [(20, 30), (7,), (11, 6, 4), (200, 40)])
def test_grid_encoder_equals_a_one_hot_product_per_channel(symbols: tuple[int, ...]) -> None:
    """With more combinations than a byte can number, and more than are looked up as one."""
    encoder = make(lambda key: GridEncoder(Grid(4, 3, symbols), (10,), 8, key, width=5))
    grids = np.random.default_rng(0).integers(0, symbols, (9, 4, 3, len(symbols))).astype(np.uint8)
    cells = np.zeros((9, 4, 3, 5))
    for channel, (count, table) in enumerate(zip(symbols, encoder.tables, strict=True)):
        cells += np.eye(count)[grids[..., channel]] @ np.asarray(table)
    expected = numpy_mlp(encoder.mlp, cells.reshape(9, 4 * 3 * 5))
    np.testing.assert_allclose(call(encoder, grids), expected, rtol=1e-4, atol=1e-5)


def test_vector_encoder_is_an_mlp_on_floats() -> None:
    encoder = make(lambda key: VectorEncoder(6, (10,), 8, key))
    x = np.random.default_rng(0).integers(0, 9, (5, 2, 3))
    expected = numpy_mlp(encoder.mlp, x.reshape(5, 6))
    np.testing.assert_allclose(call(encoder, x), expected, rtol=1e-4, atol=1e-4)


def test_image_encoder_takes_off_its_center_and_does_not_train_it() -> None:
    encoder = ImageEncoder((12, 12, 1), 5, jax.random.key(0))
    images = np.random.default_rng(0).integers(10, 200, (3, 12, 12, 1)).astype(np.uint8)
    moved = eqx.tree_at(lambda e: e.center.mean, encoder, jnp.full((2, 2, 36), 10.0))
    np.testing.assert_allclose(moved(jnp.asarray(images)), encoder(jnp.asarray(images - 10)), rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda e: jnp.sum(e(jnp.asarray(images)) ** 2))(moved)
    assert not np.any(gradient.center.mean)
    assert np.any(gradient.patches.weight)
