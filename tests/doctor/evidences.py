"""Evidence made by hand: that of a healthy run, and what is changed of it."""

import dataclasses
from typing import Any

from byol_explore.doctor.evidence import BoundaryProbe, Evidence, Probe, TargetProbe, TaskProbe
from byol_explore.settings.config import Config
from byol_explore.settings.presets import make_config
from byol_explore.spaces import ActionSpec

TASK = TaskProbe(
    distinct=700, spread=0.3, rank=6.0, intrinsic=0.02, extrinsic=0.03, entropy=0.7, stddev=None, target_mean=0.02,
    target_stddev=0.005, popart_mean=0.02, popart_scale=0.02, explained=0.4,
)  # fmt: skip
PROBE = Probe(
    steps=1_000_000,
    learner_steps=2000,
    tasks={"rooms-4": TASK},
    target=TargetProbe(distance=0.06, step=0.01, moved=0.03),
    boundary=BoundaryProbe(ends=160, transitions=5120, reward=0.0, counted=1e-8, leak=0.0),
    uncertainty=(0.35, 0.3),
    normalizer=(0.4, 0.3),
    intrinsic_reward=0.35,
    paid_share=0.4,
    temperature=0.01,
    multipliers={"categorical": 0.05},
    largest={"parameters": 5.0, "optimizer": 0.03, "statistics": 2.0},
    not_finite=None,
)
ROW: dict[str, Any] = {
    "steps": 1000, "learner_steps": 2000, "success_rate": 0.1, "return_mean": None, "paid_share": 0.4,
    "paid_reward": [0.3], "paying_share": 0.9, "error_growth": 1.5, "uncertainty": 0.4, "temperature": 0.02,
    "advantage_stddev": 0.01, "kl": 0.003, "kl_multiplier": 0.05, "entropy": 1.2, "gradient_norm": 2.0,
    "uncertainty_stddev": 0.3, "intrinsic_reward": 0.3, "value_scale": 0.02, "embedding_spread": 0.3,
    "target_distance": 0.06,
}  # fmt: skip
HEALTHY = Evidence(make_config(), [ROW] * 6, ActionSpec(discrete=(6,)), PROBE)


def with_config(method: str = "byol-explore", ablation: str = "none", **curiosity: Any) -> Evidence:
    """A healthy run of another configuration."""
    config = make_config("grid", ablation, method)
    changed = dataclasses.replace(config, curiosity=dataclasses.replace(config.curiosity, **curiosity))
    return dataclasses.replace(HEALTHY, config=changed)


def probed(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """With other numbers in the probe."""
    return dataclasses.replace(evidence, probe=PROBE._replace(**changes))


def seen(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """With other numbers in the probe's one task."""
    return probed(evidence, tasks={"rooms-4": TASK._replace(**changes)})


def logged(evidence: Evidence = HEALTHY, **changes: Any) -> Evidence:
    """With other numbers in every line of the metrics."""
    return dataclasses.replace(evidence, rows=[{**ROW, **changes}] * 6)


def without_probe(evidence: Evidence = HEALTHY) -> Evidence:
    return dataclasses.replace(evidence, probe=None, why_no_probe="the run has no checkpoint")


def changed(config: Config, **changes: Any) -> Evidence:
    return dataclasses.replace(HEALTHY, config=dataclasses.replace(config, **changes))
