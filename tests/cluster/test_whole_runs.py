"""Tests of whole runs in processes and clusters of their own: killed, interrupted and resumed."""

import dataclasses
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from byol_explore.config.config import Config
from byol_explore.storage.metrics import read_metrics
from cluster.processes import PATIENCE, cluster_processes, wait_until
from runs import DISPATCH, arguments, tiny

TESTS = Path(__file__).parents[1]
_MAIN = "import signal, sys; signal.signal(2, signal.default_int_handler); from byol_explore.cli.main import main"


def config_for(steps: int, **runtime: Any) -> Config:
    config = tiny(env="gymnasium:unruly:Unruly-v0", log={"checkpoint_every": 2 * DISPATCH})
    network = dataclasses.replace(config.network, center_encoders=False)
    runtime = {"actor_backend": "ray", "num_actors": 2, **runtime}
    return dataclasses.replace(
        config, steps=steps, network=network, runtime=dataclasses.replace(config.runtime, **runtime)
    )


def spawn(*words: object) -> subprocess.Popen[str]:
    """Start a trainer that leads a process group, as in a terminal."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", f"{_MAIN}; sys.exit(main(sys.argv[1:]))", *map(str, words)], env=variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def logged(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []


def wait_for_lines(run: Path, process: subprocess.Popen[str], count: int) -> None:
    def is_done() -> bool:
        assert process.poll() is None, process.communicate()
        return len(logged(run)) >= count

    wait_until(is_done, "nothing was logged")


def assert_nothing_left(before: set[int], shared: set[Path]) -> None:
    wait_until(lambda: cluster_processes() <= before, "processes of Ray are left")
    assert set(Path("/dev/shm").iterdir()) <= shared


def test_killed_and_interrupted_run_is_resumed_to_its_end(tmp_path: Path) -> None:
    before, shared, run = cluster_processes(), set(Path("/dev/shm").iterdir()), tmp_path / "run"
    process = spawn("train", *arguments(config_for(10**9)), "--run-dir", run)
    wait_for_lines(run, process, 5)
    assert len(cluster_processes() - before) >= 2, "no head or no actors"
    process.kill()
    process.communicate()
    assert_nothing_left(before, shared)
    done = len(logged(run))

    process = spawn("train", "--trust", "--resume", "--run-dir", run)
    wait_for_lines(run, process, done + 3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "\ninterrupted: saving after this dispatch; once more stops at once\n")
    assert_nothing_left(before, shared)

    end = logged(run)[-1]["steps"] + 2 * DISPATCH
    process = spawn("train", "--trust", "--resume", "--steps", end, "--run-dir", run)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert_nothing_left(before, shared)
    rows = logged(run)
    assert all(after["steps"] - row["steps"] == DISPATCH for row, after in pairwise(rows)), (
        "lines are missing or repeated"
    )
    assert rows[-1]["steps"] == end
    assert {name: rows[-1][name] for name in ("actor_faults", "actor_restarts", "sequences_dropped")} == {
        "actor_faults": 0, "actor_restarts": 0, "sequences_dropped": 0,
    }  # fmt: skip


def test_address_without_a_cluster_is_a_one_line_error(tmp_path: Path) -> None:
    for address, reason in (("127.0.0.1:9", "no cluster listens there"), ("head", "it must be host:port")):
        config = config_for(DISPATCH, ray_address=address)
        process = spawn("train", *arguments(config), "--run-dir", tmp_path / "run")
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2, errors
        assert errors.startswith(f"error: runtime.ray_address {'is ' if reason.startswith('it') else ''}{address!r}")
        assert reason in errors
        assert len(errors.splitlines()) == 1
