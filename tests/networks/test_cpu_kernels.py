"""The CPU's forms of the residual network's layers against the plain ones, values and gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from byol_explore.networks import cpu_kernels
from byol_explore.networks.encoders import ImageEncoder
from byol_explore.networks.layers import Conv, max_pool
from byol_explore.networks.paper_encoders import AtariEncoder, ResNet

SIZES = [(21, 21), (7, 5), (6, 8), (1, 2)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def traced_plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    def plain(*arguments: Any) -> Any:
        with cpu_kernels.disable_cpu_kernels():
            return function(*arguments)

    return plain


def value_and_gradients(function: Callable[..., jax.Array], *arguments: Any) -> tuple[jax.Array, Any]:
    """The value, and the gradient of a sum that weighs every entry of it differently."""

    def weighed(*arguments: Any) -> tuple[jax.Array, jax.Array]:
        value = function(*arguments)
        return jnp.sum(value * normal(*value.shape, seed=9)), value

    both = jax.jit(jax.value_and_grad(weighed, tuple(range(len(arguments))), has_aux=True))
    (_, value), gradients = both(*arguments)
    return value, gradients


def assert_equal_to_plain(function: Callable[..., jax.Array], *arguments: Any) -> None:
    ours = value_and_gradients(function, *arguments)
    plain = value_and_gradients(traced_plainly(function), *arguments)
    assert_trees_close(ours, plain)


def assert_trees_close(ours: Any, expected: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(other).max())))


def test_the_two_paths_are_two_programs() -> None:
    """So that the comparisons below compare something."""
    assert cpu_kernels.use_cpu_kernels()
    x = normal(2, 6, 6, 16)
    assert "reduce_window" not in str(jax.make_jaxpr(max_pool)(x))
    assert "reduce_window" in str(jax.make_jaxpr(traced_plainly(max_pool))(x))
    assert cpu_kernels.use_cpu_kernels()


@pytest.mark.parametrize(
    ("height", "width", "inputs", "outputs"),
    [(21, 21, 1, 16), (6, 7, 3, 4), (11, 11, 16, 8), (7, 5, 8, 32), (1, 2, 8, 8), (2, 1, 1, 4)],
)
def test_conv(height: int, width: int, inputs: int, outputs: int) -> None:
    conv = Conv(inputs, outputs, jax.random.key(0))
    assert_equal_to_plain(lambda conv, x: conv(x), conv, normal(3, height, width, inputs))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_max_pool(height: int, width: int) -> None:
    assert_equal_to_plain(max_pool, normal(3, height, width, 4))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_max_pool_gives_the_gradient_to_the_first_of_equal_values(height: int, width: int) -> None:
    x = np.random.default_rng(0).integers(0, 3, (4, height, width, 5)).astype(np.float32)
    _, (ours,) = value_and_gradients(max_pool, x)
    _, (plain,) = value_and_gradients(traced_plainly(max_pool), x)
    np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)
    assert np.array_equal(np.asarray(ours) == 0, np.asarray(plain) == 0)


def test_max_pool_keeps_a_nan() -> None:
    x = normal(1, 6, 6, 1)
    for row, column in [(0, 0), (2, 3), (5, 5)]:
        broken = x.copy()
        broken[0, row, column] = np.nan
        np.testing.assert_array_equal(np.isnan(max_pool(broken)), np.isnan(traced_plainly(max_pool)(broken)))


@pytest.mark.parametrize("count", [8, 19])
def test_resnet_in_chunks_that_do_not_divide_the_batch(count: int) -> None:
    resnet = ResNet((7, 5, 3), jax.random.key(0), normalize=False, widths=(8, 8))
    images = frames(count, 7, 5, 3)
    assert_equal_to_plain(lambda resnet: resnet(images), resnet)


def test_atari_encoder() -> None:
    encoder = AtariEncoder((21, 18, 1), 8, jax.random.key(0))
    images = frames(11, 21, 18, 1)
    assert_equal_to_plain(lambda encoder: encoder(images), encoder)


def test_light_encoder() -> None:
    encoder = ImageEncoder((25, 14, 3), 8, jax.random.key(0))
    images = frames(5, 25, 14, 3)
    assert_equal_to_plain(lambda encoder: encoder(images), encoder)


@pytest.mark.parametrize("value", [0, 255])
def test_what_is_kept_apart_is_what_it_would_be(value: int) -> None:
    """Whatever the first byte is: the branch is always taken."""
    images = frames(3, 4, 6, 1)
    images[0, 0, 0, 0] = value
    apart = jax.jit(lambda x: cpu_kernels.fusion_barrier(lambda x: x.transpose(0, 2, 1, 3), x))(images)
    np.testing.assert_array_equal(apart, images.transpose(0, 2, 1, 3))


def test_inside_a_scan() -> None:
    resnet = ResNet((6, 5, 1), jax.random.key(0), normalize=True, widths=(8,))
    images = frames(2, 9, 6, 5, 1)

    def scanned(resnet: ResNet) -> jax.Array:
        return jax.lax.scan(lambda total, x: (total + resnet(x).sum(), resnet(x)), jnp.zeros(()), images)[1]

    assert_equal_to_plain(scanned, resnet)


def test_spread_over_devices() -> None:
    """With the parameters on every device and the images shared out."""
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    resnet = ResNet((7, 5, 1), jax.random.key(0), normalize=True, widths=(8, 8))
    images = frames(20, 7, 5, 1)

    def spread(resnet: ResNet) -> jax.Array:
        split = PartitionSpec("batch")
        call = jax.shard_map(lambda r, x: r(x), mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split)
        return call(resnet, images)

    ours = value_and_gradients(spread, resnet)
    alone = value_and_gradients(lambda resnet: resnet(images), resnet)
    assert_trees_close(ours, alone)
