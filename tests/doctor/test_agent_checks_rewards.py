"""Checks of the intrinsic reward, on both sides of their thresholds."""

import dataclasses

import pytest
from evidences import TASK, with_config, with_fields, with_metrics, with_probe, with_task

from byol_explore.config.presets import make_config
from byol_explore.config.sections import PPOConfig
from byol_explore.doctor.agent_checks import check_intrinsic_reward, check_mixing
from byol_explore.doctor.evidence import Evidence


def two_tasks(left: float, right: float, scale_step: float = 0.0, **curiosity: bool) -> Evidence:
    """Return a run on two tasks with these intrinsic rewards."""
    config = with_config(**curiosity).config
    agent = dataclasses.replace(config.agent, intrinsic_rms_step_size=scale_step)
    return with_metrics(
        with_fields(config, env="rooms-4,rooms-6", agent=agent), intrinsic_reward_per_task=[left, right]
    )


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, "fail"), (0.9, "warn"), (0.5, "pass"), (0.1, "pass"), (0.01, "warn"), (0.0, "fail")]
)
def test_share_of_rewarded_transitions(share: float, verdict: str) -> None:
    assert check_intrinsic_reward(with_metrics(intrinsic_nonzero_fraction=share)).verdict == verdict
    before_the_first_line = dataclasses.replace(with_probe(intrinsic_nonzero_fraction=share), rows=[])
    assert check_intrinsic_reward(before_the_first_line).verdict == verdict


@pytest.mark.parametrize(("method", "ablation"), [("byol-explore", "no-clipping"), ("rnd", "none")])
def test_without_clipping_every_transition_may_be_rewarded(method: str, ablation: str) -> None:
    assert (
        check_intrinsic_reward(with_metrics(with_config(method, ablation), intrinsic_nonzero_fraction=1.0)).verdict
        == "pass"
    )
    assert (
        check_intrinsic_reward(with_metrics(with_config(method, ablation), intrinsic_nonzero_fraction=0.0)).verdict
        == "fail"
    )


def test_reward_check_is_skipped_without_intrinsic_reward() -> None:
    assert check_intrinsic_reward(with_fields(make_config(), regime="extrinsic")).verdict == "skipped"


@pytest.mark.parametrize(
    ("learner_steps", "decay", "verdict"), [(200, 0.99, "warn"), (501, 0.99, "fail"), (200, 0.9, "fail")]
)
def test_statistics_may_forget_the_first_errors(learner_steps: int, decay: float, verdict: str) -> None:
    silent = with_metrics(
        with_config(normalizer_decay=decay), intrinsic_nonzero_fraction=1e-4, learner_steps=learner_steps
    )
    assert check_intrinsic_reward(dataclasses.replace(silent, probe=None)).verdict == verdict


@pytest.mark.parametrize(("learner_steps", "verdict"), [(600, "warn"), (1999, "warn"), (2000, "fail")])
def test_normalizer_updates_of_ppo_ignore_epochs(learner_steps: int, verdict: str) -> None:
    """PPO learns from each rollout four times; its statistics take it in once."""
    config = dataclasses.replace(with_config().config, algorithm="ppo", ppo=PPOConfig(epochs=4))
    silent = with_metrics(with_fields(config), intrinsic_nonzero_fraction=1e-4, learner_steps=learner_steps)
    for action in (silent.action, None):
        assert check_intrinsic_reward(dataclasses.replace(silent, probe=None, action=action)).verdict == verdict


@pytest.mark.parametrize(("decay", "advised"), [(0.99, True), (0.9, False)])
def test_advice_separates_old_statistics_from_a_collapse(decay: float, advised: bool) -> None:
    silent = with_metrics(
        with_config(normalizer_decay=decay),
        intrinsic_nonzero_fraction=1e-4,
        uncertainty=0.02,
        uncertainty_running_std=1.0,
    )
    advice = check_intrinsic_reward(silent).advice
    assert "the running deviation (1) is still that of larger errors (now 0.02)" in advice
    assert ("lower curiosity.normalizer_decay" in advice) == advised
    assert "see embedding_collapse" in check_intrinsic_reward(with_metrics(intrinsic_nonzero_fraction=1e-4)).advice


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "pass"), (0.3, "warn")])
def test_active_update_fraction_threshold(share: float, verdict: str) -> None:
    finding = check_intrinsic_reward(with_metrics(active_update_fraction=share))
    assert finding.verdict == verdict
    assert f"paid in {share:.0%} of the learner steps" in finding.detail


def test_unrewarded_task_is_named_with_advice() -> None:
    assert check_intrinsic_reward(two_tasks(0.3, 0.3)).verdict == "pass"
    finding = check_intrinsic_reward(two_tasks(0.3, 0.002))
    assert finding.verdict == "warn"
    assert "next to nothing in rooms-6" in finding.detail
    assert "agent.intrinsic_rms_step_size (it is 0)" in finding.advice
    both = check_intrinsic_reward(two_tasks(0.3, 0.002, scale_step=0.01)).advice
    assert "statistics of its own already" in both
    assert "of all tasks" not in both
    apart = check_intrinsic_reward(two_tasks(0.3, 0.002, scale_step=0.01, normalize_per_task=False)).advice
    assert "below the mean uncertainty of all tasks: turn on curiosity.normalize_per_task, which is off" in apart


def test_task_without_a_logged_reward_is_not_called_unpaid() -> None:
    evidence = two_tasks(0.3, 0.0)
    rows = [row | {"intrinsic_reward_per_task": [0.3, None]} for row in evidence.rows]
    assert check_intrinsic_reward(dataclasses.replace(evidence, rows=rows)).verdict == "pass"
    mixed = [*rows[:-1], evidence.rows[-1]]
    assert "next to nothing in rooms-6" in check_intrinsic_reward(dataclasses.replace(evidence, rows=mixed)).detail


# Mixing


@pytest.mark.parametrize(
    ("intrinsic", "extrinsic", "verdict"),
    [
        (0.02, 0.0, "pass"),  # nothing found yet: curiosity is all there is
        (0.0, 0.0, "fail"),
        (0.001, 0.2, "pass"),
        (0.0001, 0.2, "warn"),
        (0.2, 0.001, "warn"),
    ],
)
def test_mixing_share_thresholds(intrinsic: float, extrinsic: float, verdict: str) -> None:
    assert check_mixing(with_task(intrinsic_magnitude=intrinsic, extrinsic_magnitude=extrinsic)).verdict == verdict


def test_mixing_verdict_is_that_of_the_worst_task() -> None:
    silent = TASK._replace(intrinsic_magnitude=0.0, extrinsic_magnitude=0.0)
    found = check_mixing(with_probe(two_tasks(0.3, 0.3), tasks={"rooms-4": TASK, "rooms-6": silent}))
    assert found.verdict == "fail"
    assert "rewards in rooms-6 are small" in found.advice
    assert "agent.intrinsic_rms_step_size" in found.advice
    assert "no intrinsic reward to mix" in check_mixing(with_probe(tasks={"rooms-6": silent})).advice
    assert "curiosity.mixing" in check_mixing(with_task(intrinsic_magnitude=0.2, extrinsic_magnitude=0.001)).advice


def test_mixing_is_skipped_in_other_regimes() -> None:
    evidence: Evidence = with_fields(make_config(), regime="intrinsic")
    assert check_mixing(evidence).verdict == "skipped"
