"""Complete episodes of host environments, checked against an environment that records its actions."""

import importlib
from typing import Any

import jax
import numpy as np
import pytest

from byol_explore.evaluation.rollouts import MAX_HOST_ENVS, EpisodeResults, record_frames, run_episodes
from hosts import Scripted, indifferent

LIKELY = (0.0, float(np.log(3.0)))  # action 1 with a probability of 3/4


def run(env: Scripted, episodes: int, *, greedy: bool = False, seed: int = 0, **options: Any) -> EpisodeResults:
    return run_episodes(indifferent(env, *LIKELY), env, episodes, jax.random.key(seed), greedy=greedy, **options)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("byol_explore.evaluation.rollouts"), "MAX_HOST_ENVS", 4)


def test_greedy_episodes_count_once_and_to_their_end() -> None:
    """Short episodes must not be played again until the longest ends."""
    env = Scripted()
    results = run(env, 7, greedy=True)
    lengths = [1, 2, 3, 1, 2, 3, 1]
    np.testing.assert_array_equal(results.length, lengths)
    np.testing.assert_array_equal(results.episode_return, lengths)
    (batch,) = env.batches
    assert (batch.num_envs, batch.closed) == (7, 1)
    assert len(batch.actions) == 3, "no step after the last episode has ended"


def test_sampled_returns_match_the_actions() -> None:
    env = Scripted(lambda i: i % 8 + 1)
    results = run(env, 40)
    (batch,) = env.batches
    taken = np.stack(batch.actions)
    expected = [taken[:length, i].sum() for i, length in enumerate(batch.lengths)]
    np.testing.assert_array_equal(results.episode_return, expected)
    np.testing.assert_array_equal(results.length, batch.lengths)
    assert taken.mean() == pytest.approx(0.75, abs=0.1)


def test_key_determines_actions_and_environment_seeds() -> None:
    envs = [Scripted(lambda i: 8) for _ in range(3)]
    for env, seed in zip(envs, (0, 0, 1), strict=True):
        run(env, 5, seed=seed)
    first, same, other = (env.batches[0] for env in envs)
    np.testing.assert_array_equal(first.actions, same.actions)
    assert first.seed == same.seed != other.seed
    assert (np.stack(first.actions) != np.stack(other.actions)).any()


@pytest.mark.usefixtures("few_at_once")
def test_many_episodes_run_in_parts() -> None:
    env, reported = Scripted(), []
    results = run(env, 10, greedy=True, progress=reported.append)
    assert [(batch.num_envs, batch.closed) for batch in env.batches] == [(4, 1), (4, 1), (2, 1)]
    assert len({batch.seed for batch in env.batches}) == 3, "every part has a seed of its own"
    np.testing.assert_array_equal(results.episode_return, [1, 2, 3, 1, 1, 2, 3, 1, 1, 2])
    np.testing.assert_array_equal(results.length, [1, 2, 3, 1, 1, 2, 3, 1, 1, 2])
    assert reported == [2, 3, 4, 6, 7, 8, 9, 10]


def test_max_host_envs_episodes_are_one_part() -> None:
    env = Scripted(lambda i: 1)
    assert len(run(env, MAX_HOST_ENVS, greedy=True).length) == MAX_HOST_ENVS
    assert [batch.num_envs for batch in env.batches] == [MAX_HOST_ENVS]


def test_environments_are_closed_when_one_fails() -> None:
    env = Scripted(lambda i: 5, fail_at=2)
    with pytest.raises(RuntimeError, match="the world has ended"):
        run(env, 2)
    with pytest.raises(RuntimeError, match="the world has ended"):
        record_frames(indifferent(env, *LIKELY), env, jax.random.key(0), 1)
    assert [batch.closed for batch in env.batches] == [1, 1]


@pytest.mark.parametrize("episodes", [1, 2])
def test_film_has_every_frame_of_its_episodes(episodes: int) -> None:
    """From the first to the last observation. The tens digit is the episode."""
    env = Scripted(lambda i: 3)
    frames = record_frames(indifferent(env, *LIKELY), env, jax.random.key(0), episodes)
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3, 10, 11, 12, 13][: 4 * episodes]
    (batch,) = env.batches
    assert (batch.num_envs, batch.closed) == (1, 1)
