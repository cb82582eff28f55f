"""Layers against NumPy, and their initialisation."""

import jax
import numpy as np
import pytest

from builders import (
    call,
    jit,
    make,
    numpy_conv,
    numpy_linear,
    numpy_max_pool,
    numpy_mlp,
    numpy_standardize,
)
from byol_explore.networks.layers import MLP, Conv, GroupNorm, LayerNorm, Linear, max_pool, truncated_normal

CUT_DEVIATION = 0.8796256610342398  # standard deviation of a unit normal cut at two


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_truncated_normal(sample: jax.Array, fan_in: int) -> None:
    values = np.asarray(sample) * np.sqrt(fan_in)
    assert 1.9 < np.abs(values).max() <= 2.0 + 1e-5
    assert abs(values.mean()) < 0.03
    assert values.std() == pytest.approx(CUT_DEVIATION, rel=0.03)


def test_truncated_normal_is_scaled_by_fan_in_and_cut_at_two_deviations() -> None:
    sample = jit(lambda key: truncated_normal(key, (100, 100), 25))(jax.random.key(0))
    assert_truncated_normal(sample, 25)


def test_linear_starts_from_its_inputs_count_and_zero_bias() -> None:
    layer = jit(lambda key: Linear(16, 625, key))(jax.random.key(1))
    assert_truncated_normal(layer.weight, 16)
    np.testing.assert_array_equal(layer.bias, np.zeros(625))
    assert Linear(2, 3, jax.random.key(0), use_bias=False).bias is None


def test_conv_starts_from_nine_times_its_channels_and_zero_bias() -> None:
    conv = jit(lambda key: Conv(4, 250, key))(jax.random.key(2))
    assert conv.weight.shape == (3, 3, 4, 250)
    assert_truncated_normal(conv.weight, 36)
    np.testing.assert_array_equal(conv.bias, np.zeros(250))


def test_linear_takes_any_leading_axes() -> None:
    layer = make(lambda key: Linear(4, 5, key))
    x = normal(2, 3, 4)
    np.testing.assert_allclose(call(layer, x), numpy_linear(layer, x), rtol=1e-5, atol=1e-5)


def test_mlp_has_relu_between_layers_and_none_after_the_last() -> None:
    mlp = make(lambda key: MLP(4, (6, 5), 3, key))
    x = normal(2, 7, 4)
    expected = numpy_mlp(mlp, x)
    assert [layer.weight.shape for layer in mlp.layers] == [(4, 6), (6, 5), (5, 3)]
    assert expected.min() < 0
    np.testing.assert_allclose(call(mlp, x), expected, rtol=1e-5, atol=1e-5)
    hidden = np.asarray(jit(MLP.hidden)(mlp, x))
    assert hidden.min() == 0
    np.testing.assert_allclose(numpy_linear(mlp.layers[-1], hidden), expected, rtol=1e-5, atol=1e-5)


def test_mlp_scales_only_its_last_layer() -> None:
    def both(key: jax.Array) -> tuple[MLP, MLP]:
        return MLP(4, (6,), 3, key), MLP(4, (6,), 3, key, scale=0.1)

    plain, small = jit(both)(jax.random.key(0))
    assert not np.allclose(plain.layers[0].weight[:, :3], plain.layers[1].weight[:4])
    np.testing.assert_array_equal(plain.layers[0].weight, small.layers[0].weight)
    np.testing.assert_allclose(0.1 * np.asarray(plain.layers[1].weight), small.layers[1].weight, rtol=1e-6)


def test_layer_norm_normalises_the_last_axis() -> None:
    norm = make(lambda key: LayerNorm(6))
    x = 3.0 * normal(2, 4, 6) + 1.0
    out = np.asarray(call(norm, x))
    for index in np.ndindex(2, 4):
        expected = numpy_standardize(x[index]) * np.asarray(norm.scale) + np.asarray(norm.bias)
        np.testing.assert_allclose(out[index], expected, rtol=1e-4, atol=1e-5)


def test_group_norm_normalises_each_image_over_space_and_channels() -> None:
    norm = make(lambda key: GroupNorm(3))
    x = 3.0 * normal(2, 4, 5, 3) + np.asarray([0.0, 5.0, -2.0], np.float32)
    out = np.asarray(call(norm, x))
    for index in range(2):
        expected = numpy_standardize(x[index]) * np.asarray(norm.scale) + np.asarray(norm.bias)
        np.testing.assert_allclose(out[index], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", [LayerNorm(4), GroupNorm(4)])
def test_norms_start_as_plain_standardisation(norm: LayerNorm | GroupNorm) -> None:
    np.testing.assert_array_equal(norm.scale, np.ones(4))
    np.testing.assert_array_equal(norm.bias, np.zeros(4))


def test_conv_is_same_padded_with_stride_one() -> None:
    conv = make(lambda key: Conv(2, 3, key))
    x = normal(2, 4, 5, 2)
    out = np.asarray(call(conv, x))
    assert out.shape == (2, 4, 5, 3)
    for index in range(2):
        np.testing.assert_allclose(out[index], numpy_conv(conv, x[index]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(6, 7), (5, 4), (3, 3)])
def test_max_pool_is_three_wide_with_stride_two(height: int, width: int) -> None:
    x = normal(2, height, width, 3) - 5.0  # all negative: a border of zeros would win
    out = np.asarray(jit(max_pool)(x))
    assert out.shape == (2, (height + 1) // 2, (width + 1) // 2, 3)
    for index in range(2):
        np.testing.assert_array_equal(out[index], numpy_max_pool(x[index]).astype(np.float32))
