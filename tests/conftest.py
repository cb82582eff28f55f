"""Two CPU devices for all tests, so that what is spread over devices is tested too; and a quick compiler."""

import atexit
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)

signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs tests in the background may ignore

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share what the first process made: programs are compiled once
    os.environ["BYOL_EXPLORE_CACHE"] = tempfile.mkdtemp(prefix="byol-explore-tests-")  # not the user's
    atexit.register(shutil.rmtree, os.environ["BYOL_EXPLORE_CACHE"], ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", os.environ["BYOL_EXPLORE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

if None in map(importlib.util.find_spec, ("torch", "stable_baselines3", "sb3_contrib", "torchrl")):
    collect_ignore = ["integrations"]  # `make test-integrations` installs what they need
else:
    collect_ignore = []
if importlib.util.find_spec("ray") is None:
    collect_ignore.append("cluster")  # `make test-ray` installs it

LONGEST = ("test_learning.py", "test_first_look.py", "test_examples.py", "test_learner.py")


def pytest_configure(config: pytest.Config) -> None:
    """Compiling is what the suite spends its time on, but for slow tests, which compute.

    Without optimising, and without fusion emitters, a training program compiles in a quarter of the time, and results
    stay the same within rounding. The flag is read when JAX starts; processes that tests start inherit both.
    """
    if config.getoption("markexpr") != "slow":
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
        jax.config.update("jax_disable_most_optimizations", True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


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
