"""Means of metrics over learner steps and dispatches."""

import numpy as np

from byol_explore.training.loop import mean_metrics
from byol_explore.training.output import flatten_scalars


def test_rewards_per_task_are_weighted_by_transitions() -> None:
    reward = np.asarray([[0.3, np.nan, np.nan], [0.1, 2.0, np.nan], [0.6, 1.0, np.nan]], np.float32)
    count = np.asarray([[10, 0, 0], [30, 4, 0], [20, 12, 0]], np.float32)
    metrics = {"loss": np.asarray([1.0, 2.0, 6.0]), "intrinsic_reward_per_task": reward, "transitions_per_task": count}
    whole = mean_metrics(metrics)
    assert whole["loss"] == 3.0
    np.testing.assert_allclose(whole["intrinsic_reward_per_task"], [18 / 60, 20 / 16, np.nan], rtol=1e-6)
    dispatches = [mean_metrics({name: x[i : i + 1] for name, x in metrics.items()}) for i in range(3)]
    again = mean_metrics({name: np.stack([each[name] for each in dispatches]) for name in metrics})
    np.testing.assert_allclose(again["intrinsic_reward_per_task"], whole["intrinsic_reward_per_task"], rtol=1e-6)


def test_flat_logs_leave_out_tasks_without_data() -> None:
    assert flatten_scalars({"intrinsic_reward_per_task": [0.5, None]}) == {"intrinsic_reward_per_task/1": 0.5}
