"""Two CPU devices for all tests, so that what is spread over devices is tested too."""

from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(scope="module")
def compiles_quickly() -> Iterator[None]:
    """Without optimising, in a whole module of tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
