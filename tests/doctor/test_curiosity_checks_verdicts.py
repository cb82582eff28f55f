"""Checks for a collapse, on both sides of their thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, ROW, TASK, with_config, with_fields, with_metrics, with_probe, with_task, without_probe

from byol_explore.config.presets import make_config
from byol_explore.doctor.curiosity_checks import check_embedding, check_horizon
from byol_explore.doctor.diagnose import run_checks
from byol_explore.doctor.evidence import Evidence


def lines(*spreads: float) -> Evidence:
    """Return a run without a checkpoint that logged these spreads."""
    return dataclasses.replace(without_probe(), rows=[{**ROW, "embedding_spread": spread} for spread in spreads])


# Embedding


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"embedding_spread": 1e-6, "effective_rank": 0.0}, "fail"),
        ({"embedding_spread": 0.005}, "warn"),
        ({"effective_rank": 1.01}, "fail"),  # all on one line
        ({"effective_rank": 1.5}, "warn"),
        ({"embedding_spread": 1e-6, "effective_rank": 0.0, "distinct_observations": 3}, "fail"),
        ({"effective_rank": 1.01, "distinct_observations": 3}, "pass"),  # three points need no more than a plane
        ({"embedding_spread": 0.0, "effective_rank": 0.0, "distinct_observations": 1}, "no-data"),
    ],
)
def test_embedding_spread_and_rank_thresholds(change: dict, verdict: str) -> None:
    assert check_embedding(with_task(**change)).verdict == verdict


def test_one_collapsed_task_of_two_is_named() -> None:
    finding = check_embedding(with_probe(tasks={"rooms-2": TASK, "rooms-6": TASK._replace(embedding_spread=0.0)}))
    assert finding.verdict == "fail"
    assert "rooms-6" in finding.detail


def test_low_rank_in_any_task_is_not_called_a_collapse() -> None:
    narrow = TASK._replace(distinct_observations=500, embedding_spread=0.8, effective_rank=1.9)
    finding = check_embedding(with_probe(tasks={"rooms-2": TASK._replace(embedding_spread=0.3), "rooms-6": narrow}))
    assert finding.verdict == "warn"
    assert "rooms-6" in finding.detail
    assert finding.advice is not None
    assert "few directions" in finding.advice
    assert "all embeddings are alike" not in finding.advice


@pytest.mark.parametrize(("spread", "verdict"), [(0.3, "pass"), (0.1, "warn"), (0.005, "warn"), (0.002, "fail")])
def test_embedding_collapse_is_found_in_the_log(spread: float, verdict: str) -> None:
    assert check_embedding(without_probe(with_metrics(embedding_spread=spread))).verdict == verdict


@pytest.mark.parametrize(
    ("spreads", "verdict"),
    [
        ((0.002,), "fail"),  # the first line is enough
        ((0.57, 0.4, 0.002), "fail"),
        ((0.115, 0.3, 0.7), "warn"),  # started nearly parallel
        ((0.55, 0.5, 0.6), "pass"),
        ((0.55, 0.003, 0.6), "pass"),  # came back
    ],
)
def test_log_verdict_uses_first_and_last_row(spreads: tuple[float, ...], verdict: str) -> None:
    finding = check_embedding(lines(*spreads))
    assert (finding.verdict, finding.value) == (verdict, spreads[-1])
    assert f"{spreads[0]:.3g} in the first line, {min(spreads):.3g} at the lowest" in finding.detail


def test_narrow_start_warns_with_a_checkpoint_too() -> None:
    finding = check_embedding(with_metrics(embedding_spread=0.1))
    assert (finding.verdict, finding.value) == ("warn", 0.3)
    assert "started nearly parallel" in finding.advice


def test_repeated_observations_are_no_collapse_with_a_checkpoint() -> None:
    still = dataclasses.replace(HEALTHY, rows=[ROW, {**ROW, "embedding_spread": 0.001, "prediction_error_growth": 0.9}])
    assert check_embedding(still).verdict == "pass"
    assert check_horizon(dataclasses.replace(still, rows=still.rows[1:])).verdict == "warn"


def test_policy_encoder_is_not_used_for_rnd() -> None:
    assert check_embedding(without_probe(with_metrics(with_config("rnd"), embedding_spread=0.001))).verdict == "no-data"
    assert check_embedding(with_metrics(with_config("rnd"), embedding_spread=0.001)).verdict == "pass"


def test_advice_leaves_out_settings_that_are_on() -> None:
    config = make_config()
    off = dataclasses.replace(config, network=dataclasses.replace(config.network, center_encoders=False))
    advice = check_embedding(without_probe(with_metrics(with_fields(off), embedding_spread=0.0))).advice
    assert advice.endswith("start again with network.center_encoders, which is off")
    advice = check_embedding(without_probe(with_metrics(embedding_spread=0.0))).advice
    assert "network.center_encoders" not in advice
    assert "target_decay nearer to 1 (it is 0.99)" in advice
    assert "loss_weight" not in advice
    heavy = with_metrics(with_config(loss_weight=5.0, target_decay=0.9999), embedding_spread=0.0)
    advice = check_embedding(without_probe(heavy)).advice
    assert "lower curiosity.loss_weight (it is 5)" in advice
    assert "target_decay" not in advice


# Horizon


@pytest.mark.parametrize(
    ("growth", "spread", "verdict"),
    [
        (1.6, 0.57, "pass"),  # first-person rooms, alive
        (0.875, 0.002, "fail"),  # the same, collapsed
        (1.0, 0.1, "fail"),
        (1.1, 0.1, "pass"),  # the laptop tasks at their start
        (1.0, 0.6, "warn"),  # noise, or all is known
    ],
)
def test_prediction_errors_must_grow_with_the_horizon(growth: float, spread: float, verdict: str) -> None:
    finding = check_horizon(without_probe(with_metrics(prediction_error_growth=growth, embedding_spread=spread)))
    assert (finding.verdict, finding.value) == (verdict, pytest.approx(growth))


def test_flat_errors_pass_in_the_first_updates() -> None:
    early = with_metrics(prediction_error_growth=1.0, embedding_spread=0.1, learner_steps=40)
    assert check_horizon(without_probe(early)).verdict == "pass"


@pytest.mark.parametrize("evidence", [with_config("rnd"), with_config("icm"), with_config(ablation="horizon-1")])
def test_horizon_of_one_is_skipped(evidence: Evidence) -> None:
    assert check_horizon(evidence).verdict == "skipped"


def test_collapse_of_first_person_rooms_fails_by_its_log() -> None:
    evidence = without_probe(with_metrics(embedding_spread=0.002, prediction_error_growth=0.875))
    assert {finding.check for finding in run_checks(evidence) if finding.verdict == "fail"} == {
        "embedding_collapse",
        "horizon_growth",
    }
