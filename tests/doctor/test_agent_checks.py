"""Each check of the agent on evidence made by hand, both sides of its thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, ROW, TASK, logged, probed, seen, with_config, without_probe

from byol_explore.doctor.agent_checks import (
    check_entropy,
    check_gradient,
    check_kl,
    check_multipliers,
    check_numbers,
    check_temperature,
    check_value,
)
from byol_explore.settings.parts import PPOConfig
from byol_explore.spaces import ActionSpec

CHECKS = (check_temperature, check_kl, check_multipliers, check_value, check_entropy, check_numbers, check_gradient)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", ["byol-explore", "none"])
def test_a_healthy_run_is_healthy(check, method: str) -> None:
    finding = check(with_config(method))
    assert (finding.verdict, finding.advice) == ("ok", "")


@pytest.mark.parametrize("check", CHECKS)
def test_without_checkpoint_and_metrics_nothing_is_known(check) -> None:
    assert check(dataclasses.replace(without_probe(), rows=[])).verdict == "unknown"


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not check_value])
def test_metrics_alone_are_enough(check) -> None:
    assert check(without_probe()).verdict == "ok"


@pytest.mark.parametrize(
    ("temperature", "verdict"),
    [(1e-8, "bad"), (float("nan"), "bad"), (5e-5, "warning"), (0.01, "ok"), (1.0, "ok"), (50.0, "warning")],
)
def test_temperature_is_above_its_floor_and_near_the_advantages(temperature: float, verdict: str) -> None:
    assert check_temperature(probed(temperature=temperature)).verdict == verdict


def test_a_temperature_falls_to_its_floor_where_there_is_no_advantage() -> None:
    assert check_temperature(logged(probed(temperature=1e-8), advantage_stddev=0.0)).verdict == "ok"


@pytest.mark.parametrize(("kl", "verdict"), [(0.02, "ok"), (0.2, "warning"), (2.0, "bad")])
def test_kl_is_measured_by_what_is_allowed(kl: float, verdict: str) -> None:
    finding = check_kl(logged(kl=kl))
    assert (finding.verdict, finding.figure) == (verdict, pytest.approx(100 * kl))


def test_what_is_allowed_is_the_sum_of_all_constraints() -> None:
    hybrid = dataclasses.replace(HEALTHY, action=ActionSpec(discrete=(3, 2), continuous=4))
    allowed = 2 * 0.01 + 4 * (0.001 + 0.0001)
    assert check_kl(logged(hybrid, kl=allowed)).figure == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("multiplier", "kl", "verdict"),
    [
        (1e-8, 0.003, "ok"),  # the constraint is slack
        (1e-8, 0.5, "bad"),  # it is broken, and nothing holds it
        (50.0, 0.003, "warning"),
        (5000.0, 0.003, "bad"),
    ],
)
def test_multipliers_hold_the_constraint(multiplier: float, kl: float, verdict: str) -> None:
    assert check_multipliers(logged(probed(multipliers={"categorical": multiplier}), kl=kl)).verdict == verdict


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"popart_scale": 0.5}, "warning"),
        ({"popart_scale": 50.0}, "bad"),
        ({"popart_mean": 1.0}, "warning"),
        ({"explained": -2.0}, "ok"),
        ({"explained": -20.0}, "warning"),
        ({"explained": -2000.0}, "bad"),
        ({"target_stddev": 0.0, "explained": None}, "ok"),  # no reward anywhere
    ],
)
def test_popart_and_value_fit_the_targets(change: dict, verdict: str) -> None:
    assert check_value(seen(**change)).verdict == verdict


def test_popart_is_given_time_to_forget_its_first_scale_of_one() -> None:
    early = TASK._replace(popart_scale=0.37, explained=-20.0)
    assert check_value(probed(tasks={"rooms-4": early}, learner_steps=200)).verdict == "ok"
    assert check_value(probed(tasks={"rooms-4": early}, learner_steps=2000)).verdict == "warning"
    config = dataclasses.replace(HEALTHY.config, algorithm="ppo", ppo=PPOConfig(epochs=10))
    again = probed(dataclasses.replace(HEALTHY, config=config), tasks={"rooms-4": early}, learner_steps=2000)
    assert check_value(again).verdict == "ok", "each batch was taken in once and learned from ten times"


@pytest.mark.parametrize(
    ("change", "success", "verdict"),
    [
        ({"entropy": 0.03}, 0.1, "warning"),
        ({"entropy": 0.001}, 0.1, "bad"),
        ({"entropy": 0.001}, 0.95, "ok"),  # certain, and right
        ({"entropy": None, "stddev": 0.2}, 0.1, "ok"),
        ({"entropy": None, "stddev": 0.005}, 0.1, "warning"),
        ({"entropy": 0.7, "stddev": 1e-4}, 0.1, "bad"),
    ],
)
def test_a_policy_tries_things_until_it_succeeds(change: dict, success: float, verdict: str) -> None:
    assert check_entropy(logged(seen(**change), success_rate=success)).verdict == verdict


def test_logged_entropy_is_a_share_of_the_largest() -> None:
    assert check_entropy(without_probe(logged(entropy=1.791759 / 2))).figure == pytest.approx(0.5)
    continuous = dataclasses.replace(without_probe(), action=ActionSpec(continuous=2))
    assert check_entropy(continuous).verdict == "unknown"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"not_finite": "online.value"}, "bad"),
        ({"largest": {"optimizer": 1e8}}, "warning"),
        ({"largest": {"parameters": 1e16}}, "bad"),
    ],
)
def test_numbers_of_the_checkpoint_stay_far_from_their_limits(change: dict, verdict: str) -> None:
    assert check_numbers(probed(**change)).verdict == verdict


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"loss": float("nan")}, "bad"),
        ({"prediction_error": [0.1, float("inf")]}, "bad"),
        ({"loss": 1e7}, "warning"),
        ({"best_return": 1e7, "steps": 10**9}, "ok"),  # scores and counts may be large
    ],
)
def test_numbers_of_the_metrics_do_too(change: dict, verdict: str) -> None:
    assert check_numbers(logged(**change)).verdict == verdict


@pytest.mark.parametrize(("now", "verdict"), [(6.0, "ok"), (100.0, "warning"), (1e5, "bad"), (0.0, "bad")])
def test_gradients_neither_explode_nor_vanish(now: float, verdict: str) -> None:
    rows = [ROW] * 5 + [{**ROW, "gradient_norm": now}]
    assert check_gradient(dataclasses.replace(HEALTHY, rows=rows)).verdict == verdict


def test_three_lines_are_no_trend() -> None:
    assert check_gradient(dataclasses.replace(HEALTHY, rows=[ROW] * 3)).verdict == "unknown"
