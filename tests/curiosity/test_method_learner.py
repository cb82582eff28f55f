"""Streams cut at any step have the uncertainties of whole ones, and padding changes nothing."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    jit,
    largest,
    make_spec,
    make_trajectory,
    random_observation,
    small_actor,
    small_network,
)
from byol_explore.config.sections import CuriosityConfig
from byol_explore.curiosity.method_learner import MethodLearner, MethodLearnerConfig, MethodLearnerState
from byol_explore.ops import rewards
from byol_explore.spaces import ActionSpec, Spaces, Vector
from byol_explore.types import Action, SequenceBatch

SPEC = make_spec("vector", "hybrid")
stream_uncertainty = jit(MethodLearner.stream_uncertainty, static_argnums=0)
update = jit(MethodLearner.update, static_argnums=0)


@functools.cache
def init(method: str = "byol-explore", core: str = "gru", horizon: int = 3) -> tuple[MethodLearner, MethodLearnerState]:
    learner = MethodLearner(SPEC, method, MethodLearnerConfig(small_network(core), CuriosityConfig(horizon=horizon)))
    observation = random_observation(np.random.default_rng(0), SPEC, (64,))
    return learner, jit(learner.init)(jax.random.key(0), observation)


def make_sequence(seed: int = 0) -> SequenceBatch:
    return make_trajectory(SPEC, small_actor(SPEC), seed).sequence


def cut(sequence: SequenceBatch, start: int, stop: int) -> SequenceBatch:
    """Return observations `start` to `stop`, both included."""
    observation, is_first = jax.tree.map(lambda x: x[start : stop + 1], (sequence.observation, sequence.is_first))
    return SequenceBatch(observation, jax.tree.map(lambda x: x[start:stop], sequence.action), is_first)


def pad(sequence: SequenceBatch, steps: int = 3, others: int = 2) -> SequenceBatch:
    """Add padding with arbitrary content: more steps and more sequences."""
    wide = [(0, steps), (0, others)]
    observation, is_first, action = jax.tree.map(
        lambda x: jnp.pad(x, [*wide, *[(0, 0)] * (x.ndim - 2)], constant_values=True),
        (sequence.observation, sequence.is_first, sequence.action),
    )
    padding = jnp.pad(jnp.zeros((TIME, BATCH), bool), wide, constant_values=True)
    return SequenceBatch(jax.tree.map(lambda x: jnp.where(x == 1, 50.0, x), observation), action, is_first, padding)


@pytest.mark.parametrize(("core", "horizon", "steps"), [("gru", 3, 6), ("lstm", 3, 6), ("gru", 5, 1), ("gru", 5, 2)])
def test_a_stream_has_the_uncertainties_of_a_sequence(core: str, horizon: int, steps: int) -> None:
    """Also if the sequence is shorter than the horizon."""
    learner, state = init(core=core, horizon=horizon)
    sequence, stream = cut(make_sequence(), 0, steps), learner.init_stream(state, BATCH)

    def whole(sequence: SequenceBatch) -> Any:
        view, seen = learner.forward(state.networks, state, stream, sequence)
        return state.networks.method(state.method_state, view, seen).uncertainty

    _, _, uncertainty = stream_uncertainty(learner, state, stream, learner.init_carry(state, BATCH), sequence)
    valid = np.asarray(sequence.valid)
    np.testing.assert_allclose(np.asarray(uncertainty)[valid], np.asarray(jit(whole)(sequence))[valid], rtol=1e-4)


@pytest.mark.parametrize("method", ["byol-explore", "icm"])
def test_a_stream_may_be_cut_at_any_step(method: str) -> None:
    """Pending predictions of K = 3 steps cross the cut, and so does the recurrent state."""
    learner, state = init(method)
    sequence, stream, carry = make_sequence(), learner.init_stream(state, BATCH), learner.init_carry(state, BATCH)
    after, _, whole = stream_uncertainty(learner, state, stream, carry, sequence)
    parts = []
    for start, stop in ((0, 2), (2, 5), (5, 6)):
        stream, carry, part = stream_uncertainty(learner, state, stream, carry, cut(sequence, start, stop))
        parts.append(part)
    assert_trees_close(stream, after)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "icm"])
def test_padding_changes_nothing(method: str) -> None:
    """Neither losses, statistics and gradients, nor stream state and predictions."""
    learner, state = init(method)
    sequence, stream = make_sequence(), learner.init_stream(state, BATCH)
    wide = learner.init_stream(state, BATCH + 2)
    expected, metrics = update(learner, state, stream, sequence)
    found, others = update(learner, state, wide, pad(sequence))
    assert_trees_close(found, expected, rtol=1e-4)
    assert_trees_close(others, metrics, rtol=1e-4)
    (padded, padded_carry, padded_uncertainty), (plain, carry, uncertainty) = (
        stream_uncertainty(learner, state, before, learner.init_carry(state, size), one)
        for before, size, one in ((wide, BATCH + 2, pad(sequence)), (stream, BATCH, sequence))
    )
    assert_trees_close(jax.tree.map(lambda x: x[:BATCH], padded), plain)
    assert_trees_close(jax.tree.map(lambda x: x[:, :BATCH], padded_carry), carry)
    valid, found = np.asarray(sequence.valid), np.asarray(padded_uncertainty)[: TIME - 1, :BATCH]
    np.testing.assert_allclose(found[valid], np.asarray(uncertainty)[valid], rtol=1e-4)


def test_the_recurrent_state_is_reset_where_an_episode_begins() -> None:
    learner, state = init()
    sequence, stream, carry = make_sequence(), learner.init_stream(state, BATCH), learner.init_carry(state, BATCH)
    other = stream._replace(core=stream.core + 1.0)
    no_start = sequence._replace(is_first=jnp.zeros((TIME, BATCH), bool))
    one, two = (stream_uncertainty(learner, state, before, carry, no_start)[2] for before in (other, stream))
    assert largest(one[0] - two[0]) > 1e-4
    start = no_start._replace(is_first=no_start.is_first.at[0].set(True))
    one, two = (stream_uncertainty(learner, state, before, carry, start) for before in (other, stream))
    assert_trees_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "icm"])
def test_updates_lower_the_loss(method: str) -> None:
    learner, state = init(method)
    stream, sequence, losses = learner.init_stream(state, BATCH), make_sequence(), []
    for _ in range(60):
        state, metrics = update(learner, state, stream, sequence)
        losses.append(float(metrics["loss_curiosity"]))
    assert losses[-1] < 0.9 * losses[0]


def test_normalize_divides_by_sigma_and_clips_at_the_mean() -> None:
    """max(l / sigma - mu, 0) by hand, with sigma and mu of the batches before."""
    learner, _ = init()
    normalizer, valid = rewards.init_normalizer(), np.ones((5, 3), bool)
    for seed in range(2):
        normalizer, _ = learner.update_and_normalize(
            normalizer, jax.random.uniform(jax.random.key(seed), (5, 3)), valid
        )
    uncertainty = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    valid[1, 2] = False
    weight, (raw, normalized) = 1 - 0.99**2, normalizer
    mean, square = float(raw.mean) / weight, float(raw.mean_square) / weight
    sigma, threshold = np.sqrt(square - mean**2 + 1e-8), float(normalized.mean) / weight
    expected = np.maximum(uncertainty / sigma - threshold, 0.0) * valid
    np.testing.assert_allclose(learner.normalize(normalizer, uncertainty, valid), expected, rtol=1e-3, atol=1e-5)


def test_one_batch_may_count_as_several() -> None:
    learner, _ = init()
    uncertainty, valid = np.random.default_rng(0).random((5, 3)).astype(np.float32), np.ones((5, 3), bool)
    first, _ = learner.update_and_normalize(rewards.init_normalizer(), 3.0 * uncertainty, valid)
    one_by_one = first
    for _ in range(4):
        one_by_one, _ = learner.update_and_normalize(one_by_one, uncertainty, valid)
    at_once, _ = learner.update_and_normalize(first, uncertainty, valid, 4)
    assert_trees_close(at_once.uncertainty, one_by_one.uncertainty)
    assert int(at_once.normalized.num_updates) == int(one_by_one.normalized.num_updates) == 5


def test_the_example_of_the_module_runs() -> None:
    learner = MethodLearner(Spaces(Vector(4), ActionSpec(discrete=(2,))), config=MethodLearnerConfig(small_network()))
    state = jit(learner.init)(jax.random.key(0), jax.random.normal(jax.random.key(1), (32, 4)))
    stream, carry = learner.init_stream(state, 3), learner.init_carry(state, 3)
    action = Action(jnp.zeros((8, 3, 1), jnp.int32), jnp.zeros((8, 3, 0)))
    sequence = SequenceBatch(jnp.ones((9, 3, 4)), action, jnp.zeros((9, 3), bool))
    _, _, uncertainty = stream_uncertainty(learner, state, stream, carry, sequence)
    normalizer, reward = learner.update_and_normalize(state.reward_normalizer, uncertainty, sequence.valid)
    state, _ = update(learner, state._replace(reward_normalizer=normalizer), stream, sequence)
    assert reward.shape == (8, 3)
