"""Modules that import no JAX: processes that only step environments, commands and reports start without it."""

import subprocess
import sys

import pytest

PACKAGES = {
    "": "types spaces errors registry",
    "utils": "files formatting interrupts local_server packages processes validation",
    "config": "sections config presets overrides",
    "envs": "interface host_vector checks watchdog families names registry"
    " atari_worker atari gymnasium_spaces gymnasium_faults gymnasium_env",
    "envs.hard_eight": "tasks",
    "envs.dm_hard_eight": "servers client env",
    "runtime.cluster": "messages actor_pool env_stepper workers head_process",
    "storage": "run_directory metrics",
    "report": "read_runs load scores results curves model build live",
    "study": "file plan",
    "cli": "main",
}
MODULES = [f"{package}.{name}".lstrip(".") for package, names in PACKAGES.items() for name in names.split()]
HEAVY = ("jax", "jaxlib", "equinox", "optax")


@pytest.fixture(scope="module")
def loaded() -> dict[str, str]:
    """Import all modules in one process, one after the other; which heavy packages each of them loaded first."""
    code = f"""if True:
        import importlib, importlib.util, sys
        from unittest.mock import MagicMock
        if importlib.util.find_spec("ray") is None:  # workers must be importable; what they do needs Ray
            sys.modules["ray"] = sys.modules["ray.exceptions"] = MagicMock()
        for name in {MODULES}:
            before = set(sys.modules)
            importlib.import_module(f"byol_explore.{{name}}")
            print(name, *sorted({set(HEAVY)} & set(sys.modules) - before))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {name: " ".join(heavy) for name, *heavy in map(str.split, done.stdout.splitlines())}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_no_jax(loaded: dict[str, str], module: str) -> None:
    assert loaded[module] == ""
