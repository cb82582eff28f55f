"""Scripted experts solve the tasks on levels that nobody has looked at."""

import jax
import numpy as np
import pytest

from byol_explore.envs.worlds.hard_eight import tasks
from byol_explore.envs.worlds.hard_eight.outcomes import by_expert, play
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.spec import HardEight

LOWEST = dict.fromkeys(TASKS, 0.95) | {"throw-across": 0.8, "baseball": 0.8}


def test_experts_know_every_task() -> None:
    """A few levels of each: hardly any is not solved, and none faster than one can walk."""
    env = HardEight("all")
    outcome = play(env, by_expert(env), jax.random.key(7), 48)
    solved, task = np.asarray(outcome.solved), np.asarray(outcome.task)
    assert solved.mean() >= 0.85
    assert all(solved[task == number].mean() > 0.5 for number in range(len(TASKS)))
    decisions, limits = np.asarray(outcome.decisions), [tasks.ticks_of(name, "continuous") // 3 for name in TASKS]
    assert decisions[solved].min() > 10
    np.testing.assert_array_equal(decisions[~solved], np.array(limits)[task[~solved]])


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_experts_solve_levels_that_nobody_has_looked_at(task: str) -> None:
    env = HardEight(task)
    outcome = play(env, by_expert(env), jax.random.key(77), 1000)
    assert np.mean(np.asarray(outcome.solved)) >= LOWEST[task]
