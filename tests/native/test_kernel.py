"""The compiled residual network against the plain layers: values, gradients, transformations, threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import byol_explore_native
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from byol_explore.config.presets import make_config
from byol_explore.networks import cpu_kernels, native_resnet
from byol_explore.networks.centering import center_encoder
from byol_explore.networks.paper_encoders import AtariEncoder, HardEightEncoder, ResNet
from byol_explore.spaces import Image
from byol_explore.training.loop import TrainingLoop

PAPER = (16, 32, 32)


@pytest.fixture(params=["avx512", "avx2", "baseline"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this processor supports."""
    fastest = byol_explore_native.instruction_set()
    if not byol_explore_native.use_instruction_set(request.param):
        assert request.param != "baseline"
        byol_explore_native.use_instruction_set("baseline")
    yield byol_explore_native.instruction_set()
    byol_explore_native.use_instruction_set(fastest)


def frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def resnet(shape: tuple[int, int, int], *, normalize: bool = True, widths: tuple[int, ...] = PAPER) -> ResNet:
    """Build a network whose parameters, mean image and biases included, are all random."""
    random = np.random.default_rng(1)
    network = ResNet(shape, jax.random.key(0), normalize=normalize, widths=widths)
    return jax.tree.map(lambda x: x + 0.1 * random.normal(size=x.shape).astype(np.float32), network)


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    def plain(*arguments: Any) -> Any:
        with cpu_kernels.disable_cpu_kernels():
            return function(*arguments)

    return plain


def value_and_gradient(function: Callable[[Any], jax.Array], argument: Any) -> tuple[jax.Array, Any]:
    """The value, and the gradient of a sum that weighs every entry of it differently."""

    def weighed(argument: Any) -> tuple[jax.Array, jax.Array]:
        value = function(argument)
        return jnp.sum(value * np.random.default_rng(9).normal(size=value.shape).astype(np.float32)), value

    gradient, value = jax.jit(jax.grad(weighed, has_aux=True))(argument)
    return value, gradient


def assert_trees_close(ours: Any, expected: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=2e-5 * max(1e-3, float(np.abs(other).max())))


def assert_equal_to_plain(function: Callable[[Any], jax.Array], argument: Any) -> None:
    assert "byol_explore_resnet_forward" in str(jax.make_jaxpr(function)(argument))
    assert "byol_explore_resnet" not in str(jax.make_jaxpr(plainly(function))(argument))
    assert_trees_close(value_and_gradient(function, argument), value_and_gradient(plainly(function), argument))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("shape", "widths", "count"),
    [((7, 6, 1), PAPER, 3), ((13, 18, 3), PAPER, 5), ((21, 10, 4), (32, 16), 2), ((1, 2, 2), PAPER, 9),
     ((50, 5, 2), (16,), 1)],
)  # fmt: skip
def test_small_images(shape: tuple[int, int, int], widths: tuple[int, ...], count: int, normalize: bool) -> None:
    images = frames(count, *shape)
    assert_equal_to_plain(lambda network: network(images), resnet(shape, normalize=normalize, widths=widths))


@pytest.mark.parametrize(
    ("encoder", "shape"), [(AtariEncoder, (84, 84, 1)), (HardEightEncoder, (72, 96, 3))], ids=["atari", "hard-eight"]
)
def test_the_encoders_of_the_paper_at_their_sizes(encoder: type, shape: tuple[int, int, int]) -> None:
    """Gradients by their length: one ReLU that is just below zero in one of the two changes single numbers by 1%."""
    images, network = frames(2, *shape), encoder(shape, 16, jax.random.key(0))
    assert "byol_explore_resnet_forward" in str(jax.make_jaxpr(network)(images))
    ours = value_and_gradient(lambda network: network(images), network)
    plain = value_and_gradient(plainly(lambda network: network(images)), network)
    assert_trees_close(ours[0], plain[0])
    for mine, other in zip(jax.tree.leaves(ours[1]), jax.tree.leaves(plain[1]), strict=True):
        assert np.linalg.norm(mine - other) <= 0.03 * np.linalg.norm(other)


