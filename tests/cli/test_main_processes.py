"""The command line as a process: signals, kills, tracebacks and pipes."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from byol_explore.registry import METHODS
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from runs import (
    DISPATCH,
    arguments,
    assert_same_checkpoints,
    tiny,
    without_times,
)

BOTH = "import json, sys; from byol_explore.cli.main import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def python() -> Iterator[Start]:
    """Start processes that end with the test. They may print warnings of XLA."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    with contextlib.ExitStack() as stack:

        def begin(*words: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, *map(str, words)],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)  # should a test fail while it runs
            return process

        yield begin


@pytest.fixture
def start(python: Start) -> Start:
    return partial(python, "-m", "byol_explore.cli.main")


def wait_until_beyond(process: subprocess.Popen[str], directory: Path, step: int) -> int:
    """Wait for a row of metrics.jsonl with a later step, and return the step of the last row."""
    path, deadline = directory / "metrics.jsonl", time.monotonic() + 300
    while time.monotonic() < deadline:
        rows = read_metrics(path) if path.exists() else []
        if rows and rows[-1]["steps"] > step:
            return rows[-1]["steps"]
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"no progress: {process.communicate()}")


@pytest.mark.slow  # as `make drills` does, many times
def test_signal_and_kill_lose_nothing_that_was_saved(start: Start, python: Start, tmp_path: Path) -> None:
    """Send SIGTERM, then SIGKILL; the finished run equals an uninterrupted one."""
    directory, interval = tmp_path / "run", 10 * DISPATCH
    config = tiny("none", log={"log_every": 4 * DISPATCH, "checkpoint_every": interval})
    begin = ("train", *arguments(dataclasses.replace(config, steps=10**9)), "--run-dir", directory)
    go_on = ("train", "--resume", "--run-dir", directory)

    process = start(*begin)
    seen = wait_until_beyond(process, directory, 0)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert err.strip() == "interrupted: saving after this dispatch; once more stops at once"
    summary = json.loads((directory / "summary.json").read_text())
    step = summary["steps"]
    assert summary["interrupted"] is True
    assert step >= seen
    assert f"interrupted: saved at step {step:,}; continue with --resume" in out
    assert Checkpoints(directory / "checkpoints").steps()[-1] == step

    process = start(*go_on)
    seen = wait_until_beyond(process, directory, step + 2 * interval)
    process.kill()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert f"continuing from step {step:,}" in out
    newest = Checkpoints(directory / "checkpoints").steps()[-1]
    assert newest >= seen - interval

    config, reference = dataclasses.replace(config, steps=newest + interval + DISPATCH), tmp_path / "reference"
    both = ((*go_on, "--steps", config.steps), ("train", *arguments(config), "--run-dir", reference))
    process = python("-c", BOTH, json.dumps([[str(word) for word in words] for words in both]))
    assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0
    assert_same_checkpoints(directory, reference, config)
    rows, expected = (without_times(read_metrics(path / "metrics.jsonl")) for path in (directory, reference))
    assert rows == expected
    assert json.loads((directory / "summary.json").read_text())["interrupted"] is False


def test_user_error_prints_no_traceback(start: Start) -> None:
    process = start("train", "--method", "vae")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert out == ""
    assert err == f"error: unknown method 'vae'; choose from: {', '.join(METHODS.names())}, package.module:Name\n"


def test_closed_output_pipe_is_no_error(start: Start) -> None:
    process = start("envs")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == ""
