"""What the drills share: tiny runs in processes of their own, and looks at what is left of them."""

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

from byol_explore.report.logs import read_metrics
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.settings.config import Config
from runs import DISPATCH, arguments, tiny

INTERVAL = 10 * DISPATCH  # steps between checkpoints
PATIENCE = 600.0  # seconds for anything, on a loaded machine
ENDLESS = 10**9  # steps

# Python ignores Ctrl-C where a shell has started it in the background.
_MAIN = "import signal, sys; signal.signal(2, signal.default_int_handler); from byol_explore.cli.main import main"
COMMAND = [sys.executable, "-c", f"{_MAIN}; sys.exit(main(sys.argv[1:]))"]


def parser(text: str, count: int) -> argparse.ArgumentParser:
    """The options of all drills; `--dir` keeps what was done, and the same command goes on there."""
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=count, help=f"how often (default {count})")
    options.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default 0)")
    options.add_argument("--dir", type=Path, default=None, help="where runs are kept (default a new directory)")
    return options


def directory_of(options: argparse.Namespace) -> Path:
    if options.dir is None:
        directory = Path(tempfile.mkdtemp(prefix="byol-explore-drill-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return directory
    options.dir.mkdir(parents=True, exist_ok=True)
    return options.dir.absolute()


def config_for(kind: str, **changes: Any) -> Config:
    """A tiny run of a kind of training: inside jit, outside of it in lock step, or games with free actors."""
    log = {"log_every": DISPATCH, "checkpoint_every": INTERVAL, "window": 10}
    if kind == "grid":
        return dataclasses.replace(tiny(env="rooms-2", log=log), **changes)
    env, words = {
        "lock-step": ("gymnasium:CartPole-v1", ()),
        "atari": ("atari:freeway", ("workers=2",)),
        "unruly": ("gymnasium:unruly:Unruly-v0", ()),
    }[kind]
    config = tiny(env=env, env_settings=words, log=log)
    network = dataclasses.replace(config.network, center=False)
    runtime = dataclasses.replace(config.runtime, deterministic=kind == "lock-step", step_timeout=5.0)
    return dataclasses.replace(config, **{"network": network, "runtime": runtime, **changes})


def environment(directory: Path) -> dict[str, str]:
    """Of processes that compile little, and only once."""
    cache = str(directory / "cache")
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "BYOL_EXPLORE_CACHE": cache,
        "JAX_COMPILATION_CACHE_DIR": cache, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }  # fmt: skip


def start(directory: Path, *words: object) -> subprocess.Popen[str]:
    """`byol-explore` with these words; the compilation cache lies beside the run directories."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], env=environment(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def begin(directory: Path, run: Path, config: Config, *words: object) -> subprocess.Popen[str]:
    return start(directory, "train", *arguments(config), "--run-dir", run, *words)


def go_on(directory: Path, run: Path, *words: object) -> subprocess.Popen[str]:
    return start(directory, "train", "--trust", "--resume", "--run-dir", run, *words)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def steps_logged(run: Path) -> list[int]:
    path = run / "metrics.jsonl"
    return [row["steps"] for row in read_metrics(path)] if path.exists() else []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], every: float = 0.01) -> None:
    """Until something is so, or the process has ended, which is an error; looked at every so many seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"it ended too early: {process.communicate()}")
        time.sleep(every)


def contents(run: Path, step: int | None = None) -> tuple[dict[str, bytes], dict[str, Any]]:
    """All arrays of a checkpoint, and what was saved beside them but for the time it took."""
    checkpoints = Checkpoints(run / "checkpoints")
    arrays, meta = checkpoints._read(checkpoints.steps()[-1] if step is None else step)
    meta.pop("seconds")
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}, meta


def children_of(pid: int) -> list[int]:
    """Processes that it has started, by number."""
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
    """How many of them have not ended after some seconds."""
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
    """What was done so far, a JSON line each: a drill that was stopped goes on behind its last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = read_metrics(path) if path.exists() else []

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
