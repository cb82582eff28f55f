"""The promise of the README: curiosity solves the default task in minutes, the same agent without it does not."""

import dataclasses
from pathlib import Path

import pytest

from byol_explore.run.training import train
from byol_explore.settings.presets import make_config


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_curiosity_solves_the_default_task_within_five_minutes(tmp_path: Path, seed: int) -> None:
    config = dataclasses.replace(make_config(), seed=seed)
    summary = train(config, tmp_path / "run")
    assert summary["success_rate"] >= 0.95
    assert summary["seconds"] < 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_pure_reinforcement_learning_does_not(tmp_path: Path, seed: int) -> None:
    config = dataclasses.replace(make_config(method="none"), seed=seed)
    summary = train(config, tmp_path / "run")
    assert summary["success_rate"] < 0.05
