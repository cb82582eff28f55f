"""Streams inside jit against those of NumPy, and against a slow loop where they lack slots."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from builders import assert_trees_close, jit
from byol_explore.curiosity.inputs import Transition
from byol_explore.curiosity.stream import PackedStream, StreamPosition, cut_sequences, pack_stream
from byol_explore.dropin.inputs import Transitions
from byol_explore.dropin.stream import make_stream
from byol_explore.types import Action
from dropins import Rollout, rollout

STEPS, ENVS = 7, 3
quick = settings(max_examples=40, deadline=None)
pack = jit(pack_stream, static_argnums=2)


def transitions(read: Rollout, done: Any = None, **changes: Any) -> Transition:
    action = Action(read.actions[..., None].astype(np.int32), np.zeros((*read.ended.shape, 0), np.float32))
    return Transition(read.obs, action, read.ended if done is None else done, read.next_obs)._replace(**changes)


def make_position(read: Rollout, begins: np.ndarray, continues: np.ndarray) -> StreamPosition:
    """Return a position that the rollout continues where `continues` is True."""
    expected = np.where(continues[:, None], read.obs[0], 9.0).astype(np.float32)
    return StreamPosition(begins, expected)


def with_ends(done: np.ndarray, seed: int) -> Rollout:
    """Make a rollout with these episode ends; some final observations equal the next first ones."""
    read = rollout(len(done), seed, ends=0.0, num_envs=done.shape[1])
    rng = np.random.default_rng(seed)
    other = rng.normal(size=read.obs.shape).astype(np.float32)
    differs = done & (rng.random(done.shape) < 0.8)
    return read._replace(terminations=done, next_obs=np.where(differs[..., None], other, read.next_obs))


@quick
@given(
    done=st_np.arrays(bool, (STEPS, ENVS)),
    begins=st_np.arrays(bool, ENVS),
    continues=st_np.arrays(bool, ENVS),
    seed=st.integers(0, 1000),
)
def test_streams_equal_those_of_numpy(done: np.ndarray, begins: np.ndarray, continues: np.ndarray, seed: int) -> None:
    """With episode ends anywhere, also at all steps, and streams that are interrupted between two rollouts."""
    read = with_ends(done, seed)
    position, given = make_position(read, begins, continues), transitions(read)
    packed = pack(given, position, STEPS)
    expected = make_stream(
        Transitions(read.obs, given.action, read.next_obs, done, np.zeros(done.shape, bool)), position, max_steps=64
    )
    assert_whole_stream(packed, expected)
    assert len(packed.sequence.is_first) == 2 * STEPS + 1
    np.testing.assert_array_equal(packed.row, expected.row)
    assert_trees_close(packed.after, jax.tree.map(jnp.asarray, expected.after), rtol=0, atol=0)
    assert int(packed.counts["stream_discontinuities"]) == expected.discontinuities
    assert int(packed.counts["masked_episode_ends"]) == int(packed.counts["nonfinite_transitions"]) == 0


def assert_whole_stream(packed: PackedStream, expected: Any) -> None:
    """Compare all slots that both have; the others are padding."""
    slots = min(len(packed.sequence.is_first), len(expected.sequence.is_first))
    for name in ("observation", "is_first", "padding"):
        found, wanted = getattr(packed.sequence, name), getattr(expected.sequence, name)
        np.testing.assert_array_equal(found[:slots], wanted[:slots], err_msg=name)
    for found, wanted in zip(packed.sequence.action, expected.sequence.action, strict=True):
        np.testing.assert_array_equal(found[: slots - 1], wanted[: slots - 1])
    assert np.all(packed.sequence.padding[slots:])
    assert np.all(packed.sequence.is_first[slots:])
    assert np.all(expected.sequence.padding[slots:])


def slow_stream(read: Rollout, env: int, begins: bool, most: int) -> tuple[list[Any], list[bool], list[int]]:
    """Build the stream of one environment, one transition after the other, with `most` slots for final observations."""
    observations: list[Any] = []
    firsts: list[bool] = []
    rows: list[int] = []
    last = len(read.obs) - 1
    for t in range(last + 1):
        observations.append(read.obs[t, env])
        firsts.append(begins)
        rows.append(len(observations) - 1)
        begins = bool(read.ended[t, env])
        if t == last or (begins and most > 0):
            observations.append(read.next_obs[t, env])
            firsts.append(False)
            most -= 1
    return observations, firsts, rows


@pytest.mark.parametrize("most", [0, 1, 3])
def test_episode_ends_beyond_the_slots_are_masked_and_counted(most: int) -> None:
    rng = np.random.default_rng(most)
    for seed in range(10):
        done = rng.random((STEPS, ENVS)) < 0.6
        read = with_ends(done, seed)
        packed = pack(transitions(read), make_position(read, np.ones(ENVS, bool), np.zeros(ENVS, bool)), most)
        assert len(packed.sequence.is_first) == STEPS + most + 1
        for env in range(ENVS):
            observations, firsts, rows = slow_stream(read, env, True, most)
            length = len(observations)
            np.testing.assert_array_equal(packed.sequence.observation[:length, env], observations)
            assert packed.sequence.is_first[:, env].tolist() == firsts + [True] * (STEPS + most + 1 - length)
            assert packed.sequence.padding[:, env].tolist() == [False] * length + [True] * (STEPS + most + 1 - length)
            assert packed.row[:, env].tolist() == rows
        beyond = np.maximum(done[:-1].sum(axis=0) - most, 0).sum()
        assert int(packed.counts["masked_episode_ends"]) == beyond
        valid = np.take_along_axis(np.asarray(packed.sequence.valid), np.asarray(packed.row), axis=0)
        assert np.sum(~valid) == beyond


def test_without_final_observations_all_episode_ends_are_masked() -> None:
    """The next observation is that of the next step, and after the rollout `last_obs`."""
    done = np.random.default_rng(0).random((STEPS, ENVS)) < 0.4
    read, begins = with_ends(done, 1), np.asarray([True, False, True])
    last = np.full((ENVS, 4), 7.0, np.float32)
    position = make_position(read, begins, np.ones(ENVS, bool))
    packed = pack(transitions(read, next_obs=None), position, 4, last)
    np.testing.assert_array_equal(packed.sequence.observation, np.concatenate([read.obs, last[None]]))
    np.testing.assert_array_equal(packed.sequence.is_first, np.concatenate([begins[None], done]))
    assert not np.any(packed.sequence.padding)
    np.testing.assert_array_equal(packed.sequence.valid, ~done)
    np.testing.assert_array_equal(packed.after.is_first, done[-1])
    np.testing.assert_array_equal(packed.after.observation, last)
    assert int(packed.counts["masked_episode_ends"]) == done.sum()
    assert int(packed.counts["stream_discontinuities"]) == 0


def test_transitions_with_nan_are_masked_and_counted() -> None:
    """Transition 2 leads to NaN, and transition 3 comes from it."""
    read = rollout(STEPS, ends=0.0, num_envs=ENVS)
    read.obs[3, 1] = read.next_obs[2, 1] = np.nan
    packed = pack(transitions(read), make_position(read, np.ones(ENVS, bool), np.ones(ENVS, bool)), 2)
    assert np.all(np.isfinite(packed.sequence.observation))
    valid = np.take_along_axis(np.asarray(packed.sequence.valid), np.asarray(packed.row), axis=0)
    assert np.argwhere(~valid).tolist() == [[2, 1], [3, 1]]
    assert int(packed.counts["nonfinite_transitions"]) == 2


def test_sequences_overlap_by_one_observation() -> None:
    read = with_ends(np.random.default_rng(3).random((STEPS, ENVS)) < 0.3, 3)
    packed = pack(transitions(read), make_position(read, np.ones(ENVS, bool), np.ones(ENVS, bool)), 2)
    parts = jit(partial(cut_sequences, steps=4, count=3))(packed.sequence)  # 13 slots of which 10 exist
    assert parts.is_first.shape == (3, 5, ENVS)
    whole = np.concatenate([parts.observation[0], *parts.observation[1:, 1:]])
    np.testing.assert_array_equal(whole[:10], packed.sequence.observation)
    np.testing.assert_array_equal(parts.observation[1:, 0], parts.observation[:-1, -1])
    actions = np.concatenate(list(parts.action.discrete))
    np.testing.assert_array_equal(actions[:9], packed.sequence.action.discrete)
    assert np.all(np.concatenate([parts.padding[0], *parts.padding[1:, 1:]])[10:])
