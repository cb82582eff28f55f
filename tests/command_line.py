"""Call the command line within the process."""

from pathlib import Path

import pytest

from byol_explore.cli.main import main

ESCAPE = "\x1b"


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Run a command; return exit code, stdout and stderr."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()
