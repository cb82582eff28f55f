"""Options of `byol-explore train`."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from byol_explore.config.config import Config, is_prioritized
from byol_explore.config.presets import PRESETS
from byol_explore.storage.run_directory import default_run_dir, write_config
from byol_explore.training import train as train_module
from byol_explore.training.loop import RunSummary
from command_line import call
from runs import (
    arguments,
    tiny,
)

NOTHING = {"success_rate": None, "return_mean": None, "num_episodes": 0}


@pytest.fixture
def train_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the arguments of `train` instead of training."""
    calls: list[Any] = []

    def train(
        config: Config, run_dir: Path | None, *, resume: bool, force: bool, quiet: bool, accept_config: bool
    ) -> RunSummary:  # fmt: skip
        assert not (force and resume)
        calls.append((config, run_dir, resume, quiet))
        return RunSummary(Path("somewhere"), {**NOTHING, "steps": 0, "seconds": 0.0})

    monkeypatch.setattr(train_module, "train", train)
    return calls


def test_options_set_fields(capsys: pytest.CaptureFixture[str], train_calls: list[Any]) -> None:
    words = ("--env", "rooms-3", "--seed", "7", "--steps", "1000", "--curiosity.horizon", "3",
             "--curiosity.no-share-representation",
             "--curiosity.prioritize", "False", "--network.encoder-hidden", "32", "16", "--network.core", "lstm",
             "--network.core-inputs", "arm", "leg", "--network.no-normalize-vectors",
             "--agent.gamma", "0.9", "--optimizer.learning-rate", "3e-4", "--runtime.num-envs", "32",
             "--log.tensorboard", "--stop-at-success-rate", "0.5", "--success-threshold", "-100.5",
             "--run-dir", "x/y", "--quiet")  # fmt: skip
    code, out, err = call(capsys, "train", *words)
    assert (code, out, err) == (0, "", "")
    [(config, run_dir, resume, quiet)] = train_calls
    assert (run_dir, resume, quiet) == (Path("x/y"), False, True)
    assert (config.env, config.seed, config.steps, config.stop_at_success_rate) == ("rooms-3", 7, 1000, 0.5)
    assert config.success_threshold == -100.5
    assert (config.curiosity.horizon, config.curiosity.share_representation, config.curiosity.prioritize) == (
        3,
        False,
        False,
    )
    assert (config.network.encoder_hidden, config.network.core) == ((32, 16), "lstm")
    assert (config.network.core_inputs, config.network.normalize_vectors) == (("arm", "leg"), False)
    assert (config.agent.gamma, config.optimizer.learning_rate) == (0.9, 3e-4)
    assert (config.runtime.num_envs, config.log.tensorboard) == (32, True)


@pytest.mark.parametrize(
    ("word", "number"),
    [("1e6", 1_000_000), ("2.5e6", 2_500_000), ("1_000_000", 1_000_000), ("3.0", 3), ("1E3", 1000), ("+7", 7)],
)
def test_notations_of_whole_numbers(
    capsys: pytest.CaptureFixture[str], train_calls: list[Any], word: str, number: int
) -> None:
    words = ("--steps", word, "--seed", word, "--curiosity.embedding-size", word, "--network.value-hidden", word, "2e1")
    code, _, err = call(capsys, "train", *words)
    assert (code, err) == (0, "")
    [(config, *_)] = train_calls
    assert (config.steps, config.seed, config.curiosity.embedding_size) == (number, number, number)
    assert config.network.value_hidden == (number, 20)
    assert {type(config.steps), type(config.network.value_hidden[1])} == {int}


def test_config_round_trip_through_the_command_line(capsys: pytest.CaptureFixture[str], train_calls: list[Any]) -> None:
    config = tiny(
        devices=2, seed=3, regime="intrinsic", stop_at_success_rate=0.25, log={"wandb": True, "episode_window": 17}
    )
    assert call(capsys, "train", *arguments(config))[0] == 0
    assert train_calls[0][0] == config


def test_defaults_are_those_of_the_preset(capsys: pytest.CaptureFixture[str], train_calls: list[Any]) -> None:
    code, out, _ = call(capsys, "train")
    assert code == 0
    assert train_calls == [(PRESETS.get("grid").config, None, False, False)]
    assert "no episode ended" in out


def test_options_override_an_ablation(capsys: pytest.CaptureFixture[str], train_calls: list[Any]) -> None:
    call(capsys, "train", "--ablation", "fixed-targets")
    call(capsys, "train", "--ablation=horizon-1", "--method=byol-explore")
    call(capsys, "train", "--ablation", "prioritized", "--method", "rnd")
    call(capsys, "train", "--ablation", "horizon-1", "--curiosity.horizon", "2")
    curiosity = [config.curiosity for config, *_ in train_calls]
    assert [config.ablation for config, *_ in train_calls] == ["fixed-targets", "horizon-1", "prioritized", "horizon-1"]
    assert curiosity[0].target_decay == 1.0
    assert [each.horizon for each in curiosity] == [5, 1, 5, 2]
    assert is_prioritized(train_calls[2][0])


@pytest.mark.parametrize("option", ["--run-dir", "--run_dir"])
def test_resume_reads_the_config_of_the_run(
    capsys: pytest.CaptureFixture[str], train_calls: list[Any], tmp_path: Path, option: str
) -> None:
    config = tiny(seed=5)
    write_config(tmp_path, config)
    code, *_ = call(capsys, "train", "--resume", option, tmp_path, "--steps", "999")
    assert code == 0
    assert train_calls == [(dataclasses.replace(config, steps=999), tmp_path, True, False)]


def test_resume_finds_the_default_directory(
    capsys: pytest.CaptureFixture[str], train_calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(tiny("rnd"), seed=5, regime="intrinsic", ablation="prioritized", algorithm="ppo")
    write_config(default_run_dir(config), config)
    options = ("--env", config.env, "--method", "rnd", "--ablation", "prioritized", "--seed", "5")
    code, *_ = call(capsys, "train", "--resume", *options, "--regime", "intrinsic", "--algorithm", "ppo")
    assert code == 0
    assert train_calls[0][0] == config
