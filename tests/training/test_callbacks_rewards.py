"""Reward activity and prediction error growth, computed by hand."""

import dataclasses

import numpy as np
import pytest

from builders import small_config
from byol_explore.curiosity.method import MIN_ACTIVE_REWARD, prediction_error_growth
from byol_explore.training.callbacks import Progress, RewardActivity


@pytest.mark.parametrize(
    ("errors", "growth"),
    [
        ([0.21, 0.25, 0.28, 0.31, 0.34], 0.34 / 0.21),
        ([0.0032, 0.0029, 0.0028], 0.875),
        ([0.2, 0.3, 0.0, 0.0], 1.5),  # episodes end before the longer horizons
        ([0.2], None),
        ([0.2, 0.0], None),
        ([0.0], None),
    ],
)
def test_growth_is_the_error_of_the_longest_over_the_shortest_horizon(
    errors: list[float], growth: float | None
) -> None:
    assert prediction_error_growth(errors) == (growth if growth is None else pytest.approx(growth))


def add_dispatch(activity: RewardActivity, intrinsic_reward_per_task: np.ndarray) -> None:
    """Report a dispatch with these mean rewards [updates, tasks]."""
    progress = Progress(small_config(), print, lambda: False)
    progress.metrics = {"intrinsic_reward_per_task": intrinsic_reward_per_task}
    activity.on_dispatch(progress)


def test_a_learner_step_is_active_if_its_mean_over_tasks_is_large_enough() -> None:
    activity = RewardActivity(small_config())
    assert activity.metrics() == {}, "nothing is known before the first learner step"
    add_dispatch(activity, np.asarray([[2 * MIN_ACTIVE_REWARD, 0.0], [MIN_ACTIVE_REWARD, 0.0], [0.4, 0.3]]))
    assert activity.metrics() == {"active_update_fraction": pytest.approx(2 / 3)}
    add_dispatch(activity, np.zeros((1, 2)))
    assert activity.metrics() == {"active_update_fraction": 0.5}
    add_dispatch(activity, np.asarray([[np.nan, MIN_ACTIVE_REWARD], [np.nan, np.nan]]))  # only tasks in the batch count
    assert activity.metrics() == {"active_update_fraction": 0.5}


def test_the_fraction_covers_the_whole_run_after_resuming() -> None:
    before, after = RewardActivity(small_config()), RewardActivity(small_config())
    add_dispatch(before, np.full((3, 1), 0.4))
    after.load_state_dict(before.state_dict())
    add_dispatch(after, np.zeros((1, 1)))
    assert after.metrics() == {"active_update_fraction": 0.75}


@pytest.mark.parametrize(("method", "regime"), [("none", "mixed"), ("byol-explore", "extrinsic")])
def test_without_intrinsic_reward_there_is_no_active_fraction(method: str, regime: str) -> None:
    activity = RewardActivity(dataclasses.replace(small_config(method), regime=regime))
    add_dispatch(activity, np.ones((2, 1)))
    assert activity.metrics() == {}


def test_an_oversized_running_deviation_makes_updates_inactive() -> None:
    """Normal rewards, clipped at their mean and divided by a deviation that is correct or `factor` times too large."""
    normal = np.maximum(np.random.default_rng(0).normal(size=100_000), 0.0)
    for factor, is_active in ((1.0, 1), (3.0, 1), (12.0, 0), (100.0, 0)):
        activity = RewardActivity(small_config())
        add_dispatch(activity, np.asarray([[np.mean(normal / factor)]]))
        assert activity.active == is_active, factor
