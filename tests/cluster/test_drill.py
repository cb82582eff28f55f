"""The drill of faults in its shortest form: that it runs, and ends well."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_drill_ends_well_and_in_a_line_of_figures() -> None:
    drill = Path(__file__).parents[1] / "drills" / "cluster.py"
    words = [sys.executable, str(drill), "--count", "6"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cluster: 6 faults over local, central: 0 lost runs" in done.stdout.splitlines()[-1]
