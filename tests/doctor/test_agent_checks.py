"""Checks of the agent, on both sides of their thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, ROW, TASK, with_config, with_metrics, with_probe, with_task, without_probe

from byol_explore.doctor.agent_checks import (
    check_entropy,
    check_gradient,
    check_kl,
    check_multipliers,
    check_numbers,
    check_temperature,
    check_value,
)
from byol_explore.spaces import ActionSpec

CHECKS = (check_temperature, check_kl, check_multipliers, check_value, check_entropy, check_numbers, check_gradient)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", ["byol-explore", "none"])
def test_healthy_run_passes_every_check(check, method: str) -> None:
    finding = check(with_config(method))
    assert (finding.verdict, finding.advice) == ("pass", "")


@pytest.mark.parametrize("check", CHECKS)
def test_no_data_without_checkpoint_and_metrics(check) -> None:
    assert check(dataclasses.replace(without_probe(), rows=[])).verdict == "no-data"


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not check_value])
def test_metrics_are_enough_for_verdicts(check) -> None:
    assert check(without_probe()).verdict == "pass"


@pytest.mark.parametrize(
    ("temperature", "verdict"),
    [(1e-8, "fail"), (float("nan"), "fail"), (5e-3, "warn"), (1.0, "pass"), (100.0, "pass"), (5000.0, "warn")],
)
def test_temperature_against_its_floor_and_the_advantages(temperature: float, verdict: str) -> None:
    assert check_temperature(with_probe(temperature=temperature)).verdict == verdict


def test_temperature_at_its_floor_passes_without_advantages() -> None:
    assert check_temperature(with_metrics(with_probe(temperature=1e-8), advantage_std=0.0)).verdict == "pass"


@pytest.mark.parametrize(("kl", "verdict"), [(0.02, "pass"), (0.2, "warn"), (2.0, "fail")])
def test_kl_in_units_of_its_bound(kl: float, verdict: str) -> None:
    finding = check_kl(with_metrics(kl=kl))
    assert (finding.verdict, finding.value) == (verdict, pytest.approx(100 * kl))


def test_kl_bound_is_the_sum_of_all_constraints() -> None:
    hybrid = dataclasses.replace(HEALTHY, action=ActionSpec(discrete=(3, 2), continuous=4))
    allowed = 2 * 0.01 + 4 * (0.001 + 0.0001)
    assert check_kl(with_metrics(hybrid, kl=allowed)).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("multiplier", "kl", "verdict"),
    [
        (1e-8, 0.003, "pass"),  # the constraint is slack
        (1e-8, 0.5, "fail"),  # it is broken, and nothing holds it
        (50.0, 0.003, "warn"),
        (5000.0, 0.003, "fail"),
    ],
)
def test_multipliers_against_their_start_and_floor(multiplier: float, kl: float, verdict: str) -> None:
    assert (
        check_multipliers(with_metrics(with_probe(kl_multipliers={"categorical": multiplier}), kl=kl)).verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"popart_std": 0.5}, "warn"),
        ({"popart_std": 50.0}, "fail"),
        ({"popart_mean": 1.0}, "warn"),
        ({"explained_variance": -2.0}, "pass"),
        ({"explained_variance": -20.0}, "warn"),
        ({"explained_variance": -2000.0}, "fail"),
        ({"value_target_std": 0.0, "explained_variance": None}, "pass"),  # equal targets
        ({"value_target_std": 5e-6, "explained_variance": -1e4}, "fail"),
        ({"popart_std": 0.0, "explained_variance": None}, "pass"),  # all targets before were 0
    ],
)
def test_popart_and_value_against_the_targets(change: dict, verdict: str) -> None:
    assert check_value(with_task(**change)).verdict == verdict


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_popart_check_does_not_depend_on_the_scale_of_rewards(factor: float) -> None:
    names = ("value_target_mean", "value_target_std", "popart_mean", "popart_std")
    for change in ({}, {"popart_std": 0.5}, {"popart_mean": 1.0}, {"value_target_std": 1e-5}):
        task = TASK._replace(**change)
        scaled = {name: factor * getattr(task, name) for name in names}
        assert check_value(with_task(**scaled)).verdict == check_value(with_task(**change)).verdict


@pytest.mark.parametrize(
    ("change", "success", "verdict"),
    [
        ({"normalized_entropy": 0.03}, 0.1, "warn"),
        ({"normalized_entropy": 0.001}, 0.1, "fail"),
        ({"normalized_entropy": 0.001}, 0.95, "pass"),  # certain, and right
        ({"normalized_entropy": None, "min_action_std": 0.2}, 0.1, "pass"),
        ({"normalized_entropy": None, "min_action_std": 0.005}, 0.1, "warn"),
        ({"normalized_entropy": 0.7, "min_action_std": 1e-4}, 0.1, "fail"),
    ],
)
def test_entropy_may_be_low_only_with_success(change: dict, success: float, verdict: str) -> None:
    assert check_entropy(with_metrics(with_task(**change), success_rate=success)).verdict == verdict


def test_logged_entropy_is_a_share_of_the_largest_entropy() -> None:
    assert check_entropy(without_probe(with_metrics(entropy=1.791759 / 2))).value == pytest.approx(0.5)
    continuous = dataclasses.replace(without_probe(), action=ActionSpec(continuous=2))
    assert check_entropy(continuous).verdict == "no-data"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"first_nonfinite": "online.value"}, "fail"),
        ({"max_magnitude": {"optimizer": 1e8}}, "warn"),
        ({"max_magnitude": {"parameters": 1e16}}, "fail"),
    ],
)
def test_large_numbers_in_the_checkpoint_fail(change: dict, verdict: str) -> None:
    assert check_numbers(with_probe(**change)).verdict == verdict


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"loss": float("nan")}, "fail"),
        ({"prediction_error": [0.1, float("inf")]}, "fail"),
        ({"loss": 1e7}, "warn"),
        ({"episode_return_max": 1e7, "steps": 10**9}, "pass"),  # scores and counts may be large
    ],
)
def test_large_numbers_in_the_metrics_fail(change: dict, verdict: str) -> None:
    assert check_numbers(with_metrics(**change)).verdict == verdict


@pytest.mark.parametrize(("now", "verdict"), [(6.0, "pass"), (100.0, "warn"), (1e5, "fail"), (0.0, "fail")])
def test_gradient_norm_explodes_or_vanishes(now: float, verdict: str) -> None:
    rows = [ROW] * 5 + [{**ROW, "grad_norm": now}]
    assert check_gradient(dataclasses.replace(HEALTHY, rows=rows)).verdict == verdict


def test_gradient_trend_needs_four_rows() -> None:
    assert check_gradient(dataclasses.replace(HEALTHY, rows=[ROW] * 3)).verdict == "no-data"
