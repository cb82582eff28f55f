"""The command line: help that teaches, mistakes answered in one line, signals that lose nothing."""

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
from typing import Any

import pytest
from PIL import Image

from byol_explore import training
from byol_explore.checkpoint import Checkpoints
from byol_explore.cli import COMMANDS, main
from byol_explore.config import Config, default_run_dir
from byol_explore.envs.probes import PROBES
from byol_explore.interrupts import Interrupts
from byol_explore.metrics import read_metrics
from byol_explore.presets import ABLATIONS, PRESETS
from byol_explore.training import Summary, load_config, write_config
from runs import (
    DISPATCH,
    Overflowing,
    arguments,
    assert_same_checkpoints,
    overflowing,
    quickly,
    run,
    tiny,
    without_times,
)

ESCAPE = "\x1b"


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, and what was printed where."""
    capsys.readouterr()
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two dispatches."""
    path = tmp_path_factory.mktemp("cli") / "run"
    run(tiny(dispatches=2), path)
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `train` was called with, instead of training."""
    calls: list[Any] = []

    def train(config: Config, run_dir: Path | None, *, resume: bool, quiet: bool) -> Summary:
        calls.append((config, run_dir, resume, quiet))
        return Summary(Path("somewhere"), {"success_rate": None, "return_mean": None, "steps": 0, "seconds": 0.0})

    monkeypatch.setattr(training, "train", train)
    return calls


# Help


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    for name, description in COMMANDS.items():
        assert f"byol-explore {name}" in out
        assert description in out


def test_the_help_of_train_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "train", "--help")
    assert (code, err) == (0, "")
    assert "For example:" in out
    assert "byol-explore train --env MiniGrid-DoorKey-8x8 --seed 3 --run-dir runs/doorkey\n" in out
    for option in ("--preset", "--env", "--method", "--regime", "--ablation", "--seed", "--steps", "--run-dir",
                   "--resume", "--quiet", "--curiosity.horizon", "--optimizer.learning-rate", "--runtime.batch-size",
                   "--agent.gamma", "--network.encoder-hidden", "--log.tensorboard"):  # fmt: skip
        assert option in out
    assert "K, how many steps ahead" in out
    assert ESCAPE not in out


def test_the_help_shows_the_defaults_of_the_ablation(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "train", "--ablation", "horizon-1", "--help")
    assert "world model predicts. (default: 1)" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("name", ["evaluate", "presets", "envs"])
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = call(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert f"byol-explore {name}" in out
    if name == "evaluate":
        for option in ("--episodes", "--checkpoint", "--seed", "--gif", "--json"):
            assert option in out


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "presets")
    assert (code, err) == (0, "")
    for name in (*PRESETS, *ABLATIONS):
        assert f" {name} " in out
    assert ESCAPE not in out


def test_environments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "envs")
    assert (code, err) == (0, "")
    for name in ("rooms-N", "MiniGrid-DoorKey-8x8", "XLand-MiniGrid-R1-9x9", "probe:noisy-tv"):
        assert f"  {name}\n" in out


# Options


def test_any_field_can_be_given(capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    words = ("--env", "rooms-3", "--seed", "7", "--steps", "1000", "--curiosity.horizon", "3", "--curiosity.no-share",
             "--curiosity.prioritize", "False", "--network.encoder-hidden", "32", "16", "--network.core", "lstm",
             "--agent.gamma", "0.9", "--optimizer.learning-rate", "3e-4", "--runtime.num-envs", "32",
             "--log.tensorboard", "--stop-at-success", "0.5", "--run-dir", "x/y", "--quiet")  # fmt: skip
    code, out, err = call(capsys, "train", *words)
    assert (code, out, err) == (0, "", "")
    [(config, run_dir, resume, quiet)] = asked
    assert (run_dir, resume, quiet) == (Path("x/y"), False, True)
    assert (config.env, config.seed, config.steps, config.stop_at_success) == ("rooms-3", 7, 1000, 0.5)
    assert (config.curiosity.horizon, config.curiosity.share, config.curiosity.prioritize) == (3, False, False)
    assert (config.network.encoder_hidden, config.network.core) == ((32, 16), "lstm")
    assert (config.agent.gamma, config.optimizer.learning_rate) == (0.9, 3e-4)
    assert (config.runtime.num_envs, config.log.tensorboard) == (32, True)


def test_every_field_of_a_config_goes_through_the_command_line(
    capsys: pytest.CaptureFixture[str], asked: list[Any]
) -> None:
    config = tiny(devices=2, seed=3, regime="intrinsic", stop_at_success=0.25, log={"wandb": True, "window": 17})
    assert call(capsys, "train", *arguments(config))[0] == 0
    assert asked[0][0] == config


def test_the_default_is_the_preset(capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    code, out, _ = call(capsys, "train")
    assert code == 0
    assert asked == [(PRESETS["grid"].config, None, False, False)]
    assert "no episode ended" in out


def test_an_ablation_sets_what_others_may_override(capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    call(capsys, "train", "--ablation", "fixed-targets")
    call(capsys, "train", "--ablation=horizon-1", "--method=byol-explore")
    call(capsys, "train", "--ablation", "prioritized", "--method", "rnd")
    call(capsys, "train", "--ablation", "horizon-1", "--curiosity.horizon", "2")
    curiosity = [config.curiosity for config, *_ in asked]
    assert [config.ablation for config, *_ in asked] == ["fixed-targets", "horizon-1", "prioritized", "horizon-1"]
    assert curiosity[0].target_decay == 1.0
    assert [each.horizon for each in curiosity] == [5, 1, 5, 2]
    assert asked[2][0].prioritize


@pytest.mark.parametrize("option", ["--run-dir", "--run_dir"])
def test_resuming_takes_the_runs_own_config(
    capsys: pytest.CaptureFixture[str], asked: list[Any], tmp_path: Path, option: str
) -> None:
    config = tiny(seed=5)
    write_config(tmp_path, config)
    code, *_ = call(capsys, "train", "--resume", option, tmp_path, "--steps", "999")
    assert code == 0
    assert asked == [(dataclasses.replace(config, steps=999), tmp_path, True, False)]


def test_resuming_finds_the_default_directory(
    capsys: pytest.CaptureFixture[str], asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(tiny("rnd"), seed=5, regime="intrinsic", ablation="prioritized")
    write_config(default_run_dir(config), config)
    options = ("--env", config.env, "--method", "rnd", "--ablation", "prioritized", "--seed", "5")
    code, *_ = call(capsys, "train", "--resume", *options, "--regime", "intrinsic")
    assert code == 0
    assert asked[0][0] == config


# Mistakes


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("fly", ["unknown command 'fly'", ", ".join(COMMANDS)]),
        ("train --preset big", ["unknown preset 'big'", "choose from: grid"]),
        ("train --env rooms-x", ["unknown environment 'rooms-x'", "byol-explore envs", "rooms-6"]),
        ("train --env rooms-1", ["'rooms-1'", "2 to 50"]),
        ("train --env probe:memory,probe:memory", ["'probe:memory,probe:memory'", "twice"]),
        ("train --env probe:memory,probe:hybrid", ["'probe:memory' and 'probe:hybrid'", "differ"]),
        ("train --method vae", ["unknown method 'vae'", "byol-explore, rnd, icm, none"]),
        ("train --regime both", ["unknown regime 'both'", "mixed, intrinsic, extrinsic"]),
        ("train --ablation no-brain", ["unknown ablation 'no-brain'", "fixed-targets, horizon-1, no-clipping"]),
        ("train --ablation horizon-1 --method rnd", ["ablation 'horizon-1'", "method 'rnd'"]),
        ("train --ablation no-sharing --method none", ["ablation 'no-sharing'", "method 'none'"]),
        ("train --method none --regime intrinsic", ["method 'none'", "regime extrinsic"]),
        ("train --network.core rnn", ["'rnn'", "gru", "lstm"]),
        ("train --network.encoder resnet", ["'resnet'", "grid", "vector"]),
        ("train --curiosity.horizon 33", ["curiosity.horizon 33", "runtime.sequence_length 33", "1 to 32"]),
        ("train --curiosity.horizon 0", ["curiosity.horizon is 0", "positive"]),
        ("train --optimizer.learning-rate -0.1", ["optimizer.learning_rate is -0.1", "positive"]),
        ("train --optimizer.dual-learning-rate -1", ["optimizer.dual_learning_rate is -1.0", "not be negative"]),
        ("train --optimizer.learning-rate nan", ["optimizer.learning_rate is nan", "finite"]),
        ("train --agent.gamma 1", ["agent.gamma is 1.0", "below 1"]),
        ("train --curiosity.target-decay 1.5", ["curiosity.target_decay is 1.5", "between 0 and 1"]),
        ("train --runtime.batch-size 15", ["runtime.batch_size 15", "runtime.num_envs 160", "8, 10, 16, 20"]),
        ("train --env rooms-3,rooms-4,rooms-5", ["3 tasks", "batch of 16", "multiple of 3"]),
        ("train --runtime.devices 64", ["runtime.devices is 64"]),
        ("train --seed -1", ["seed is -1", "negative"]),
        ("train --steps 0", ["steps is 0", "positive"]),
        ("train --steps many", ["--steps", "'many'"]),
        ("train --steps", ["--steps"]),
        ("train --horizon 3", ["--horizon", "perhaps you meant --curiosity.horizon"]),
        ("train --curiosity.prioritize maybe", ["'maybe'", "--curiosity.prioritize", "True"]),
        ("train rooms-6", ["rooms-6"]),
        ("train --resume --run-dir nowhere", ["nowhere holds no run"]),
        ("evaluate", ["run directory"]),
        ("evaluate nowhere", ["nowhere holds no run"]),
        ("evaluate nowhere --episodes 0", ["episodes is 0", "at least 1"]),
        ("presets --all", ["unrecognized arguments: --all"]),
        ("envs rooms", ["unrecognized arguments: rooms"]),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *words.split())
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for part in parts:
        assert part in err
    assert list(tmp_path.iterdir()) == [], "a mistake must leave nothing behind"


def test_mistakes_about_a_run_that_is_there(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    for words, parts in (
        (["train", *arguments(tiny()), "--run-dir", directory], ["already holds a run", "--resume"]),
        (["train", "--resume", "--run-dir", directory, "--seed", "3"], ["seed was 0, now 3", "steps"]),
        (["train", "--resume", "--run-dir", directory, "--network.core", "lstm"], ["network.core was 'gru'"]),
        (["evaluate", directory, "--checkpoint", "7"], ["unknown checkpoint '7'", "last, best, 48, 96"]),
        (["evaluate", directory, "--checkpoint", "first"], ["unknown checkpoint 'first'", "last, best, 48, 96"]),
    ):
        code, out, err = call(capsys, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
        for part in parts:
            assert part in err


def test_what_the_system_refuses_is_one_line_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = call(capsys, "train", *arguments(tiny()), "--run-dir", tmp_path / "file" / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Not a directory" in err


def test_divergence_has_its_own_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROBES, "overflowing", Overflowing)
    with quickly():
        code, out, err = call(capsys, "train", *arguments(overflowing()), "--run-dir", tmp_path / "run", "--quiet")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("error: training diverged at learner step 13: the ")
    assert f"the last good checkpoint is of step {3 * DISPATCH}" in err
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps()[-1] == 3 * DISPATCH


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (Interrupts.Stopped(signal.SIGINT), (130, "", "")),
        (Interrupts.Stopped(signal.SIGTERM), (143, "", "")),
        (KeyboardInterrupt(), (130, "", "interrupted\n")),
    ],
    ids=["SIGINT", "SIGTERM", "at once"],
)
def test_an_interrupted_command_has_the_exit_code_of_the_shell(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    expected: tuple[int, str, str],
) -> None:
    def train(*arguments: Any, **settings: Any) -> None:
        raise stop

    monkeypatch.setattr(training, "train", train)
    assert call(capsys, "train") == expected


# Training and evaluating


def test_training_prints_plain_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tiny(dispatches=2)
    with quickly():
        code, out, err = call(capsys, "train", *arguments(config), "--run-dir", tmp_path / "run")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"training probe:memory with byol-explore in {tmp_path / 'run'} (vector encoder)"
    assert lines[1].startswith(" 50% ")
    assert lines[1].endswith("eta -")
    assert lines[2].startswith("100% ")
    assert lines[2].endswith("eta 0 s")
    assert "success" in lines[2]
    assert "curiosity" in lines[2]
    assert lines[3].startswith(f"done: {2 * DISPATCH} steps in ")
    assert len(lines) == 4
    assert ESCAPE not in out
    assert load_config(tmp_path / "run") == config


def test_quiet_training_prints_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with quickly():
        code, out, err = call(capsys, "train", *arguments(tiny(dispatches=1)), "--run-dir", tmp_path / "run", "--quiet")
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / "run" / "summary.json").exists()


def test_evaluating_prints_json_and_draws(capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path) -> None:
    gif = tmp_path / "films" / "episodes.gif"
    with quickly():
        code, out, err = call(capsys, "evaluate", directory, "--episodes", "9", "--json", "--gif", gif)
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["run"], report["episodes"], report["checkpoint_steps"]) == (str(directory), 9, 2 * DISPATCH)
    for mode in ("greedy", "sampled"):
        result = report["tasks"]["probe:memory"][mode]
        assert result["success_rate"]["low"] <= result["success_rate"]["mean"] <= result["success_rate"]["high"]
        assert result["return"]["mean"] == pytest.approx(2 * result["success_rate"]["mean"] - 1)
        assert result["length_mean"] == 6.0
    assert report["gif"] == str(gif)
    with Image.open(gif) as film:
        assert film.format == "GIF"
        assert getattr(film, "n_frames", 1) > 1


def test_evaluating_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    interval = {"mean": 0.5, "low": 0.25, "high": 0.75}
    result = {"success_rate": interval, "return": interval, "length_mean": 12.0}
    report = {"run": "r", "checkpoint_steps": 1234, "damaged_checkpoints": ["step_7 (torn)"], "episodes": 9,
              "tasks": {"maze": {"greedy": result, "sampled": result}}}  # fmt: skip
    calls = []
    monkeypatch.setattr(
        "byol_explore.evaluation.episodes.evaluate", lambda *words, **options: calls.append((words, options)) or report
    )
    code, out, err = call(capsys, "evaluate", directory, "--checkpoint", "best", "--seed", "4")
    assert code == 0
    ((words, options),) = calls
    assert callable(options.pop("progress"))
    assert (words, options) == ((directory,), {"episodes": None, "checkpoint": "best", "seed": 4, "gif": None})
    assert err == "skipped a damaged checkpoint: step_7 (torn)\n"
    assert "r after 1,234 steps, 9 episodes" in out
    for word in ("maze", "greedy", "sampled", "0.500 [0.250, 0.750]", "12.0"):
        assert word in out
    assert ESCAPE not in out


# Processes


BOTH = "import json, sys; from byol_explore.cli import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def python() -> Iterator[Start]:
    """Processes that compile without optimising and keep whatever they compile, for the next one."""
    environment = {
        **os.environ,
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": os.environ["BYOL_EXPLORE_CACHE"],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
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
    return partial(python, "-m", "byol_explore.cli")


def wait_until_beyond(process: subprocess.Popen[str], directory: Path, step: int) -> int:
    """Wait for a line of metrics.jsonl of a later step; the step of the last line."""
    path, deadline = directory / "metrics.jsonl", time.monotonic() + 300
    while time.monotonic() < deadline:
        rows = read_metrics(path) if path.exists() else []
        if rows and rows[-1]["steps"] > step:
            return rows[-1]["steps"]
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"no progress: {process.communicate()}")


def test_a_signal_and_a_kill_lose_nothing_that_was_saved(start: Start, python: Start, tmp_path: Path) -> None:
    """SIGTERM, then kill -9; in the end the run is the one that was never interrupted."""
    directory, interval = tmp_path / "run", 10 * DISPATCH
    config = tiny("none", log={"log_every": 4 * DISPATCH, "checkpoint_every": interval})
    begin = ("train", *arguments(dataclasses.replace(config, steps=10**9)), "--run-dir", directory)
    go_on = ("train", "--resume", "--run-dir", directory)

    process = start(*begin)
    seen = wait_until_beyond(process, directory, 0)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert err.strip() == "interrupted: saving after this round; once more stops at once"
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


def test_a_mistake_in_a_process_of_its_own_shows_no_traceback(start: Start) -> None:
    process = start("train", "--method", "vae")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert out == ""
    assert err == "error: unknown method 'vae'; choose from: byol-explore, rnd, icm, none\n"


def test_a_reader_that_has_seen_enough_is_no_error(start: Start) -> None:
    process = start("envs")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == ""
