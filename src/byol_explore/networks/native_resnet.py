"""The residual network as one call of the optional package byol-explore-native (folder `native`), on CPUs.

A compiled kernel encodes one image after the other and keeps its activations in the cache. XLA runs the same network
layer by layer, in many loops. The kernel is used where the package is installed and fits: images of bytes, parameters
of float32, the paper's numbers of channels, the CPU backend. Before its first use in a process it is compared with the
plain layers, values and gradients. In all other cases the plain layers run.
"""

import importlib
import importlib.util
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from byol_explore.networks import cpu_kernels

if TYPE_CHECKING:
    from byol_explore.networks.paper_encoders import ResNet

PACKAGE = "byol_explore_native"
INTERFACE = 1  # of the package's functions that are called here
# Activations of a batch that the forward pass keeps for the backward pass; those of further images are computed again.
MAX_KEPT_BYTES = 512 * 2**20
_FAST_COMPILATION = {"xla_backend_optimization_level": 0}  # of the programs that are compared
MAX_DIFFERENCE = 1e-3  # from the plain layers, relative to the largest number of each array

_disabled: ContextVar[bool] = ContextVar("disabled", default=False)
_log = logging.getLogger(__name__)


class Sizes(NamedTuple):
    """The network, as the kernel is told of it."""

    shape: tuple[int, int, int]  # height, width and channels of the images
    widths: tuple[int, ...]  # channels of each unit
    normalize: bool


@contextmanager
def disable_native() -> Iterator[None]:
    """Trace the layers of `cpu_kernels` even if byol-explore-native is installed."""
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


def can_encode(network: "ResNet", image: UInt8[Array, "n H W c"]) -> bool:
    """Return True if the kernel is installed, supports this network and these images, and computes what it should."""
    if _disabled.get() or not cpu_kernels.use_cpu_kernels() or load_package() is None:
        return False
    arrays = (network.center.mean, *_parameters(network))
    if image.dtype != jnp.uint8 or image.shape[0] == 0 or any(x.dtype != jnp.float32 for x in arrays):
        return False
    if image.shape[1:] != network.center.mean.shape or _kept_size(_sizes(network)) < 0:
        return False
    return is_correct(type(network))


def encode(network: "ResNet", image: UInt8[Array, "n H W c"]) -> Float[Array, "n features"]:
    """Encode images by the kernel. The mean image gets no gradient.

    Args:
      network: with parameters for which `can_encode` is True.
      image: [n, H, W, c].
    Returns:
      [n, features].
    """
    mean = _vary_like(image, jax.lax.stop_gradient(network.center.mean))
    parameters = _vary_like(image, jnp.concatenate([x.reshape(-1) for x in _parameters(network)]))
    return _encode(_sizes(network), image, mean, parameters)


def _vary_like(image: Array, x: Array) -> Array:
    """Return `x`; inside `shard_map` it then counts as different on the devices if the images are."""
    if _varying_axes(image) <= _varying_axes(x):
        return x
    return x + jnp.sum(image[:0], dtype=x.dtype)  # plus zero


def _varying_axes(x: Array) -> frozenset[str]:
    """Axes of `shard_map` along which an array differs; JAX names their place differently before 0.10."""
    kind = jax.typeof(x)
    return frozenset(kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", ()))


def announcement() -> str | None:
    """Return a line on the kernel that will be used, None if the plain layers will be."""
    from byol_explore.networks.paper_encoders import ResNet

    package = load_package()
    if package is None or not cpu_kernels.use_cpu_kernels() or not is_correct(ResNet):
        return None
    return f"byol-explore-native {package.__version__} runs the residual network ({package.instruction_set()})"


@cache
def load_package() -> ModuleType | None:
    """Import the package and register its functions. Returns None, with a warning, if the installation is wrong."""
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    try:
        package = importlib.import_module(PACKAGE)
        if package.INTERFACE != INTERFACE:
            raise ImportError(f"its interface is {package.INTERFACE}, and this version needs {INTERFACE}")
        for name in ("byol_explore_resnet_forward", "byol_explore_resnet_backward"):
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(package.library, name)), platform="cpu")
        package.kept_size((1, 1, 1), (16,), normalize=True)
    except Exception as error:  # whatever a foreign library raises, the plain layers remain
        _warn(f"{type(error).__name__}: {error}")
        return None
    return package


@cache
def is_correct(network_class: "type[ResNet]") -> bool:
    """Compare values and gradients with those of the plain layers, once per process; warn if they differ."""
    # In a thread of its own, because the caller may be in the middle of tracing a program.
    with ThreadPoolExecutor(1) as executor:
        try:
            difference = executor.submit(_largest_difference, network_class).result()
        except Exception as error:
            _warn(f"{type(error).__name__}: {error}")
            return False
    if not difference < MAX_DIFFERENCE:
        _warn(f"its results differ from the plain layers by {difference:.1e} of the largest number")
        return False
    return True


