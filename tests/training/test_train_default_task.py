"""The claim of the README: the default agent solves the default task in minutes, and fails without curiosity."""

import dataclasses
from pathlib import Path

import pytest

from byol_explore.config.presets import make_config
from byol_explore.training.train import train


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_curiosity_solves_the_default_task_within_five_minutes(tmp_path: Path, seed: int) -> None:
    config = dataclasses.replace(make_config(), seed=seed)
    summary = train(config, tmp_path / "run")
    assert summary["success_rate"] >= 0.95
    assert summary["seconds"] < 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_curiosity_the_default_task_is_not_solved(tmp_path: Path, seed: int) -> None:
    config = dataclasses.replace(make_config(method="none"), seed=seed)
    summary = train(config, tmp_path / "run")
    assert summary["success_rate"] < 0.05
