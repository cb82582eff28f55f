"""The core stands without the extras, and what they are for says what to install."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from byol_explore.errors import UserError
from byol_explore.utils.packages import EXTRAS, require_extra

ROOT = Path(__file__).parents[2]


def test_the_core_is_enough_for_the_library() -> None:
    """Installed for real it is by `make test-lean`."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "lean.py", "--hide"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["the core is enough"]), done.stderr


def test_every_extra_lists_its_packages() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    del declared["test"]
    names = {extra: {re.split("[<>=]", package)[0] for package in packages} for extra, packages in declared.items()}
    assert {extra: set(packages.values()) for extra, packages in EXTRAS.items()} == names


@pytest.mark.parametrize("module", ["no_such_module", "byol_explore.no_such_module"])
def test_other_modules_that_are_missing_are_no_extras(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=module), require_extra("a test"):
        __import__(module)


def test_a_module_inside_a_missing_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orbax", None)
    monkeypatch.delitem(sys.modules, "orbax.checkpoint", raising=False)
    message = r"^a test needs orbax-checkpoint: pip install 'byol-explore\[train\]'$"
    with pytest.raises(UserError, match=message), require_extra("a test"):
        __import__("orbax.checkpoint")
