"""Every field of the configuration is an option."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from byol_explore.run import training
from byol_explore.run.directory import default_run_dir, write_config
from byol_explore.run.loop import Summary
from byol_explore.settings.config import Config
from byol_explore.settings.methods import prioritizes
from byol_explore.settings.presets import PRESETS
from command_line import call
from runs import (
    arguments,
    tiny,
)

NOTHING = {"success_rate": None, "return_mean": None, "episodes": 0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `train` was called with, instead of training."""
    calls: list[Any] = []

    def train(config: Config, run_dir: Path | None, *, resume: bool, force: bool, quiet: bool) -> Summary:
        assert not (force and resume)
        calls.append((config, run_dir, resume, quiet))
        return Summary(Path("somewhere"), {**NOTHING, "steps": 0, "seconds": 0.0})

    monkeypatch.setattr(training, "train", train)
    return calls


def test_any_field_can_be_given(capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    words = ("--env", "rooms-3", "--seed", "7", "--steps", "1000", "--curiosity.horizon", "3", "--curiosity.no-share",
             "--curiosity.prioritize", "False", "--network.encoder-hidden", "32", "16", "--network.core", "lstm",
             "--network.core-reads", "arm", "leg", "--network.no-normalize-vectors",
             "--agent.gamma", "0.9", "--optimizer.learning-rate", "3e-4", "--runtime.num-envs", "32",
             "--log.tensorboard", "--stop-at-success", "0.5", "--success-above", "-100.5",
             "--run-dir", "x/y", "--quiet")  # fmt: skip
    code, out, err = call(capsys, "train", *words)
    assert (code, out, err) == (0, "", "")
    [(config, run_dir, resume, quiet)] = asked
    assert (run_dir, resume, quiet) == (Path("x/y"), False, True)
    assert (config.env, config.seed, config.steps, config.stop_at_success) == ("rooms-3", 7, 1000, 0.5)
    assert config.success_above == -100.5
    assert (config.curiosity.horizon, config.curiosity.share, config.curiosity.prioritize) == (3, False, False)
    assert (config.network.encoder_hidden, config.network.core) == ((32, 16), "lstm")
    assert (config.network.core_reads, config.network.normalize_vectors) == (("arm", "leg"), False)
    assert (config.agent.gamma, config.optimizer.learning_rate) == (0.9, 3e-4)
    assert (config.runtime.num_envs, config.log.tensorboard) == (32, True)


@pytest.mark.parametrize(
    ("word", "number"),
    [("1e6", 1_000_000), ("2.5e6", 2_500_000), ("1_000_000", 1_000_000), ("3.0", 3), ("1E3", 1000), ("+7", 7)],
)
def test_whole_numbers_as_people_write_them(
    capsys: pytest.CaptureFixture[str], asked: list[Any], word: str, number: int
) -> None:
    words = ("--steps", word, "--seed", word, "--curiosity.embedding-size", word, "--network.value-hidden", word, "2e1")
    code, _, err = call(capsys, "train", *words)
    assert (code, err) == (0, "")
    [(config, *_)] = asked
    assert (config.steps, config.seed, config.curiosity.embedding_size) == (number, number, number)
    assert config.network.value_hidden == (number, 20)
    assert {type(config.steps), type(config.network.value_hidden[1])} == {int}


def test_every_field_of_a_config_goes_through_the_command_line(
    capsys: pytest.CaptureFixture[str], asked: list[Any]
) -> None:
    config = tiny(devices=2, seed=3, regime="intrinsic", stop_at_success=0.25, log={"wandb": True, "window": 17})
    assert call(capsys, "train", *arguments(config))[0] == 0
    assert asked[0][0] == config


def test_the_default_is_the_preset(capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    code, out, _ = call(capsys, "train")
    assert code == 0
    assert asked == [(PRESETS.get("grid").config, None, False, False)]
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
    assert prioritizes(asked[2][0])


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
    config = dataclasses.replace(tiny("rnd"), seed=5, regime="intrinsic", ablation="prioritized", algorithm="ppo")
    write_config(default_run_dir(config), config)
    options = ("--env", config.env, "--method", "rnd", "--ablation", "prioritized", "--seed", "5")
    code, *_ = call(capsys, "train", "--resume", *options, "--regime", "intrinsic", "--algorithm", "ppo")
    assert code == 0
    assert asked[0][0] == config
