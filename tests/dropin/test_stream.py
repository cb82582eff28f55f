"""Streams of transitions against streams by hand and against a slow loop."""

from typing import Any

import numpy as np
import pytest

from builders import assert_trees_close
from byol_explore.curiosity.stream import StreamPosition
from byol_explore.dropin.inputs import Transitions
from byol_explore.dropin.stream import (
    Stream,
    gather_minibatch,
    iter_sequences,
    make_stream,
    sequence_indices,
)
from byol_explore.errors import UserError
from byol_explore.types import Action
from dropins import Rollout, rollout

# One environment whose observations are numbers: 1 2 3 | 10 11 | 20 21. The last observations, 3 and 11, are seen.
OBS = np.asarray([1, 2, 10, 20], np.float32)
NEXT = np.asarray([2, 3, 11, 21], np.float32)
ENDED = np.asarray([0, 1, 1, 0], bool)


def transitions(obs: Any, after: Any, ended: Any, skipped: Any = None) -> Transitions:
    """Make transitions of environments in columns; an action is ten times its observation."""
    obs, after, ended = (np.asarray(x).reshape(len(x), -1) for x in (obs, after, ended))
    action = Action((10 * obs[..., None]).astype(np.int32), np.zeros((*obs.shape, 0), np.float32))
    skips = np.zeros(ended.shape, bool) if skipped is None else np.reshape(skipped, ended.shape)
    return Transitions(obs[..., None], action, after[..., None], ended, skips)


def start_position(envs: int = 1) -> StreamPosition:
    return StreamPosition(np.ones(envs, bool), np.zeros((envs, 1), np.float32))


def slots(stream: Stream) -> list[float]:
    """Return the observations of the first environment without padding."""
    return stream.sequence.observation[: stream.length[0] + 1, 0, 0].tolist()


