"""Each check of the curiosity on evidence made by hand, both sides of its thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, PROBE, logged, probed, with_config, without_probe

from byol_explore.doctor.collapse_checks import check_embedding, check_horizon
from byol_explore.doctor.curiosity_checks import check_boundaries, check_normalizer, check_target
from byol_explore.doctor.payment_checks import check_mixing, check_paid

CHECKS = (
    check_target, check_embedding, check_horizon, check_normalizer, check_paid, check_boundaries, check_mixing,
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_run_is_healthy(check) -> None:
    finding = check(HEALTHY)
    assert finding.verdict == "ok"
    assert finding.advice == "", "nobody needs advice"
    assert finding.figure is not None


@pytest.mark.parametrize("check", CHECKS)
def test_a_run_without_curiosity_has_nothing_to_check(check) -> None:
    assert check(with_config("none")).verdict == "not used"


@pytest.mark.parametrize("check", CHECKS)
def test_without_checkpoint_and_metrics_nothing_is_known_and_the_reason_is_told(check) -> None:
    finding = check(dataclasses.replace(without_probe(), rows=[]))
    assert finding.verdict == "unknown"
    assert finding.detail == "the run has no checkpoint, and its log has no line"


# Target


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"moved": 0.0}, "bad"),  # between two checkpoints
        ({"step": 0.0}, "bad"),  # in an update
        ({"step": 0.004}, "bad"),
        ({"moved": None}, "ok"),  # there is one checkpoint only
        ({"distance": 0.0, "step": 0.0}, "warning"),
        ({"distance": 0.8}, "warning"),
    ],
)
def test_a_target_must_follow_at_a_distance(change: dict, verdict: str) -> None:
    assert check_target(probed(target=PROBE.target._replace(**change))).verdict == verdict


def test_a_decay_of_one_is_bad_unless_it_is_the_ablation() -> None:
    frozen = PROBE.target._replace(step=0.0, moved=0.0, distance=1.4)
    by_hand = check_target(probed(with_config(target_decay=1.0), target=frozen))
    assert (by_hand.verdict, by_hand.figure) == ("bad", 1.4)
    assert "fixed-targets" in by_hand.advice
    named = check_target(probed(with_config(ablation="fixed-targets"), target=frozen))
    assert named.verdict == "ok"
    assert "on purpose" in named.detail


def test_the_random_network_of_rnd_must_not_move() -> None:
    still = PROBE.target._replace(distance=None, step=0.0, moved=0.0)
    assert check_target(probed(with_config("rnd"), target=still)).verdict == "ok"
    assert check_target(probed(with_config("rnd"), target=still._replace(moved=0.1))).verdict == "bad"


def test_icm_has_no_target() -> None:
    assert check_target(probed(with_config("icm"), target=None)).verdict == "not used"


def test_a_target_is_judged_by_its_logged_distance_without_a_checkpoint() -> None:
    assert check_target(without_probe()).figure == pytest.approx(0.06)
    assert check_target(without_probe(logged(target_distance=0.9))).verdict == "warning"


# Normaliser


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"normalizer": (0.4, 0.9)}, "ok"),  # uncertainty falls while it is learned
        ({"normalizer": (0.4, 6.0)}, "warning"),
        ({"normalizer": (0.4, 3000.0)}, "bad"),
        ({"normalizer": (90.0, 0.3)}, "bad"),
        ({"normalizer": (float("nan"), 0.3)}, "bad"),
        ({"normalizer": (0.4, 1e-4)}, "bad"),  # much smaller than what is seen now
        ({"normalizer": (1e-4, 1e-4), "uncertainty": (1e-4, 1e-4)}, "warning"),  # all is known
        ({"intrinsic_reward": 50.0}, "warning"),
        ({"intrinsic_reward": 5000.0}, "bad"),
    ],
)
def test_statistics_must_fit_the_uncertainty_of_now(change: dict, verdict: str) -> None:
    assert check_normalizer(probed(**change)).verdict == verdict


@pytest.mark.parametrize(("decay", "advised"), [(0.99, True), (0.9, False)])
def test_forgetting_sooner_is_advised_to_those_who_remember_long(decay: float, advised: bool) -> None:
    finding = check_normalizer(probed(with_config(normalizer_decay=decay), normalizer=(0.4, 6.0)))
    assert ("lower curiosity.normalizer_decay" in finding.advice) == advised
    assert "look for a jump of uncertainty" in finding.advice


def test_a_logged_explosion_needs_no_checkpoint() -> None:
    assert check_normalizer(without_probe()).verdict == "ok"
    assert check_normalizer(without_probe(logged(intrinsic_reward=1e4))).verdict == "bad"
    assert check_normalizer(without_probe(logged(uncertainty_stddev=1e-4))).verdict == "warning"


# Boundaries


@pytest.mark.parametrize("change", [{"reward": 0.1}, {"counted": 0.01}, {"leak": 0.01}])
def test_the_step_between_episodes_is_worth_nothing(change: dict) -> None:
    finding = check_boundaries(probed(boundary=PROBE.boundary._replace(**change)))
    assert finding.verdict == "bad"


def test_boundaries_are_unknown_when_no_episode_ended() -> None:
    finding = check_boundaries(probed(boundary=PROBE.boundary._replace(ends=0)))
    assert finding.verdict == "unknown"
    assert "5,120" in finding.detail
