"""Scripted experts solve the tasks on fresh levels."""

import jax
import numpy as np
import pytest

from byol_explore.envs.hard_eight import tasks
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.envs.hard_eight.experts import expert_policy, run_episodes
from byol_explore.envs.hard_eight.tasks import TASKS

LOWEST = dict.fromkeys(TASKS, 0.95) | {"throw-across": 0.8, "baseball": 0.8}


def test_experts_solve_a_few_levels_of_each_task() -> None:
    """At least 85% are solved, and none faster than walking speed allows."""
    env = HardEight("all")
    outcome = run_episodes(env, expert_policy(env), jax.random.key(7), 48)
    solved, task = np.asarray(outcome.solved), np.asarray(outcome.task)
    assert solved.mean() >= 0.85
    assert all(solved[task == number].mean() > 0.5 for number in range(len(TASKS)))
    decisions, limits = np.asarray(outcome.num_actions), [tasks.max_ticks(name, "continuous") // 3 for name in TASKS]
    assert decisions[solved].min() > 10
    np.testing.assert_array_equal(decisions[~solved], np.array(limits)[task[~solved]])


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_experts_solve_1000_fresh_levels(task: str) -> None:
    env = HardEight(task)
    outcome = run_episodes(env, expert_policy(env), jax.random.key(77), 1000)
    assert np.mean(np.asarray(outcome.solved)) >= LOWEST[task]