@pytest.mark.usefixtures("instruction_set")
def test_the_first_of_equal_pixels_gets_the_gradient() -> None:
    """All numbers are whole, and many pixels of a window are equal."""
    random = np.random.default_rng(0)
    network = jax.tree.map(
        lambda x: random.integers(-1, 2, x.shape).astype(np.float32), resnet((9, 8, 1), normalize=False, widths=(16,))
    )
    network = eqx.tree_at(lambda network: network.center.mean, network, jnp.zeros((9, 8, 1)))
    images = (255 * random.integers(0, 2, (4, 9, 8, 1))).astype(np.uint8)
    assert_equal_to_plain(lambda network: network(images), network)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("place", [(0, 0), (3, 4), (8, 7)])
def test_a_nan_reaches_the_features(place: tuple[int, int]) -> None:
    network = resnet((9, 8, 1))
    images = frames(2, 9, 8, 1)
    mean = network.center.mean.at[(*place, 0)].set(jnp.nan)
    broken = eqx.tree_at(lambda network: network.center.mean, network, mean)
    np.testing.assert_array_equal(np.isnan(broken(images)), np.isnan(plainly(broken)(images)))
    assert np.isnan(broken(images)).all()


def test_gradients_do_not_depend_on_how_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = resnet((9, 8, 1)), frames(6, 9, 8, 1)
    kept = byol_explore_native.kept_size((9, 8, 1), PAPER, normalize=True)
    results = []
    for count in (6, 2, 0):
        monkeypatch.setattr(native_resnet, "MAX_KEPT_BYTES", 4 * kept * count)
        program = jax.make_jaxpr(jax.grad(lambda network: network(images).sum()))(network)
        assert f"f32[{count},{kept}]" in str(program)
        results.append(value_and_gradient(lambda network: network(images), network))
    for other in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, results[0])


def test_results_are_the_same_in_every_call() -> None:
    """Threads take the images in another order each time."""
    network, images = resnet((20, 21, 1)), frames(70, 20, 21, 1)
    compute = jax.jit(jax.grad(lambda network: jnp.sum(network(images) ** 2)))
    first = compute(network)
    for _ in range(5):
        jax.tree.map(np.testing.assert_array_equal, compute(network), first)


def test_calls_from_several_threads_at_once() -> None:
    network, images = resnet((20, 21, 1)), frames(12, 20, 21, 1)
    compute = jax.jit(jax.grad(lambda network, images: jnp.sum(network(images) ** 2)))
    expected = compute(network, images)
    with ThreadPoolExecutor(6) as executor:
        futures = [executor.submit(lambda: jax.block_until_ready(compute(network, images))) for _ in range(24)]
        for future in futures:
            jax.tree.map(np.testing.assert_array_equal, future.result(timeout=60), expected)


def test_images_of_another_size_in_the_same_thread() -> None:
    """Memory is kept between calls, and its borders must be zero for the new size too."""
    for shape in [(12, 9, 1), (9, 12, 1), (12, 9, 1), (5, 30, 2)]:
        images = frames(3, *shape)
        assert_equal_to_plain(lambda network, images=images: network(images), resnet(shape))


# Transformations


def test_inside_a_scan() -> None:
    images = frames(2, 5, 7, 6, 1)

    def scanned(network: ResNet) -> jax.Array:
        return jax.lax.scan(lambda total, x: (total + network(x).sum(), network(x)), jnp.zeros(()), images)[1]

    assert_equal_to_plain(scanned, resnet((7, 6, 1)))


def test_with_checkpoint() -> None:
    images = frames(3, 7, 6, 1)
    assert_equal_to_plain(lambda network: jax.checkpoint(lambda n, x: n(x))(network, images), resnet((7, 6, 1)))


def test_vmap_over_images_is_one_call() -> None:
    images = frames(2, 3, 4, 7, 6, 1)
    network = resnet((7, 6, 1))
    batched = jax.vmap(jax.vmap(lambda x: network(x)))
    assert "u8[24,7,6,1]" in str(jax.make_jaxpr(batched)(images))
    np.testing.assert_array_equal(batched(images).reshape(24, -1), network(images.reshape(24, 7, 6, 1)))


def test_gradient_of_vmap_over_images() -> None:
    images = jnp.asarray(frames(2, 3, 7, 6, 1))
    assert_equal_to_plain(lambda network: jax.vmap(lambda x: network(x))(images), resnet((7, 6, 1)))


