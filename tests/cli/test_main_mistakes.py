"""Errors of one line, and exit codes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from byol_explore.cli import main as command_line_main
from byol_explore.cli.main import COMMANDS, main
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.training import train as train_module
from byol_explore.utils.interrupts import SignalGuard
from command_line import call
from runs import (
    DISPATCH,
    OverflowProbe,
    arguments,
    overflow_config,
    quickly,
    tiny,
)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("fly", ["unknown command 'fly'", ", ".join(COMMANDS)]),
        ("train --preset big", ["unknown preset 'big'", "choose from: grid"]),
        ("train --env rooms-x", ["unknown environment 'rooms-x'", "byol-explore envs", "rooms-6"]),
        ("train --env rooms-1", ["'rooms-1'", "2 to 50"]),
        ("train --env atari:hard10", ["atari:hard10 is no environment", "`byol-explore study atari-hard10`"]),
        ("train --env probe:memory,probe:memory", ["'probe:memory,probe:memory'", "twice"]),
        ("train --env ,", ["env ',' has an empty name", "with a comma between two"]),
        ("train --env probe:memory,", ["env 'probe:memory,' has an empty name"]),
        ("train --env rooms-06", ["unknown environment 'rooms-06'", "rooms-6"]),
        ("train --env probe:memory,probe:hybrid", ["'probe:memory' and 'probe:hybrid'", "differ"]),
        ("train --method vae", ["unknown method 'vae'", "byol-explore, rnd, icm, none"]),
        ("train --regime both", ["unknown regime 'both'", "mixed, intrinsic, extrinsic"]),
        ("train --ablation no-brain", ["unknown ablation 'no-brain'", "fixed-targets, horizon-1, no-clipping"]),
        ("train --ablation horizon-1 --method rnd", ["ablation 'horizon-1'", "method 'rnd'"]),
        ("train --ablation no-sharing --method none", ["ablation 'no-sharing'", "method 'none'", "no ablation"]),
        ("train --ablation no-sharing --method rnd", ["ablation 'no-sharing' changes nothing", "prioritized"]),
        ("train --ablation no-clipping --method icm", ["ablation 'no-clipping' changes nothing", "no-sharing, prior"]),
        ("train --ablation prioritized", ["ablation 'prioritized' changes nothing in method 'byol-explore'"]),
        ("train --method none --regime intrinsic", ["method 'none'", "regime extrinsic"]),
        ("train --network.core rnn", ["'rnn'", "gru", "lstm"]),
        (
            "train --network.encoder resnet",
            ["unknown encoder 'resnet'", "auto, grid, vector, image, atari"],
        ),
        (
            "train --network.encoder atari",
            ["'atari' does not fit", "'rooms-6' (Grid)", "grid, vector"],
        ),
        ("train --network.core-inputs arm", ["unknown entry of network.core_inputs 'arm'"]),
        ("train --env hard-eight:bridge", ["unknown task of hard-eight 'bridge'", "drawbridge, remember-sensor"]),
        ("train --curiosity.horizon 33", ["curiosity.horizon 33", "runtime.sequence_length 33", "1 to 32"]),
        ("train --curiosity.horizon 0", ["curiosity.horizon is 0", "positive"]),
        ("train --optimizer.learning-rate -0.1", ["optimizer.learning_rate is -0.1", "positive"]),
        ("train --optimizer.dual-learning-rate -1", ["optimizer.dual_learning_rate is -1.0", "not be negative"]),
        ("train --optimizer.learning-rate nan", ["optimizer.learning_rate is nan", "finite"]),
        ("train --agent.gamma 1", ["agent.gamma is 1.0", "below 1"]),
        ("train --curiosity.target-decay 1.5", ["curiosity.target_decay is 1.5", "between 0 and 1"]),
        ("train --runtime.batch-size 15", ["runtime.batch_size 15", "runtime.num_envs 160", "8, 10, 16, 20"]),
        ("train --env rooms-3,rooms-4,rooms-5", ["3 tasks", "batch of 16", "multiple of 3"]),
        ("train --runtime.num-devices 64", ["runtime.num_devices is 64"]),
        ("train --seed -1", ["seed is -1", "negative"]),
        ("train --steps 0", ["steps is 0", "positive"]),
        ("train --steps 1e30", ["steps is 1000000000000000000000000000000", "at most 1000000000000000"]),
        ("train --atari.frame-stack 4", ["atari.frame_stack is 4", "rooms-6 does not use it", "atari:..."]),
        ("train --env-kwargs size=4", ["env_kwargs has 'size=4'", "rooms-6 takes no keyword arguments"]),
        ("train --resume --run-dir nowhere", ["nowhere holds no run"]),
        ("evaluate nowhere", ["nowhere holds no run"]),
        ("evaluate nowhere --episodes 0", ["episodes is 0", "at least 1"]),
    ],
)
def test_wrong_values_are_errors_of_one_line(
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


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("train --steps many", ["--steps", "'many'"]),
        ("train --steps", ["--steps"]),
        ("train --steps 2.5", ["--steps", "'2.5' is no whole number"]),
        ("train --steps 1e-3", ["--steps", "'1e-3' is no whole number"]),
        ("train --steps inf", ["--steps", "'inf' is no whole number"]),
        ("train --steps 1e999999999", ["--steps", "'1e999999999' is no whole number"]),
        ("train --atari.max-noops 2.5 --env atari:alien", ["--atari.max-noops", "'2.5' is no whole number"]),
        ("train --horizon 3", ["--horizon", "Perhaps you meant", "--curiosity.horizon"]),
        ("train --curiosity.prioritize maybe", ["'maybe'", "--curiosity.prioritize", "True"]),
        ("train rooms-6", ["rooms-6"]),
        ("presets --all", ["Unrecognized options: --all"]),
        ("envs rooms", ["Unrecognized options: rooms"]),
        ("evaluate", ["Required options", "PATH", "A run directory"]),
    ],
)
def test_wrong_arguments_are_explained_by_tyro(
    capsys: pytest.CaptureFixture[str], words: str, parts: list[str]
) -> None:
    code, out, err = call(capsys, *words.split())
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for part in parts:
        assert part in err


def test_wrong_values_for_an_existing_run(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
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


def test_system_errors_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = call(capsys, "train", *arguments(tiny()), "--run-dir", tmp_path / "file" / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Not a directory" in err


def test_divergence_has_its_own_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROBES, "overflowing", OverflowProbe)
    with quickly():
        code, out, err = call(capsys, "train", *arguments(overflow_config()), "--run-dir", tmp_path / "run", "--quiet")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("error: training diverged at learner step 13: the ")
    assert f"the last good checkpoint is of step {3 * DISPATCH}" in err
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps()[-1] == 3 * DISPATCH


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (SignalGuard.StoppedBySignal(signal.SIGINT), (130, "", "")),
        (SignalGuard.StoppedBySignal(signal.SIGTERM), (143, "", "")),
        (KeyboardInterrupt(), (130, "", "interrupted\n")),
    ],
    ids=["SIGINT", "SIGTERM", "at once"],
)
def test_interrupted_command_has_the_exit_code_of_the_shell(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    expected: tuple[int, str, str],
) -> None:
    def train(*arguments: Any, **settings: Any) -> None:
        raise stop

    monkeypatch.setattr(train_module, "train", train)
    assert call(capsys, "train") == expected


def test_an_error_that_ctrl_c_has_caused_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a compiler does that calls Python back."""

    def interrupted(arguments: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise RuntimeError("INTERNAL: a callback failed") from None
        return 0

    monkeypatch.setattr(command_line_main, "_run", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["presets"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "interrupted\n"
