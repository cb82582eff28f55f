"""Whole runs in processes of their own, with clusters of their own: killed, interrupted, resumed, and nothing left."""

import dataclasses
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from byol_explore.report.logs import read_metrics
from byol_explore.settings.config import Config
from cluster.watching import PATIENCE, ours, until
from runs import DISPATCH, arguments, tiny

TESTS = Path(__file__).parents[1]
_MAIN = "import signal, sys; signal.signal(2, signal.default_int_handler); from byol_explore.cli.main import main"


def config_for(steps: int, **runtime: Any) -> Config:
    config = tiny(env="gymnasium:unruly:Unruly-v0", log={"checkpoint_every": 2 * DISPATCH})
    network = dataclasses.replace(config.network, center=False)
    runtime = {"engine": "ray", "actors": 2, **runtime}
    return dataclasses.replace(
        config, steps=steps, network=network, runtime=dataclasses.replace(config.runtime, **runtime)
    )


def begin(*words: object) -> subprocess.Popen[str]:
    """A trainer that leads a group of processes, as in a terminal."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", f"{_MAIN}; sys.exit(main(sys.argv[1:]))", *map(str, words)], env=variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def logged(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []


def wait_for_lines(run: Path, process: subprocess.Popen[str], count: int) -> None:
    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return len(logged(run)) >= count

    until(there, "nothing was logged")


def assert_nothing_left(before: set[int], shared: set[Path]) -> None:
    until(lambda: ours() <= before, "processes of Ray are left")
    assert set(Path("/dev/shm").iterdir()) <= shared


def test_a_run_is_killed_resumed_interrupted_and_resumed_to_its_end(tmp_path: Path) -> None:
    before, shared, run = ours(), set(Path("/dev/shm").iterdir()), tmp_path / "run"
    process = begin("train", *arguments(config_for(10**9)), "--run-dir", run)
    wait_for_lines(run, process, 5)
    assert len(ours() - before) >= 2, "a head and actors"
    process.kill()
    process.communicate()
    assert_nothing_left(before, shared)
    done = len(logged(run))

    process = begin("train", "--trust", "--resume", "--run-dir", run)
    wait_for_lines(run, process, done + 3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "\ninterrupted: saving after this round; once more stops at once\n")
    assert_nothing_left(before, shared)

    end = logged(run)[-1]["steps"] + 2 * DISPATCH
    process = begin("train", "--trust", "--resume", "--steps", end, "--run-dir", run)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert_nothing_left(before, shared)
    rows = logged(run)
    assert all(after["steps"] - row["steps"] == DISPATCH for row, after in pairwise(rows)), "an unbroken count"
    assert rows[-1]["steps"] == end
    assert {name: rows[-1][name] for name in ("actor_faults", "actor_restarts", "sequences_dropped")} == {
        "actor_faults": 0, "actor_restarts": 0, "sequences_dropped": 0,
    }  # fmt: skip


def test_an_address_at_which_nobody_listens_is_one_line(tmp_path: Path) -> None:
    for address, said in (("127.0.0.1:9", "nobody listens there"), ("head", "it must be host:port")):
        config = config_for(DISPATCH, address=address)
        process = begin("train", *arguments(config), "--run-dir", tmp_path / "run")
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2, errors
        assert errors.startswith(f"error: runtime.address {'is ' if said.startswith('it') else ''}{address!r}")
        assert said in errors
        assert len(errors.splitlines()) == 1