def test_vmap_over_parameters() -> None:
    images = frames(3, 7, 6, 1)
    networks = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), resnet((7, 6, 1)))
    assert_equal_to_plain(lambda networks: jax.vmap(lambda n: n(images))(networks), networks)


@pytest.mark.parametrize("check_vma", [True, False])
def test_spread_over_devices(check_vma: bool) -> None:
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    images, split = frames(6, 7, 5, 1), PartitionSpec("batch")

    def spread(network: ResNet) -> jax.Array:
        call = jax.shard_map(
            lambda n, x: n(x), mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=check_vma
        )
        return call(network, images)

    assert_equal_to_plain(spread, resnet((7, 5, 1)))


def test_a_sharded_batch_without_shard_map() -> None:
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    network, images = resnet((7, 5, 1)), frames(6, 7, 5, 1)
    spread = jax.device_put(images, jax.sharding.NamedSharding(mesh, PartitionSpec("batch")))
    compute = jax.jit(jax.grad(lambda network, images: jnp.sum(network(images) ** 2)))
    assert_trees_close(compute(network, spread), compute(network, images))


def test_centering_uses_the_plain_layers() -> None:
    encoder = center_encoder(AtariEncoder((21, 18, 1), 8, jax.random.key(0)), frames(16, 21, 18, 1), 16.0)
    embedding = encoder(frames(16, 21, 18, 1))
    np.testing.assert_allclose(embedding.std(axis=0), 16.0, rtol=1e-3)
    np.testing.assert_allclose(embedding.mean(axis=0), 0.0, atol=1e-2)


# Unsupported networks


@pytest.mark.parametrize(
    ("shape", "widths"), [((7, 6, 5), PAPER), ((7, 6, 1), (8, 32)), ((7, 6, 1), (16,) * 9)],
)  # fmt: skip
def test_other_sizes_take_the_plain_layers(shape: tuple[int, int, int], widths: tuple[int, ...]) -> None:
    network = ResNet(shape, jax.random.key(0), normalize=True, widths=widths)
    assert not native_resnet.can_encode(network, jnp.asarray(frames(2, *shape)))
    assert jax.eval_shape(network, frames(2, *shape)).shape == (2, ResNet.features(shape, widths))


def test_other_types_take_the_plain_layers() -> None:
    network, images = resnet((7, 6, 1)), jnp.asarray(frames(2, 7, 6, 1))
    assert native_resnet.can_encode(network, images)
    assert not native_resnet.can_encode(network, images.astype(jnp.float32))
    assert not native_resnet.can_encode(jax.tree.map(lambda x: x.astype(jnp.bfloat16), network), images)
    assert not native_resnet.can_encode(network, images[:0])
    with native_resnet.disable_native():
        assert not native_resnet.can_encode(network, images)
    with cpu_kernels.disable_cpu_kernels():
        assert not native_resnet.can_encode(network, images)


def test_wrong_sizes_are_an_error_and_no_crash() -> None:
    call = jax.ffi.ffi_call(
        "byol_explore_resnet_forward",
        [jax.ShapeDtypeStruct((2, 288), jnp.float32), jax.ShapeDtypeStruct((0, 1), jnp.float32)],
    )
    sizes = {"widths": np.array([16]), "normalize": True}
    with pytest.raises(Exception, match="wrong number of parameters"):
        call(frames(2, 7, 6, 1), jnp.zeros((7, 6, 1)), jnp.zeros(10), **sizes)


@pytest.mark.parametrize(("encoder", "said"), [("atari", True), ("image", False)])
def test_train_announces_the_kernel_where_it_is_used(encoder: str, said: bool) -> None:
    lines: list[str] = []
    config = make_config("atari", network={"encoder": encoder})
    spec = SimpleNamespace(name="a test", observation=Image(84, 84, 1))
    run = SimpleNamespace(
        config=config, directory="runs/test", display=SimpleNamespace(message=lines.append),
        runtime=SimpleNamespace(learner=SimpleNamespace(spec=spec)),
        window=SimpleNamespace(tasks_without_threshold=list),
    )  # fmt: skip
    TrainingLoop._announce(run)  # pyright: ignore[reportArgumentType]
    assert (native_resnet.announcement() in lines) is said


def test_announcement_names_the_instruction_set() -> None:
    line = native_resnet.announcement()
    assert line is not None
    assert byol_explore_native.instruction_set() in line