def test_final_observations_stay_and_dummies_separate_episodes() -> None:
    stream = make_stream(transitions(OBS, NEXT, ENDED), start_position(), max_steps=8)
    assert slots(stream) == [1, 2, 3, 10, 11, 20, 21]
    assert stream.sequence.is_first[:, 0].tolist() == [1, 0, 0, 1, 0, 1, 0, 1, 1]
    assert stream.sequence.padding[:, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert stream.sequence.action.discrete[:, 0, 0].tolist() == [10, 20, 0, 100, 0, 200, 0, 0]
    assert stream.row[:, 0].tolist() == [0, 1, 3, 5]
    assert (stream.length.tolist(), stream.steps, stream.episode_ends, stream.repeated_final_obs) == ([6], 8, 2, 0)
    assert (stream.after.is_first.tolist(), stream.after.observation.tolist()) == ([False], [[21]])


def test_skipped_steps_are_not_in_the_stream() -> None:
    """NEXT_STEP mode: the steps 3 -> 10 and 11 -> 20 only reset."""
    obs, after = [1, 2, 3, 10, 11, 20], [2, 3, 10, 11, 20, 21]
    skipped = [0, 0, 1, 0, 1, 0]
    given = transitions(obs, after, [0, 1, 0, 1, 0, 0], np.asarray(skipped, bool))
    stream = make_stream(given, start_position(), max_steps=8)
    expected = make_stream(transitions(OBS, NEXT, ENDED), start_position(), max_steps=8)
    assert_trees_close(stream.sequence, expected.sequence, rtol=0, atol=0)
    assert stream.row[:, 0].tolist() == [0, 1, -1, 3, -1, 5]


@pytest.mark.parametrize(("first", "is_first", "breaks"), [(21, False, 0), (22, True, 1)])
def test_an_unexpected_observation_begins_an_episode(first: float, is_first: bool, breaks: int) -> None:
    position = make_stream(transitions(OBS, NEXT, ENDED), start_position(), max_steps=8).after
    stream = make_stream(transitions([first], [30], [False]), position, max_steps=8)
    assert stream.sequence.is_first[:, 0].tolist() == [is_first, False]
    assert (stream.discontinuities, stream.steps) == (breaks, 1)


def test_an_episode_begins_after_an_end_even_with_an_equal_observation() -> None:
    position = StreamPosition(np.asarray([True]), np.asarray([[5.0]]))
    stream = make_stream(transitions([5.0], [6.0], [True]), position, max_steps=8)
    assert (bool(stream.sequence.is_first[0, 0]), stream.discontinuities) == (True, 0)
    assert stream.after.is_first.tolist() == [True]


def test_a_skipped_environment_keeps_its_position() -> None:
    position = StreamPosition(np.asarray([False, True]), np.asarray([[5.0], [7.0]]))
    given = transitions([[0, 7]], [[0, 8]], [[0, 0]], [[True, False]])
    stream = make_stream(given, position, max_steps=8)
    assert stream.after.is_first.tolist() == [False, False]
    assert stream.after.observation.tolist() == [[5.0], [8.0]]
    assert (stream.length.tolist(), stream.sequence.padding[:, 0].all()) == ([0, 1], True)


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(UserError, match=r"next_obs\[0, 1\] is not obs\[1, 1\], though no episode ended there"):
        make_stream(transitions([[1, 1], [2, 9]], [[2, 2], [3, 3]], [[0, 0], [0, 0]]), start_position(2), max_steps=8)


def test_repeated_final_observations_are_counted() -> None:
    """A common mistake: the first observation of the next episode in position of the final one."""
    stream = make_stream(transitions([1, 2, 10], [2, 10, 11], [0, 1, 0]), start_position(), max_steps=8)
    assert (stream.episode_ends, stream.repeated_final_obs) == (1, 1)


def slow_stream(given: Rollout, begins: bool) -> tuple[list[Any], list[bool], list[int]]:
    """Build the stream of the first environment, one transition after the other."""
    observations, firsts, where = [], [], []
    for t in range(len(given.obs)):
        if begins or not observations:
            observations.append(given.obs[t, 0])
            firsts.append(begins)
        where.append(len(observations) - 1)
        observations.append(given.next_obs[t, 0])
        firsts.append(False)
        begins = bool(given.ended[t, 0])
    return observations, firsts, where


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [3, 8])
def test_random_streams_equal_a_slow_loop(seed: int, most: int) -> None:
    given = rollout(1 + 5 * seed, seed, ends=0.3)
    read = Transitions(
        given.obs, Action(given.actions[..., None], np.zeros((*given.ended.shape, 0))), given.next_obs, given.ended,
        np.zeros(given.ended.shape, bool),
    )  # fmt: skip
    stream = make_stream(read, StreamPosition(np.ones(2, bool), given.obs[0]), most)
    observations, firsts, where = slow_stream(given, True)
    assert stream.length[0] == len(observations) - 1
    np.testing.assert_array_equal(stream.sequence.observation[: len(observations), 0], observations)
    assert stream.sequence.is_first[: len(observations), 0].tolist() == firsts
    assert stream.row[:, 0].tolist() == where
    parts = list(iter_sequences(stream))
    assert all(len(part.is_first) == stream.steps + 1 for part in parts)
    again = np.concatenate([part.observation[:-1, 0] for part in parts])
    np.testing.assert_array_equal(again[: len(observations) - 1], observations[:-1])


def test_a_minibatch_is_padded() -> None:
    stream = make_stream(transitions(OBS, NEXT, ENDED), start_position(), max_steps=4)
    chunk, env = sequence_indices(stream)
    assert (chunk.tolist(), env.tolist()) == ([0, 1], [0, 0])
    batch = gather_minibatch(stream, chunk[1:], env[1:], size=3)
    assert batch.observation[:, 0, 0].tolist() == [11, 20, 21, 0, 0]
    assert batch.is_first[:, 1:].all()
    assert batch.padding[:, 1:].all()
    assert batch.padding[:, 0].tolist() == [False, False, False, True, True]
    assert not stream.sequence.padding[4:7].any()  # the stream itself is left alone
