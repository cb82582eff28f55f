"""Each check of the curiosity on evidence made by hand, both sides of its thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, PROBE, TASK, changed, logged, probed, seen, with_config, without_probe

from byol_explore.doctor.curiosity_checks import (
    check_boundaries,
    check_clipping,
    check_embedding,
    check_mixing,
    check_normalizer,
    check_target,
)
from byol_explore.doctor.evidence import Evidence
from byol_explore.presets import make_config

CHECKS = (check_target, check_embedding, check_normalizer, check_clipping, check_boundaries, check_mixing)


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
    assert finding.detail == "the run has no checkpoint"


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


# Embedding


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"spread": 1e-6, "rank": 0.0}, "bad"),
        ({"spread": 0.005}, "warning"),
        ({"rank": 1.01}, "bad"),  # all on one line
        ({"rank": 1.5}, "warning"),
        ({"spread": 1e-6, "rank": 0.0, "distinct": 3}, "bad"),
        ({"rank": 1.01, "distinct": 3}, "ok"),  # three points need no more than a plane
        ({"spread": 0.0, "rank": 0.0, "distinct": 1}, "unknown"),
    ],
)
def test_embeddings_of_different_observations_differ(change: dict, verdict: str) -> None:
    assert check_embedding(seen(**change)).verdict == verdict


def test_one_collapsed_task_of_two_is_found_and_named() -> None:
    finding = check_embedding(probed(tasks={"rooms-2": TASK, "rooms-6": TASK._replace(spread=0.0)}))
    assert finding.verdict == "bad"
    assert "rooms-6" in finding.detail


def test_few_directions_are_found_in_any_task_and_not_called_a_collapse() -> None:
    narrow = TASK._replace(distinct=500, spread=0.8, rank=1.9)
    finding = check_embedding(probed(tasks={"rooms-2": TASK._replace(spread=0.3), "rooms-6": narrow}))
    assert finding.verdict == "warning"
    assert "rooms-6" in finding.detail
    assert finding.advice is not None
    assert "few directions" in finding.advice
    assert "everything looks alike" not in finding.advice


@pytest.mark.parametrize(("spread", "verdict"), [(0.3, "ok"), (0.005, "warning"), (1e-5, "bad")])
def test_a_logged_collapse_needs_no_checkpoint(spread: float, verdict: str) -> None:
    assert check_embedding(without_probe(logged(embedding_spread=spread))).verdict == verdict


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


def test_a_logged_explosion_needs_no_checkpoint() -> None:
    assert check_normalizer(without_probe()).verdict == "ok"
    assert check_normalizer(without_probe(logged(intrinsic_reward=1e4))).verdict == "bad"
    assert check_normalizer(without_probe(logged(uncertainty_stddev=1e-4))).verdict == "warning"


# Clipping


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "bad"), (0.1, "warning"), (0.5, "ok"), (0.9, "ok"), (0.99, "warning"), (1.0, "bad")]
)
def test_about_half_or_more_is_clipped(share: float, verdict: str) -> None:
    assert check_clipping(logged(clipped_share=share)).verdict == verdict
    before_the_first_line = dataclasses.replace(probed(clipped_share=share), rows=[])
    assert check_clipping(before_the_first_line).verdict == verdict


@pytest.mark.parametrize(("method", "ablation"), [("byol-explore", "no-clipping"), ("rnd", "none")])
def test_who_does_not_clip_is_not_asked(method: str, ablation: str) -> None:
    assert check_clipping(logged(with_config(method, ablation), clipped_share=0.0)).verdict == "not used"


# Boundaries


@pytest.mark.parametrize("change", [{"reward": 0.1}, {"counted": 0.01}, {"leak": 0.01}])
def test_the_step_between_episodes_is_worth_nothing(change: dict) -> None:
    finding = check_boundaries(probed(boundary=PROBE.boundary._replace(**change)))
    assert finding.verdict == "bad"


def test_boundaries_are_unknown_when_no_episode_ended() -> None:
    finding = check_boundaries(probed(boundary=PROBE.boundary._replace(ends=0)))
    assert finding.verdict == "unknown"
    assert "5,120" in finding.detail


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
    found = check_mixing(probed(tasks={"rooms-2": TASK, "rooms-6": silent}))
    assert found.verdict == "bad"
    assert "everything in rooms-6 is below the mean" in found.advice
    assert "curiosity.mixing" in check_mixing(probed(tasks={"rooms-6": silent})).advice


def test_curiosity_alone_has_nothing_to_mix() -> None:
    evidence: Evidence = changed(make_config(), regime="intrinsic")
    assert check_mixing(evidence).verdict == "not used"
