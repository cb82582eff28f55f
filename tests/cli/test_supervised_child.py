"""A process that ends with its parent."""

import signal
import subprocess
import sys


def start(command: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "byol_explore.cli.supervised", command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_child_runs_the_command_line() -> None:
    with start("presets") as process:
        assert process.wait(timeout=120) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert "ablations" in process.stdout.read()
        assert process.stderr.read() == ""


def test_closed_stdin_ends_the_child_like_a_signal() -> None:
    with start("envs") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=120) == -signal.SIGTERM