def _warn(reason: str) -> None:
    _log.warning("byol-explore-native is not used: %s", " ".join(reason.split()))


def _largest_difference(network_class: "type[ResNet]") -> float:
    """Return the largest difference from the plain layers, relative to the largest number of each array."""
    random = np.random.default_rng(0)
    shape = (7, 6, 2)
    # Filled with random numbers by NumPy: nothing needs to be compiled for that.
    build = partial(network_class, shape, normalize=True, widths=(16, 32))
    network = jax.tree.map(
        lambda x: (0.2 * random.normal(size=x.shape)).astype(np.float32), jax.eval_shape(build, key=jax.random.key(0))
    )
    image = random.integers(0, 256, (3, *shape)).astype(np.uint8)
    random_weights = random.normal(size=1000).astype(np.float32)

    def weighed(network: "ResNet", native: bool) -> tuple[Array, Array]:
        y = encode(network, jnp.asarray(image)) if native else network(jnp.asarray(image))
        return jnp.sum(y * random_weights[: y.size].reshape(y.shape)), y

    results = []
    for native in (True, False):
        with cpu_kernels.disable_cpu_kernels():
            gradient = jax.grad(partial(weighed, native=native), has_aux=True)
            results.append(jax.jit(gradient, compiler_options=_FAST_COMPILATION)(network))
    ours, plain = (list(map(np.asarray, jax.tree.leaves(each))) for each in results)
    ratios = [np.abs(x - y).max() / max(np.abs(y).max(), 1e-6) for x, y in zip(ours, plain, strict=True)]
    return float(np.max(ratios))  # NaN if one is


def _sizes(network: "ResNet") -> Sizes:
    widths = tuple(unit.conv.weight.shape[3] for unit in network.units)
    height, width, channels = network.center.mean.shape
    return Sizes((height, width, channels), widths, network.units[0].norm is not None)


def _parameters(network: "ResNet") -> list[Array]:
    """Return the parameters in the order in which the kernel reads them."""
    parameters: list[Array] = []
    for unit in network.units:
        for conv in (unit.conv, *(conv for block in unit.blocks for conv in (block.first, block.second))):
            parameters += [conv.weight, conv.bias]
        if unit.norm is not None:
            parameters += [unit.norm.scale, unit.norm.bias]
    return parameters


def _kept_size(sizes: Sizes) -> int:
    package = load_package()
    assert package is not None
    return package.kept_size(sizes.shape, sizes.widths, normalize=sizes.normalize)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _encode(sizes: Sizes, image: Array, mean: Array, parameters: Array) -> Array:
    @jax.custom_batching.custom_vmap
    def forward(image: Array, mean: Array, parameters: Array) -> Array:
        return _forward(sizes, 0, image, mean, parameters)[0]

    @forward.def_vmap
    def _(count: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
        if batched[1] or batched[2]:  # one call for each set of parameters
            axes = [0 if each else None for each in batched]
            return jax.vmap(partial(_forward, sizes, 0), axes)(*arguments)[0], True
        image, mean, parameters = arguments
        merged = forward(image.reshape(-1, *image.shape[2:]), mean, parameters)
        return merged.reshape(count, -1, merged.shape[1]), True

    return forward(image, mean, parameters)


def _encode_forward(
    sizes: Sizes, image: Array, mean: Array, parameters: Array
) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    keep = min(image.shape[0], MAX_KEPT_BYTES // (4 * max(_kept_size(sizes), 1)))
    features, kept = _forward(sizes, keep, image, mean, parameters)
    return features, (image, mean, parameters, kept)


def _encode_backward(
    sizes: Sizes, residuals: tuple[Array, Array, Array, Array], gradient: Array
) -> tuple[None, None, Array]:
    image, mean, parameters, kept = residuals
    shape = jax.ShapeDtypeStruct(parameters.shape, parameters.dtype)
    call = jax.ffi.ffi_call("byol_explore_resnet_backward", shape, vmap_method="sequential")
    result = call(image, mean, parameters, gradient, kept, **_attributes(sizes))
    return None, None, _vary_like(image, result)


_encode.defvjp(_encode_forward, _encode_backward)


def _forward(sizes: Sizes, keep: int, image: Array, mean: Array, parameters: Array) -> tuple[Array, Array]:
    """Return features [n, features], and activations of the first `keep` images for the backward pass."""
    features = sizes.widths[-1]
    for side in sizes.shape[:2]:
        for _ in sizes.widths:
            side = -(-side // 2)
        features *= side
    shapes = [(image.shape[0], features), (keep, _kept_size(sizes))]
    call = jax.ffi.ffi_call(
        "byol_explore_resnet_forward",
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        vmap_method="sequential",
    )
    features, kept = call(image, mean, parameters, **_attributes(sizes))
    return _vary_like(image, features), _vary_like(image, kept)


def _attributes(sizes: Sizes) -> dict[str, np.ndarray | bool]:
    return {"widths": np.asarray(sizes.widths, np.int64), "normalize": sizes.normalize}
