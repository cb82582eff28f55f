"""All public names lead somewhere, and none is missing."""

import subprocess
import sys

import pytest

import byol_explore


@pytest.mark.parametrize("name", byol_explore.__all__)
def test_a_public_name_can_be_used(name: str) -> None:
    assert getattr(byol_explore, name) is not None


def test_the_list_is_that_of_the_modules() -> None:
    homes = [name for names in byol_explore._HOMES.values() for name in names]
    assert sorted(homes) == sorted(byol_explore.__all__)


def test_the_names_are_listed_without_being_loaded() -> None:
    code = "import sys, byol_explore; print(*dir(byol_explore)); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    listed = set(done.stdout.split())
    assert {*byol_explore.__all__, "__version__", "__name__"} <= listed
    assert {name for name in listed if not name.startswith("__")} == set(byol_explore.__all__)
