"""The tasks of the laptop study are hard: random actions do not find their rewards."""

import jax
import pytest

from byol_explore.envs.registry import make_env
from byol_explore.evaluation.rollouts import run_episodes
from byol_explore.evaluation.scores import rate_interval
from byol_explore.study.file import read_study
from hosts import indifferent

EPISODES = 4096


@pytest.mark.slow
@pytest.mark.parametrize("name", read_study("laptop").tasks)
def test_random_actions_succeed_in_less_than_one_of_twenty_episodes(name: str) -> None:
    env = make_env(name)
    uniform = indifferent(env, *[0.0] * env.spec.action.discrete[0])
    results = run_episodes(uniform, env, EPISODES, jax.random.key(0))
    found = rate_interval(results.episode_return > env.spec.success_threshold)
    print(f"{name}: {found.mean:.4f} [{found.low:.4f}, {found.high:.4f}]")
    assert found.high < 0.05
