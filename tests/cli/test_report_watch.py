"""`byol-explore watch`."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from byol_explore.cli.main import main


@contextlib.contextmanager
def start_process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process that ends with the test."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watch_serves_at_once_and_ends_after_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "byol_explore.cli.main", "watch", str(tmp_path / "later"), "--port", "0"]
    with start_process(command) as process:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline()
        found = re.fullmatch(rf"watching {tmp_path}/later at (http://127\.0\.0\.1:\d+) \(Ctrl-C ends it\)\n", line)
        assert found
        with urllib.request.urlopen(found[1], timeout=30) as answer:
            assert "Nothing to see yet" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == "interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "which runs? give one or more run or study directories"),
        (["runs", __file__], f"{__file__} is a file: give one or more run or study directories"),
        (["runs", "--interval", "0"], "interval is 0.0: it must be more than 0 seconds"),
        (["runs", "--interval", "nan"], "interval is nan: it must be more than 0 seconds"),
        (["runs", "--port", "-1"], "port -1 is not one of 0 to 65535"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {complaint}\n"


def test_port_in_use_is_one_line_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["watch", str(tmp_path), "--port", str(port)]) == 2
    assert re.fullmatch(
        rf"error: port {port} is in use: choose another with --port, such as \d+\n", capsys.readouterr().err
    )
