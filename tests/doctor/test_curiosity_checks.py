"""Checks of target, normalizer and boundaries, on both sides of their thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, PROBE, with_config, with_metrics, with_probe, without_probe

from byol_explore.doctor.agent_checks import check_intrinsic_reward, check_mixing
from byol_explore.doctor.curiosity_checks import (
    check_boundaries,
    check_embedding,
    check_horizon,
    check_normalizer,
    check_target,
)

CHECKS = (
    check_target, check_embedding, check_horizon, check_normalizer, check_intrinsic_reward, check_boundaries,
    check_mixing,
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_healthy_run_passes_every_check(check) -> None:
    finding = check(HEALTHY)
    assert finding.verdict == "pass"
    assert finding.advice == "", "no advice with pass"
    assert finding.value is not None


@pytest.mark.parametrize("check", CHECKS)
def test_checks_are_skipped_without_curiosity(check) -> None:
    assert check(with_config("none")).verdict == "skipped"


@pytest.mark.parametrize("check", CHECKS)
def test_no_data_without_checkpoint_and_metrics_names_the_reason(check) -> None:
    finding = check(dataclasses.replace(without_probe(), rows=[]))
    assert finding.verdict == "no-data"
    assert finding.detail == "the run has no checkpoint, and its log has no line"


# Target


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"relative_change": 0.0}, "fail"),  # between two checkpoints
        ({"step_fraction": 0.0}, "fail"),  # in an update
        ({"step_fraction": 0.004}, "fail"),
        ({"relative_change": None}, "pass"),  # there is one checkpoint only
        ({"relative_distance": 0.0, "step_fraction": 0.0}, "warn"),
        ({"relative_distance": 0.8}, "warn"),
    ],
)
def test_target_must_move_and_stay_near_the_encoder(change: dict, verdict: str) -> None:
    assert check_target(with_probe(target=PROBE.target._replace(**change))).verdict == verdict


def test_target_decay_of_one_fails_unless_it_is_the_ablation() -> None:
    frozen = PROBE.target._replace(step_fraction=0.0, relative_change=0.0, relative_distance=1.4)
    by_hand = check_target(with_probe(with_config(target_decay=1.0), target=frozen))
    assert (by_hand.verdict, by_hand.value) == ("fail", 1.4)
    assert "fixed-targets" in by_hand.advice
    named = check_target(with_probe(with_config(ablation="fixed-targets"), target=frozen))
    assert named.verdict == "pass"
    assert "on purpose" in named.detail


def test_target_of_rnd_must_not_move() -> None:
    still = PROBE.target._replace(relative_distance=None, step_fraction=0.0, relative_change=0.0)
    assert check_target(with_probe(with_config("rnd"), target=still)).verdict == "pass"
    assert check_target(with_probe(with_config("rnd"), target=still._replace(relative_change=0.1))).verdict == "fail"


def test_target_check_is_skipped_for_icm() -> None:
    assert check_target(with_probe(with_config("icm"), target=None)).verdict == "skipped"


def test_target_distance_from_the_log_without_a_checkpoint() -> None:
    assert check_target(without_probe()).value == pytest.approx(0.06)
    assert check_target(without_probe(with_metrics(target_relative_distance=0.9))).verdict == "warn"


# Normaliser


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"normalizer_moments": (0.4, 0.9)}, "pass"),  # uncertainty falls while it is learned
        ({"normalizer_moments": (0.4, 6.0)}, "warn"),
        ({"normalizer_moments": (0.4, 3000.0)}, "fail"),
        ({"normalizer_moments": (90.0, 0.3)}, "fail"),
        ({"normalizer_moments": (float("nan"), 0.3)}, "fail"),
        ({"normalizer_moments": (0.4, 1e-4)}, "fail"),  # much smaller than what is seen now
        ({"normalizer_moments": (1e-4, 1e-4), "uncertainty_moments": (1e-4, 1e-4)}, "warn"),  # all is known
        ({"intrinsic_reward": 50.0}, "warn"),
        ({"intrinsic_reward": 5000.0}, "fail"),
    ],
)
def test_normalizer_must_fit_the_current_uncertainty(change: dict, verdict: str) -> None:
    assert check_normalizer(with_probe(**change)).verdict == verdict


@pytest.mark.parametrize(("decay", "advised"), [(0.99, True), (0.9, False)])
def test_lower_decay_is_advised_only_for_a_long_memory(decay: float, advised: bool) -> None:
    finding = check_normalizer(with_probe(with_config(normalizer_decay=decay), normalizer_moments=(0.4, 6.0)))
    assert ("lower curiosity.normalizer_decay" in finding.advice) == advised
    assert "look for a jump of uncertainty" in finding.advice


def test_normalizer_explosion_is_found_in_the_log() -> None:
    assert check_normalizer(without_probe()).verdict == "pass"
    assert check_normalizer(without_probe(with_metrics(intrinsic_reward=1e4))).verdict == "fail"
    assert check_normalizer(without_probe(with_metrics(uncertainty_running_std=1e-4))).verdict == "warn"


# Boundaries


@pytest.mark.parametrize("change", [{"max_reward": 0.1}, {"normalizer_error": 0.01}, {"uncertainty_leak": 0.01}])
def test_boundaries_must_be_worth_nothing(change: dict) -> None:
    finding = check_boundaries(with_probe(boundary=PROBE.boundary._replace(**change)))
    assert finding.verdict == "fail"


def test_boundaries_are_unknown_when_no_episode_ended() -> None:
    finding = check_boundaries(with_probe(boundary=PROBE.boundary._replace(episode_ends=0)))
    assert finding.verdict == "no-data"
    assert "5,120" in finding.detail
