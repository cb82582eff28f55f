"""Two CPU devices for all tests, so that what is spread over devices is tested too; and a quick compiler."""

import os
from collections.abc import Iterator

import jax
import pytest

# Compiling is what the suite spends its time on. Without fusion emitters it takes a third, and results stay the same
# within rounding. Read when JAX starts; processes that tests start inherit it.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(scope="module")
def compiles_quickly() -> Iterator[None]:
    """Without optimising, in a whole module of tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
