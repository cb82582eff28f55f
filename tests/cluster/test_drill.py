"""Test of the fault drill of Ray runs, at its smallest size."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_drill_passes_and_prints_its_figures() -> None:
    drill = Path(__file__).parents[1] / "drills" / "cluster.py"
    command = [sys.executable, str(drill), "--count", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cluster: 6 faults over local, central: 0 lost runs" in done.stdout.splitlines()[-1]
