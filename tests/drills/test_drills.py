"""Tests of all drills at their smallest size."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "figures"),
    [
        ("kill", 3, "3 kills over grid, synchronous, atari: 0 lost runs"),
        ("damage", 30, "0 silent"),
        ("full_disk", 2, "0 things half-written; with room 2 went on, 2 bit-identical"),
        ("hang", 1, "6 hangs: 6 named, 6 saved, 6 resumed"),
        ("strangers", 100, "server alive, 0 wrong ones left open, 0 kept at the end"),
        ("hostile", 10, "0 tracebacks, 0 hangs, 0 leaks, 0 formulas, 0 pages with markup"),
    ],
)
def test_drill_passes_and_prints_its_figures(name: str, count: int, figures: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), "--count", str(count)]
    drill = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert drill.returncode == 0, drill.stdout + drill.stderr
    assert figures in drill.stdout.splitlines()[-1]
