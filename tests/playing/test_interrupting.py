"""Evaluation outside jit can be given up, and ends where no episode does."""

import jax
import numpy as np
import pytest

from byol_explore.evaluation.play import Interrupted, play
from byol_explore.run.evaluations import Evaluations
from byol_explore.settings.presets import make_config
from hosts import Scripted, indifferent


def endless(max_steps: int) -> Scripted:
    """An environment whose episodes never end by themselves."""
    return Scripted(lambda i: 10**6, max_steps=max_steps)


def test_the_limit_of_an_episode_ends_it() -> None:
    env = endless(max_steps=7)
    results = play(indifferent(env, -50.0, 50.0), env, 2, jax.random.key(0))
    (batch,) = env.batches
    assert (len(batch.actions), batch.closed) == (7, 1)
    np.testing.assert_array_equal(results.episode_return, [7.0, 7.0])  # the second action pays one


def test_giving_up_closes_the_environments_and_changes_no_score() -> None:
    env = endless(max_steps=100)
    actor = indifferent(env, 0.0, 0.0)
    with pytest.raises(Interrupted):
        play(actor, env, 2, jax.random.key(0), should_stop=lambda: len(env.batches[0].actions) >= 3)
    assert (len(env.batches[0].actions), env.batches[0].closed) == (3, 1)
    evaluations = Evaluations(make_config(), [env])
    assert evaluations.run(actor, 10, should_stop=lambda: True) == "given up"
    assert evaluations.summary() == {}
