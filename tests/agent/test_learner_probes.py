"""Learning tests: training runs on probe environments with known values."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from byol_explore.config.config import Config
from byol_explore.config.sections import (
    AgentConfig,
    CuriosityConfig,
    NetworkConfig,
    OptimizerConfig,
    RuntimeConfig,
    VMPOConfig,
)
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.loop import RunSummary
from byol_explore.training.train import train

NETWORK = NetworkConfig(
    encoder_hidden=(32,), embedding_size=32, belief_size=32, policy_hidden=(32,), value_hidden=(32,),
    predictor_hidden=(32,), action_embedding_size=8,
)  # fmt: skip
GAMMA = 0.9
QUICK = OptimizerConfig(learning_rate=5e-3)


def run(directory: Path, env: str, steps: int, method: str = "none", **changes: Any) -> RunSummary:
    vmpo = VMPOConfig(init_temperature=0.1, init_alpha_mean=0.1, epsilon_mean=0.01, init_alpha_covariance=0.1,
                      epsilon_covariance=0.001)  # fmt: skip
    config = Config(
        env=f"probe:{env}",
        method=method,
        steps=steps,
        network=NETWORK,
        curiosity=CuriosityConfig(horizon=3, mixing=0.05),
        agent=AgentConfig(gamma=GAMMA, popart_step_size=0.03),
        vmpo=vmpo,
        optimizer=OptimizerConfig(learning_rate=2e-3),
        runtime=RuntimeConfig(num_envs=32, batch_size=8, sequence_length=17, rounds_per_dispatch=8, num_devices=1),
    )
    return train(dataclasses.replace(config, **changes), directory / env, quiet=True)


def rows(summary: RunSummary) -> list[dict[str, Any]]:
    return read_metrics(summary.run_dir / "metrics.jsonl")


def test_memory_is_learned_and_does_not_leak_between_episodes(tmp_path: Path) -> None:
    """A cue at the start decides the reward six steps later; without memory at most half of the episodes succeed."""
    summary = run(tmp_path, "memory", 200_000, optimizer=QUICK, stop_at_success_rate=0.96)
    assert summary["success_rate"] > 0.95


def test_hybrid_actions_are_learned_in_both_parts(tmp_path: Path) -> None:
    """A wrong category costs 1, a random number about 0.67: a return above 0.85 needs both to be right."""
    summary = run(tmp_path, "hybrid", 250_000, optimizer=QUICK)
    assert summary["return_mean"] > 0.85


@pytest.mark.parametrize(("env", "expected"), [
    ("truncated", 1.0),
    ("terminated", sum(1 - GAMMA**n for n in range(1, 9)) / 8),
])  # fmt: skip
def test_value_bootstraps_at_truncation_and_not_at_termination(tmp_path: Path, env: str, expected: float) -> None:
    """With reward 1 - gamma per step the value is 1 if truncated, and 1 - gamma^n with n steps left if terminated."""
    summary = run(tmp_path, env, 120_000, optimizer=QUICK)
    assert rows(summary)[-1]["value"] == pytest.approx(expected, abs=0.03)


def test_corridor_end_is_found_with_curiosity_and_not_without(tmp_path: Path) -> None:
    """The entropy bonus keeps the policy without reward from drifting to the end."""
    agent = AgentConfig(gamma=GAMMA, popart_step_size=0.03, entropy_weight=0.1)
    found = run(tmp_path / "with", "corridor", 750_000, "byol-explore", agent=agent, stop_at_success_rate=0.9)
    assert found["success_rate"] > 0.9
    assert run(tmp_path / "without", "corridor", found["steps"], "none", agent=agent)["success_rate"] == 0.0
