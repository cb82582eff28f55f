"""The checks of what curiosity pays on evidence made by hand, both sides of their thresholds."""

import dataclasses

import pytest
from evidences import TASK, changed, logged, probed, seen, with_config

from byol_explore.doctor.evidence import Evidence
from byol_explore.doctor.payment_checks import check_mixing, check_paid
from byol_explore.settings.parts import PPOConfig
from byol_explore.settings.presets import make_config


def two_tasks(left: float, right: float, scale_step: float = 0.0, **curiosity: bool) -> Evidence:
    """A run on two tasks that are paid these rewards."""
    config = with_config(**curiosity).config
    agent = dataclasses.replace(config.agent, intrinsic_scale_step=scale_step)
    return logged(changed(config, env="rooms-4,rooms-6", agent=agent), paid_reward=[left, right])


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, "bad"), (0.9, "warning"), (0.5, "ok"), (0.1, "ok"), (0.01, "warning"), (0.0, "bad")]
)
def test_about_half_or_less_is_paid(share: float, verdict: str) -> None:
    assert check_paid(logged(paid_share=share)).verdict == verdict
    before_the_first_line = dataclasses.replace(probed(paid_share=share), rows=[])
    assert check_paid(before_the_first_line).verdict == verdict


@pytest.mark.parametrize(("method", "ablation"), [("byol-explore", "no-clipping"), ("rnd", "none")])
def test_who_does_not_clip_pays_everything(method: str, ablation: str) -> None:
    assert check_paid(logged(with_config(method, ablation), paid_share=1.0)).verdict == "ok"
    assert check_paid(logged(with_config(method, ablation), paid_share=0.0)).verdict == "bad"


def test_a_curiosity_that_is_not_added_pays_nobody() -> None:
    assert check_paid(changed(make_config(), regime="extrinsic")).verdict == "not used"


@pytest.mark.parametrize(
    ("learner_steps", "decay", "verdict"), [(200, 0.99, "warning"), (501, 0.99, "bad"), (200, 0.9, "bad")]
)
def test_statistics_are_given_time_to_forget_the_first_errors(learner_steps: int, decay: float, verdict: str) -> None:
    silent = logged(with_config(normalizer_decay=decay), paid_share=1e-4, learner_steps=learner_steps)
    assert check_paid(dataclasses.replace(silent, probe=None)).verdict == verdict


@pytest.mark.parametrize(("learner_steps", "verdict"), [(600, "warning"), (1999, "warning"), (2000, "bad")])
def test_a_rollout_that_is_learned_from_again_is_forgotten_no_faster(learner_steps: int, verdict: str) -> None:
    """PPO's statistics take in every batch once, and learns from it four times."""
    config = dataclasses.replace(with_config().config, algorithm="ppo", ppo=PPOConfig(epochs=4))
    silent = logged(changed(config), paid_share=1e-4, learner_steps=learner_steps)
    for action in (silent.action, None):
        assert check_paid(dataclasses.replace(silent, probe=None, action=action)).verdict == verdict


@pytest.mark.parametrize(("decay", "advised"), [(0.99, True), (0.9, False)])
def test_old_statistics_are_told_from_embeddings_that_do_not_differ(decay: float, advised: bool) -> None:
    silent = logged(with_config(normalizer_decay=decay), paid_share=1e-4, uncertainty=0.02, uncertainty_stddev=1.0)
    advice = check_paid(silent).advice
    assert "the running deviation (1) is still that of larger errors (now 0.02)" in advice
    assert ("lower curiosity.normalizer_decay" in advice) == advised
    assert "see the embedding" in check_paid(logged(paid_share=1e-4)).advice


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "ok"), (0.3, "warning")])
def test_curiosity_pays_in_most_of_a_run(share: float, verdict: str) -> None:
    finding = check_paid(logged(paying_share=share))
    assert finding.verdict == verdict
    assert f"paid in {share:.0%} of the learner steps" in finding.detail


def test_a_task_that_is_paid_nothing_is_named_and_gets_a_scale_of_its_own() -> None:
    assert check_paid(two_tasks(0.3, 0.3)).verdict == "ok"
    finding = check_paid(two_tasks(0.3, 0.002))
    assert finding.verdict == "warning"
    assert "next to nothing in rooms-6" in finding.detail
    assert "agent.intrinsic_scale_step (it is 0)" in finding.advice
    both = check_paid(two_tasks(0.3, 0.002, scale_step=0.01)).advice
    assert "statistics of its own already" in both
    assert "of all tasks" not in both
    apart = check_paid(two_tasks(0.3, 0.002, scale_step=0.01, normalize_per_task=False)).advice
    assert "below the mean uncertainty of all tasks: turn on curiosity.normalize_per_task, which is off" in apart


# Mixing


@pytest.mark.parametrize(
    ("intrinsic", "extrinsic", "verdict"),
    [
        (0.02, 0.0, "ok"),  # nothing found yet: curiosity is all there is
        (0.0, 0.0, "bad"),
        (0.001, 0.2, "ok"),
        (0.0001, 0.2, "warning"),
        (0.2, 0.001, "warning"),
    ],
)
def test_curiosity_neither_drowns_nor_is_drowned(intrinsic: float, extrinsic: float, verdict: str) -> None:
    assert check_mixing(seen(intrinsic=intrinsic, extrinsic=extrinsic)).verdict == verdict


def test_the_worst_mixed_task_decides() -> None:
    silent = TASK._replace(intrinsic=0.0, extrinsic=0.0)
    found = check_mixing(probed(two_tasks(0.3, 0.3), tasks={"rooms-4": TASK, "rooms-6": silent}))
    assert found.verdict == "bad"
    assert "rewards in rooms-6 are small" in found.advice
    assert "agent.intrinsic_scale_step" in found.advice
    assert "pays nothing" in check_mixing(probed(tasks={"rooms-6": silent})).advice
    assert "curiosity.mixing" in check_mixing(seen(intrinsic=0.2, extrinsic=0.001)).advice


def test_curiosity_alone_has_nothing_to_mix() -> None:
    evidence: Evidence = changed(make_config(), regime="intrinsic")
    assert check_mixing(evidence).verdict == "not used"
