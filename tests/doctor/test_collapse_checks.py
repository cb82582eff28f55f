"""The checks for a collapse on evidence made by hand, both sides of their thresholds."""

import dataclasses

import pytest
from evidences import HEALTHY, ROW, TASK, changed, logged, probed, seen, with_config, without_probe

from byol_explore.doctor.checks import examine
from byol_explore.doctor.collapse_checks import check_embedding, check_horizon
from byol_explore.doctor.evidence import Evidence
from byol_explore.settings.presets import make_config


def lines(*spreads: float) -> Evidence:
    """A run without a checkpoint that logged these spreads."""
    return dataclasses.replace(without_probe(), rows=[{**ROW, "embedding_spread": spread} for spread in spreads])


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


@pytest.mark.parametrize(("spread", "verdict"), [(0.3, "ok"), (0.1, "warning"), (0.005, "warning"), (0.002, "bad")])
def test_a_logged_collapse_needs_no_checkpoint(spread: float, verdict: str) -> None:
    assert check_embedding(without_probe(logged(embedding_spread=spread))).verdict == verdict


@pytest.mark.parametrize(
    ("spreads", "verdict"),
    [
        ((0.002,), "bad"),  # the first line is enough
        ((0.57, 0.4, 0.002), "bad"),
        ((0.115, 0.3, 0.7), "warning"),  # started nearly parallel
        ((0.55, 0.5, 0.6), "ok"),
        ((0.55, 0.003, 0.6), "ok"),  # came back
    ],
)
def test_the_log_is_judged_by_its_first_line_and_its_last(spreads: tuple[float, ...], verdict: str) -> None:
    finding = check_embedding(lines(*spreads))
    assert (finding.verdict, finding.figure) == (verdict, spreads[-1])
    assert f"{spreads[0]:.3g} in the first line, {min(spreads):.3g} at the lowest" in finding.detail


def test_a_narrow_start_is_remembered_when_there_is_a_checkpoint_too() -> None:
    finding = check_embedding(logged(embedding_spread=0.1))
    assert (finding.verdict, finding.figure) == ("warning", 0.3)
    assert "started nearly parallel" in finding.advice


def test_observations_that_repeat_are_no_collapse_where_a_checkpoint_tells_them_apart() -> None:
    still = dataclasses.replace(HEALTHY, rows=[ROW, {**ROW, "embedding_spread": 0.001, "error_growth": 0.9}])
    assert check_embedding(still).verdict == "ok"
    assert check_horizon(dataclasses.replace(still, rows=still.rows[1:])).verdict == "warning"


def test_the_policys_encoder_says_nothing_of_rnd() -> None:
    assert check_embedding(without_probe(logged(with_config("rnd"), embedding_spread=0.001))).verdict == "unknown"
    assert check_embedding(logged(with_config("rnd"), embedding_spread=0.001)).verdict == "ok"


def test_nobody_is_told_to_turn_on_what_is_on() -> None:
    config = make_config()
    off = dataclasses.replace(config, network=dataclasses.replace(config.network, center=False))
    advice = check_embedding(without_probe(logged(changed(off), embedding_spread=0.0))).advice
    assert advice.endswith("start again with network.center, which is off")
    advice = check_embedding(without_probe(logged(embedding_spread=0.0))).advice
    assert "network.center" not in advice
    assert "target_decay nearer to 1 (it is 0.99)" in advice
    assert "loss_weight" not in advice
    heavy = logged(with_config(loss_weight=5.0, target_decay=0.9999), embedding_spread=0.0)
    advice = check_embedding(without_probe(heavy)).advice
    assert "lower curiosity.loss_weight (it is 5)" in advice
    assert "target_decay" not in advice


# Horizon


@pytest.mark.parametrize(
    ("growth", "spread", "verdict"),
    [
        (1.6, 0.57, "ok"),  # first-person rooms, alive
        (0.875, 0.002, "bad"),  # the same, collapsed
        (1.0, 0.1, "bad"),
        (1.1, 0.1, "ok"),  # the laptop tasks at their start
        (1.0, 0.6, "warning"),  # noise, or all is known
    ],
)
def test_errors_must_grow_with_the_horizon(growth: float, spread: float, verdict: str) -> None:
    finding = check_horizon(without_probe(logged(error_growth=growth, embedding_spread=spread)))
    assert (finding.verdict, finding.figure) == (verdict, pytest.approx(growth))


def test_predictions_are_given_time_to_become_better_than_random() -> None:
    early = logged(error_growth=1.0, embedding_spread=0.1, learner_steps=40)
    assert check_horizon(without_probe(early)).verdict == "ok"


@pytest.mark.parametrize("evidence", [with_config("rnd"), with_config("icm"), with_config(ablation="horizon-1")])
def test_one_step_ahead_has_nothing_to_compare(evidence: Evidence) -> None:
    assert check_horizon(evidence).verdict == "not used"


def test_the_collapse_of_the_first_person_rooms_is_bad_by_its_log_alone() -> None:
    evidence = without_probe(logged(embedding_spread=0.002, error_growth=0.875))
    assert {finding.check for finding in examine(evidence) if finding.verdict == "bad"} == {"embedding", "horizon"}
