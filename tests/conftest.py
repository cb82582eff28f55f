"""Configure all tests: two CPU devices, quick compilation, and one cache of compiled programs."""

import atexit
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # else XLA errors about cached programs fill the pipes of child processes

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell

if "PYTEST_XDIST_WORKER" not in os.environ:  # its workers share the directory: a program is compiled once
    os.environ["BYOL_EXPLORE_CACHE"] = tempfile.mkdtemp(prefix="byol-explore-tests-")  # not the user's
    atexit.register(shutil.rmtree, os.environ["BYOL_EXPLORE_CACHE"], ignore_errors=True)
# Child processes of tests read the same settings from the environment.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["BYOL_EXPLORE_CACHE"]
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
jax.config.update("jax_compilation_cache_dir", os.environ["BYOL_EXPLORE_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

if None in map(importlib.util.find_spec, ("torch", "stable_baselines3", "sb3_contrib", "torchrl")):
    collect_ignore = ["integrations"]  # `make test-integrations` installs what they need
else:
    collect_ignore = []
if importlib.util.find_spec("ray") is None:
    collect_ignore.append("cluster")  # `make test-ray` installs it

if importlib.util.find_spec("byol_explore_native") is None:
    collect_ignore.append("native")  # `make test-native` builds it

XLA_FLAG = "--xla_cpu_use_fusion_emitters=false"
LONGEST = (
    "test_train_default_task.py", "test_supervised.py", "test_drills.py",  # of the slow tests
    "test_learner_probes.py", "test_centering_warmup.py", "test_examples.py", "test_learner.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly: without optimisation and fusion emitters, a training program takes a quarter of the time.

    Results stay the same within rounding. Slow tests compute for long, so in their session only child processes of
    tests compile quickly.
    """
    is_slow = config.getoption("markexpr") == "slow"
    if is_slow and config.getoption("numprocesses", None):  # workers of xdist inherit the environment of this process
        return
    if is_slow:
        jax.devices()  # XLA reads its flags now
    else:
        jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    if XLA_FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAG}".strip()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of runs that several test files read."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def directory(root: Path) -> Path:
    """Directory of a finished run of two dispatches."""
    from runs import run, tiny  # not for tests that need no training

    path = root / "two-dispatches"
    run(tiny(dispatches=2), path)
    return path
