"""Interrupted evaluation of host environments."""

import jax
import numpy as np
import pytest

from byol_explore.config.presets import make_config
from byol_explore.evaluation.rollouts import Interrupted, run_episodes
from byol_explore.training.callbacks import EvaluationCallback
from hosts import Scripted, indifferent


def endless(max_steps: int) -> Scripted:
    """Return an environment whose episodes end only at the step limit."""
    return Scripted(lambda i: 10**6, max_steps=max_steps)


def test_step_limit_ends_an_episode() -> None:
    env = endless(max_steps=7)
    results = run_episodes(indifferent(env, -50.0, 50.0), env, 2, jax.random.key(0))
    (batch,) = env.batches
    assert (len(batch.actions), batch.closed) == (7, 1)
    np.testing.assert_array_equal(results.episode_return, [7.0, 7.0])  # action 1 pays 1


def test_interrupt_closes_environments_and_changes_no_score() -> None:
    env = endless(max_steps=100)
    actor = indifferent(env, 0.0, 0.0)
    with pytest.raises(Interrupted):
        run_episodes(actor, env, 2, jax.random.key(0), should_stop=lambda: len(env.batches[0].actions) >= 3)
    assert (len(env.batches[0].actions), env.batches[0].closed) == (3, 1)
    evaluations = EvaluationCallback(make_config(), [env])
    assert evaluations.run(actor, 10, should_stop=lambda: True) == "interrupted"
    assert evaluations.metrics() == {}
