"""Shared parts of the drills: tiny runs in processes of their own, their checkpoints and their processes."""

import argparse
import atexit
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import numpy as np

from byol_explore.config.config import Config
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from runs import DISPATCH, arguments, tiny

INTERVAL = 10 * DISPATCH  # steps between checkpoints
PATIENCE = 600.0  # seconds for any operation on a loaded machine
ENDLESS = 10**9  # steps

# Python ignores Ctrl-C if a shell has started it in the background.
_MAIN = "import signal, sys; signal.signal(2, signal.default_int_handler); from byol_explore.cli.main import main"
COMMAND = [sys.executable, "-c", f"{_MAIN}; sys.exit(main(sys.argv[1:]))"]


def parser(text: str, count: int) -> argparse.ArgumentParser:
    """Make the parser of all drills; `--dir` keeps results, and the same command continues them."""
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=count, help=f"number of repetitions (default {count})")
    options.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    options.add_argument(
        "--dir", type=Path, default=None, help="directory of the runs (default: a new one, removed at the end)"
    )
    return options


def directory_of(options: argparse.Namespace) -> Path:
    if options.dir is None:
        directory = Path(tempfile.mkdtemp(prefix="byol-explore-drill-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return directory
    options.dir.mkdir(parents=True, exist_ok=True)
    return options.dir.absolute()


def config_for(kind: str, **changes: Any) -> Config:
    """Configure a tiny run: inside jit, synchronous outside jit, Atari, or an environment that fails on request."""
    log = {"log_every": DISPATCH, "checkpoint_every": INTERVAL, "episode_window": 10}
    if kind == "grid":
        return dataclasses.replace(tiny(env="rooms-2", log=log), **changes)
    env = {
        "synchronous": "gymnasium:CartPole-v1",
        "atari": "atari:freeway",
        "unruly": "gymnasium:unruly:Unruly-v0",
    }[kind]
    config = tiny(env=env, log=log, **({"atari": {"num_workers": 2}} if kind == "atari" else {}))
    network = dataclasses.replace(config.network, center_encoders=False)
    runtime = dataclasses.replace(config.runtime, synchronous=kind == "synchronous", step_timeout=5.0)
    return dataclasses.replace(config, **{"network": network, "runtime": runtime, **changes})


def environment(directory: Path) -> dict[str, str]:
    """Return environment variables with which processes compile little, and only once."""
    cache = str(directory / "cache")
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "BYOL_EXPLORE_CACHE": cache,
        "JAX_COMPILATION_CACHE_DIR": cache, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }  # fmt: skip


def spawn(directory: Path, *words: object) -> subprocess.Popen[str]:
    """Start `byol-explore` with these arguments; the compilation cache lies beside the run directories."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], env=environment(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def begin(directory: Path, run: Path, config: Config, *options: object) -> subprocess.Popen[str]:
    return spawn(directory, "train", *arguments(config), "--run-dir", run, *options)


def resume(directory: Path, run: Path, *options: object) -> subprocess.Popen[str]:
    return spawn(directory, "train", "--trust", "--resume", "--run-dir", run, *options)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def steps_logged(run: Path) -> list[int]:
    path = run / "metrics.jsonl"
    return [row["steps"] for row in read_metrics(path)] if path.exists() else []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], poll_seconds: float = 0.01) -> None:
    """Wait until a condition is true. Raises a RuntimeError if the process ends before."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the process ended too early: {process.communicate()}")
        time.sleep(poll_seconds)


def contents(run: Path, step: int | None = None) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the arrays of a checkpoint, and what was saved beside them except the elapsed time."""
    checkpoints = Checkpoints(run / "checkpoints")
    arrays, meta = checkpoints._read(checkpoints.steps()[-1] if step is None else step)
    meta.pop("seconds")
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}, meta


def children_of(pid: int) -> list[int]:
    """Return the child processes, ordered by id."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def still_there(processes: list[int], seconds: float = 10.0) -> int:
    """Count the processes that have not ended after some seconds."""
    deadline = time.monotonic() + seconds
    while (left := sum(_is_alive(pid) for pid in processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Record:
    """Results so far, one JSON line each: a drill that was stopped continues after the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = read_metrics(path) if path.exists() else []

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
