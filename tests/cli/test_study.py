"""`byol-explore study`: output, errors and exit codes, and a study end to end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import runs  # noqa: F401  (a cache of compiled programs that is not the user's)
from byol_explore.cli.main import main
from byol_explore.study import runner
from byol_explore.study.file import builtin_studies, read_study
from byol_explore.study.plan import plan_runs
from byol_explore.study.progress import RunState, last_row
from byol_explore.utils.files import is_locked
from byol_explore.utils.interrupts import SignalGuard
from study.helpers import finish

SMALL = """
name = "small"
tasks = ["probe:memory"]
seeds = 1
steps = 96
methods = ["none", "rnd"]
"""
TINY = """
name = "tiny"
tasks = ["probe:memory"]
seeds = 1
steps = 14_400
methods = ["none"]
[settings]
stop_at_success_rate = 0.0
network = { belief_size = 4, embedding_size = 4, encoder_hidden = [4], policy_hidden = [4], value_hidden = [4] }
runtime = { num_envs = 8, batch_size = 4, sequence_length = 4, rounds_per_dispatch = 2 }
curiosity.horizon = 2
log = { log_every = 96, checkpoint_every = 14_400, episode_window = 10 }
"""


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command beside small.toml; it returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["study", *words])
        return code, *capsys.readouterr()

    return call


Call = Callable[..., tuple[int, str, str]]


def test_help_has_examples_and_options(call: Call) -> None:
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    for part in ("byol-explore study laptop --parallel 2", "--filter", "--seeds", "--dry-run", "--study-dir", "--list"):
        assert part in out


def test_built_in_studies_are_listed(call: Call) -> None:
    code, out, _ = call("--list")
    assert code == 0
    assert all(f" {name} " in out for name in builtin_studies())


def test_list_shows_the_needs_of_studies(call: Call) -> None:
    _, out, _ = call("--list")
    needs = " ".join(" ".join(line.split("│")[-2] for line in out.splitlines() if "│" in line).split())
    assert needs.count("two CPU cores") == len([study for study in builtin_studies().values() if "CPU" in study.needs])
    assert needs.count("two CPU cores") > 3


def test_dry_run_prints_commands_and_writes_nothing(call: Call) -> None:
    code, out, err = call("small.toml", "--dry-run", "--seeds", "2", "--filter", "rnd")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"byol-explore train --preset grid --method rnd --env probe:memory --seed {seed} --steps 96 "
        f"--run-dir studies/small/probe-memory/rnd-seed{seed} --quiet"
        for seed in (0, 1)
    ]
    assert not Path("studies").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("", ["name a study: algorithms, ", "laptop"]),
        ("desktop", ["unknown study 'desktop'", "laptop", "path of a TOML file"]),
        ("small.toml --parallel 0", ["--parallel is 0"]),
        ("small.toml --parallel 0 --dry-run", ["--parallel is 0"]),
        ("small.toml --seeds -1", ["--seeds is -1"]),
        ("small.toml --filter icm", ["--filter 'icm' matches none of the 2 runs"]),
        ("small.toml --study-dir small.toml", ["small.toml is a file"]),
        ("small.toml --study-dir .", ["is not empty and holds no study"]),
        ("wrong.toml", ["wrong.toml: unknown environment 'probe:maze'"]),
        ("wrong.toml --launcher ray --cpus 0", ["--cpus is 0: it must be at least 1"]),
        ("wrong.toml --launcher ray --cpus inf", ["--cpus is inf: it must be at least 1, and finite"]),
        ("wrong.toml --launcher ray --gpus -1 --dry-run", ["--gpus is -1: it must be at least 0"]),
        ("wrong.toml --launcher ray --gpus 1.5", ["--gpus is 1.5: it must be a whole number, or a part of one GPU"]),
        ("wrong.toml --cpus 2", ["--cpus is 2: only --launcher ray has one"]),
    ],
)
def test_wrong_values_are_one_line_and_nothing_is_run(call: Call, words: str, parts: list[str]) -> None:
    Path("wrong.toml").write_text(SMALL.replace("memory", "maze"))
    code, _, err = call(*words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: ")
    for part in parts:
        assert part in err
    assert {path.name for path in Path().iterdir()} == {"small.toml", "wrong.toml"}


def test_an_unknown_option_is_named(call: Call) -> None:
    code, out, err = call("small.toml", "--horizon", "3")
    assert (code, out) == (2, "")
    assert "Unrecognized options: --horizon" in err


def test_ray_is_an_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in ("study.ray_launcher", "runtime.cluster.ray_client"):
        monkeypatch.delitem(sys.modules, f"byol_explore.{module}", raising=False)
    code, out, err = call("small.toml", "--launcher", "ray")
    assert (code, out) == (2, "")
    assert err == "error: --launcher ray needs ray: pip install 'byol-explore[ray]'\n"
    assert not Path("studies").exists()


def test_only_ray_has_an_address(call: Call) -> None:
    code, out, err = call("small.toml", "--address", "10.0.0.1:6379")
    assert (code, out, err) == (2, "", "error: --address is '10.0.0.1:6379': only --launcher ray has one\n")


def test_complete_study_is_reported(call: Call) -> None:
    for run in plan_runs(read_study("small.toml")):
        finish(run, Path("place"))
    Path("place/study.toml").write_text(SMALL)
    code, out, err = call("small.toml", "--study-dir", "place")
    assert (code, out, err) == (0, "complete: 2 of 2 runs are done; see place\n", "")


def test_unprintable_directory_is_escaped(call: Call) -> None:
    odd = Path(os.fsdecode(b"\xff\n"))
    for run in plan_runs(read_study("small.toml")):
        finish(run, odd)
    (odd / "study.toml").write_text(SMALL)
    assert call("small.toml", "--study-dir", str(odd)) == (0, "complete: 2 of 2 runs are done; see \\udcff\\n\n", "")
    code, out, _ = call("small.toml", "--study-dir", str(odd / "x"), "--dry-run", "--filter", "rnd")
    assert (code, out.count("\n")) == (0, 1)


def test_failures_are_listed_at_the_end(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"probe-memory/none-seed0": RunState("done", 96, 96, 1.0),
              "probe-memory/rnd-seed0": RunState("failed", 0, 96, 0.0, exit_code=3, message="it broke")}  # fmt: skip
    monkeypatch.setattr(runner, "run_study", lambda *_, **__: states)
    code, out, err = call("small.toml", "--parallel", "3", "--retries", "2")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "small: 2 of 2 runs are missing; 3 at a time in studies/small",
        "failed: probe-memory/rnd-seed0 (exit code 3): it broke",
        "1 of 2 runs failed; try them again with: byol-explore study small.toml --study-dir studies/small --parallel 3 "
        "--retries 2",
    ]


def test_interrupted_study_prints_how_to_continue(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise SignalGuard.StoppedBySignal(signal.SIGINT)

    monkeypatch.setattr(runner, "run_study", stop)
    code, out, _ = call("small.toml", "--seeds", "2", "--filter", "rnd")
    assert code == 130
    assert out.endswith(
        "stopped; continue with: byol-explore study small.toml --study-dir studies/small --parallel 1 --seeds 2 "
        "--filter rnd\n"
    )


def test_killed_study_leaves_no_process_and_continues_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train for real: kill the study with SIGKILL, then finish it."""
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ["study", str(tmp_path / "tiny.toml"), "--study-dir", str(tmp_path / "s")]
    run_dir = tmp_path / "s" / "probe-memory" / "none-seed0"

    def wait_until(what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not what():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with subprocess.Popen([sys.executable, "-m", "byol_explore.cli.main", *words], stdout=subprocess.DEVNULL) as study:
        wait_until(lambda: study.poll() is not None or last_row(run_dir / "metrics.jsonl") != {})
        assert study.poll() is None, "the study has ended"
        study.kill()
    wait_until(lambda: not is_locked(run_dir))
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["interrupted"]
    assert 0 < summary["steps"] < 14_400

    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"probe-memory/none-seed0: continues after {summary['steps']:,} steps\n" in out
    assert out.endswith(f"complete: 1 of 1 runs are done; see {tmp_path / 's'}\n")
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["interrupted"], summary["steps"]) == (False, 14_400)
