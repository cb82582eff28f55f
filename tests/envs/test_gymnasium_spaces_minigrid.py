"""Farama's MiniGrid through Gymnasium: spaces of symbols, directions and missions; training."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from agent.test_learner_probes import NETWORK
from byol_explore.config.config import Config
from byol_explore.config.sections import CuriosityConfig, NetworkConfig, RuntimeConfig
from byol_explore.doctor.diagnose import diagnose
from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.gymnasium_spaces import hash_tokens, minigrid_symbol_counts
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.report import figures
from byol_explore.spaces import ActionSpec, Grid, Tokens, Vector
from byol_explore.storage.metrics import read_metrics
from byol_explore.training import train
from byol_explore.types import Action
from envs.scripted import open_batch

if not os.environ.get("BYOL_EXPLORE_CI"):
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")

DOOR_KEY = "minigrid:MiniGrid-DoorKey-8x8-v0"
SYMBOLS = (11, 6, 4)


def test_spec_of_an_environment() -> None:
    spec = GymnasiumEnv(DOOR_KEY).spec
    assert spec.observation == {"direction": Vector(4), "image": Grid(7, 7, SYMBOLS), "mission": Tokens(32, 256)}
    assert spec.action == ActionSpec((7,))


@pytest.mark.parametrize("env_id", [DOOR_KEY, "minigrid:MiniGrid-GoToObject-8x8-N2-v0"])
def test_observations_are_as_specified(env_id: str) -> None:
    rng = np.random.default_rng(0)
    with open_batch(GymnasiumEnv(env_id), 4) as batch:
        timestep = batch.reset()
        for _ in range(60):
            observation = timestep.observation
            assert np.all(observation["image"] < SYMBOLS)
            assert np.all(observation["direction"].sum(axis=-1) == 1)
            missions = [env.unwrapped.mission for env in batch._vector.envs]
            assert observation["mission"].tolist() == [list(hash_tokens(mission)) for mission in missions]
            assert all(np.count_nonzero(row) > 0 for row in observation["mission"])
            timestep = batch.step(Action(rng.integers(0, 7, (4, 1)).astype(np.int32), np.zeros((4, 0), np.float32)))


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        ([], {"image": SYMBOLS}),
        (["FullyObsWrapper"], {"image": SYMBOLS}),
        (["ImgObsWrapper"], {"": SYMBOLS}),
        (["RGBImgPartialObsWrapper"], {}),
        (["RGBImgPartialObsWrapper", "ImgObsWrapper"], {}),
        (["OneHotPartialObsWrapper"], {}),
    ],
)
def test_wrappers_with_pixels_or_one_hots_have_no_symbols(wrappers: list[str], expected: dict[str, Any]) -> None:
    import minigrid.wrappers

    env = gymnasium.make(DOOR_KEY)
    for name in wrappers:
        env = getattr(minigrid.wrappers, name)(env)
    assert minigrid_symbol_counts(env) == expected
    env.close()


def test_other_environments_have_no_symbols() -> None:
    env = gymnasium.make("CartPole-v1")
    assert minigrid_symbol_counts(env) == {}
    env.close()


def trained(directory: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """Train a short run; its directory names external code."""
    monkeypatch.setattr(figures, "draw_curves", lambda directory: None)
    monkeypatch.setenv("BYOL_EXPLORE_TRUST", "1")
    config = Config(
        env=f"gymnasium:{DOOR_KEY}", steps=400, network=NETWORK, curiosity=CuriosityConfig(horizon=2),
        runtime=RuntimeConfig(num_envs=4, batch_size=4, sequence_length=11, rounds_per_dispatch=2, num_devices=1,
                              synchronous=True),
    )  # fmt: skip
    summary = train.train(dataclasses.replace(config, **changes), directory, quiet=True)
    row = read_metrics(directory / "metrics.jsonl")[-1]
    assert row["steps"] == summary["steps"]
    assert np.isfinite(row["loss"])
    return directory


def test_training_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without centred encoders, which take longer than the rest."""
    directory = trained(tmp_path / "run", monkeypatch, network=dataclasses.replace(NETWORK, center_encoders=False))
    assert read_metrics(directory / "metrics.jsonl")[-1]["uncertainty"] > 0.0


@pytest.mark.slow
def test_default_networks_train_and_are_evaluated_and_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = trained(tmp_path / "run", monkeypatch, network=NetworkConfig())
    assert read_metrics(directory / "metrics.jsonl")[-1]["embedding_spread"] > 0.3
    assert evaluate(directory, episodes=2)["tasks"]
    assert {finding.check for finding in diagnose(directory)}
