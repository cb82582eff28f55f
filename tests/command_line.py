"""The command line called within the process, for the tests of it."""

from pathlib import Path

import pytest

from byol_explore.cli.main import main

ESCAPE = "\x1b"


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, and what was printed where."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()
