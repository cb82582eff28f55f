"""Signs of life of a curiosity, by hand."""

import dataclasses

import numpy as np
import pytest

from builders import small_config
from byol_explore.curiosity.vitals import LEAST_PAID, error_growth
from byol_explore.run.trackers import Progress
from byol_explore.run.vitals import Payments


@pytest.mark.parametrize(
    ("errors", "growth"),
    [
        ([0.21, 0.25, 0.28, 0.31, 0.34], 0.34 / 0.21),
        ([0.0032, 0.0029, 0.0028], 0.875),
        ([0.2, 0.3, 0.0, 0.0], 1.5),  # episodes are too short for the others
        ([0.2], None),
        ([0.2, 0.0], None),
        ([0.0], None),
    ],
)
def test_growth_is_from_the_shortest_prediction_to_the_longest(errors: list[float], growth: float | None) -> None:
    assert error_growth(errors) == (growth if growth is None else pytest.approx(growth))


def pay(payments: Payments, paid_reward: np.ndarray) -> None:
    """A dispatch whose learner steps paid so much on average, by task: [updates, tasks]."""
    progress = Progress(small_config(), print, lambda: False)
    progress.metrics = {"paid_reward": paid_reward}
    payments.after(progress)


def test_a_learner_step_pays_if_its_tasks_are_paid_enough_on_average() -> None:
    payments = Payments(small_config())
    assert payments.summary() == {}, "nothing is known before the first learner step"
    pay(payments, np.asarray([[2 * LEAST_PAID, 0.0], [LEAST_PAID, 0.0], [0.4, 0.3]]))
    assert payments.summary() == {"paying_share": pytest.approx(2 / 3)}
    pay(payments, np.zeros((1, 2)))
    assert payments.summary() == {"paying_share": 0.5}


def test_the_share_is_of_the_whole_run_after_a_stop() -> None:
    before, after = Payments(small_config()), Payments(small_config())
    pay(before, np.full((3, 1), 0.4))
    after.load_meta(before.to_meta())
    pay(after, np.zeros((1, 1)))
    assert after.summary() == {"paying_share": 0.75}


@pytest.mark.parametrize(("method", "regime"), [("none", "mixed"), ("byol-explore", "extrinsic")])
def test_who_is_not_to_be_paid_has_no_share(method: str, regime: str) -> None:
    payments = Payments(dataclasses.replace(small_config(method), regime=regime))
    pay(payments, np.ones((2, 1)))
    assert payments.summary() == {}


def test_the_statistics_first_fall_is_told_from_ordinary_pay() -> None:
    """Normal rewards, clipped at their mean, in units of a deviation that is right or ten and more times too large."""
    normal = np.maximum(np.random.default_rng(0).normal(size=100_000), 0.0)
    for factor, pays in ((1.0, 1), (3.0, 1), (12.0, 0), (100.0, 0)):
        payments = Payments(small_config())
        pay(payments, np.asarray([[np.mean(normal / factor)]]))
        assert payments.paid == pays, factor
