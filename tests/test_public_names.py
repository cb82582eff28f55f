"""Public names of the package, and examples in the docstrings of the equations."""

import ast
import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

import byol_explore
from byol_explore import ops


@pytest.mark.parametrize("name", byol_explore.__all__)
def test_public_names_resolve(name: str) -> None:
    assert getattr(byol_explore, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING are those that are made on first use."""
    tree = ast.parse(Path(byol_explore.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {(node.module or "").removeprefix("byol_explore."): tuple(a.name for a in node.names) for node in imports}
    assert homes == {"byol_explore": byol_explore._MODULES, **byol_explore._HOMES}


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_modules_are_found_without_a_further_import() -> None:
    done = run_python("import byol_explore as b; print(b.ops.value.__name__, b.dropin.autoreset.__name__)")
    assert (done.stdout, done.stderr) == ("byol_explore.ops.value byol_explore.dropin.autoreset\n", "")


def test_integrations_are_loaded_on_first_use() -> None:
    loaded = "print(*(name for name in sys.modules if name.startswith('byol_explore.integrations')))"
    done = run_python(f"import byol_explore as b, sys; b.integrations; {loaded}; b.integrations.none")
    assert done.stdout == "byol_explore.integrations\n"
    assert "module 'byol_explore.integrations' has no attribute 'none'" in done.stderr


def test_the_names_are_listed_without_being_loaded() -> None:
    done = run_python("import sys, byol_explore; print(*dir(byol_explore)); sys.exit('jax' in sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")
    listed = set(done.stdout.split())
    assert {*byol_explore.__all__, "__version__", "__name__"} <= listed
    assert {name for name in listed if not name.startswith("__")} == set(byol_explore.__all__)


def test_programs_from_the_compilation_cache_print_nothing(tmp_path: Path) -> None:
    code = "import byol_explore, jax, os; jax.jit(lambda x: x @ x)(jax.numpy.ones((8, 8))); print(os.listdir())"
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": ".", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
        )
        assert "-cache" in done.stdout
        assert done.stderr == ""


@pytest.mark.parametrize("name", ops.__all__)
def test_examples_of_the_equations_are_right(name: str) -> None:
    assert doctest.testmod(getattr(byol_explore.ops, name)).failed == 0
