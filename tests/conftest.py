"""Two CPU devices for all tests, so that what is spread over devices is tested too; and a quick compiler."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

# Compiling is what the suite spends its time on. Without fusion emitters it takes a third, and results stay the same
# within rounding. Read when JAX starts; processes that tests start inherit it.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
jax.config.update("jax_num_cpu_devices", 2)

signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs tests in the background may ignore

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share what the first process made: programs are compiled once
    os.environ["BYOL_EXPLORE_CACHE"] = tempfile.mkdtemp(prefix="byol-explore-tests-")  # not the user's
    atexit.register(shutil.rmtree, os.environ["BYOL_EXPLORE_CACHE"], ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", os.environ["BYOL_EXPLORE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture(scope="module")
def compiles_quickly() -> Iterator[None]:
    """Without optimising, in a whole module of tests."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs are kept that several files of tests look at."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def directory(root: Path) -> Path:
    """A finished run of two dispatches."""
    from runs import run, tiny  # not for tests that need no training

    path = root / "two-dispatches"
    run(tiny(dispatches=2), path)
    return path
