"""Evidence made by hand: a healthy run and changes of it."""

import dataclasses
from typing import Any

from byol_explore.config.config import Config
from byol_explore.config.presets import make_config
from byol_explore.doctor.evidence import BoundaryMeasurement, Evidence, Measurements, TargetMeasurement, TaskMeasurement
from byol_explore.spaces import ActionSpec

TASK = TaskMeasurement(
    distinct_observations=700, embedding_spread=0.3, effective_rank=6.0, intrinsic_magnitude=0.02,
    extrinsic_magnitude=0.03, normalized_entropy=0.7, min_action_std=None, value_target_mean=0.02,
    value_target_std=0.005, popart_mean=0.02, popart_std=0.02, explained_variance=0.4,
)  # fmt: skip
PROBE = Measurements(
    steps=1_000_000,
    learner_steps=2000,
    tasks={"rooms-4": TASK},
    target=TargetMeasurement(relative_distance=0.06, step_fraction=0.01, relative_change=0.03),
    boundary=BoundaryMeasurement(
        episode_ends=160, transitions=5120, max_reward=0.0, normalizer_error=1e-8, uncertainty_leak=0.0
    ),
    uncertainty_moments=(0.35, 0.3),
    normalizer_moments=(0.4, 0.3),
    intrinsic_reward=0.35,
    intrinsic_nonzero_fraction=0.4,
    temperature=1.0,
    kl_multipliers={"categorical": 0.05},
    max_magnitude={"parameters": 5.0, "optimizer": 0.03, "statistics": 2.0},
    first_nonfinite=None,
)
ROW: dict[str, Any] = {
    "steps": 1000, "learner_steps": 2000, "success_rate": 0.1, "return_mean": None, "intrinsic_nonzero_fraction": 0.4,
    "intrinsic_reward_per_task": [0.3], "active_update_fraction": 0.9, "prediction_error_growth": 1.5,
    "uncertainty": 0.4, "temperature": 2.0,
    "advantage_std": 1.0, "kl": 0.003, "kl_multiplier_mean": 0.05, "entropy": 1.2, "grad_norm": 2.0,
    "uncertainty_running_std": 0.3, "intrinsic_reward": 0.3, "popart_std": 0.02, "embedding_spread": 0.3,
    "target_relative_distance": 0.06,
}  # fmt: skip
HEALTHY = Evidence(make_config(), [ROW] * 6, ActionSpec(discrete=(6,)), PROBE)


def with_config(method: str = "byol-explore", ablation: str = "none", **curiosity: Any) -> Evidence:
    """Return a healthy run of another configuration."""
    config = make_config("grid", ablation, method)
    changed = dataclasses.replace(config, curiosity=dataclasses.replace(config.curiosity, **curiosity))
    return dataclasses.replace(HEALTHY, config=changed)


def with_probe(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """Change measurements of the probe."""
    return dataclasses.replace(evidence, probe=PROBE._replace(**changes))


def with_task(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """Change measurements of the probe's only task."""
    return with_probe(evidence, tasks={"rooms-4": TASK._replace(**changes)})


def with_metrics(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """Change metrics in every row of the log."""
    return dataclasses.replace(evidence, rows=[{**ROW, **changes}] * 6)


def without_probe(evidence: Evidence = HEALTHY) -> Evidence:
    return dataclasses.replace(evidence, probe=None, why_no_probe="the run has no checkpoint")


def with_fields(config: Config, **changes: Any) -> Evidence:
    return dataclasses.replace(HEALTHY, config=dataclasses.replace(config, **changes))
