"""Curiosity without an agent: it follows streams that are cut anywhere, and what fills sequences up counts nowhere."""

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
from byol_explore.curiosity.bonus import Bonus, BonusState
from byol_explore.ops import moments
from byol_explore.settings.parts import CuriosityConfig
from byol_explore.spaces import ActionSpec, Spaces, Vector
from byol_explore.types import Action, Sequence

SPEC = make_spec("vector", "hybrid")
FOLLOW, UPDATE = jit(Bonus.follow, static_argnums=0), jit(Bonus.update, static_argnums=0)


@functools.cache
def started(method: str = "byol-explore", core: str = "gru", horizon: int = 3) -> tuple[Bonus, BonusState]:
    bonus = Bonus(SPEC, method, network=small_network(core), curiosity=CuriosityConfig(horizon=horizon))
    observation = random_observation(np.random.default_rng(0), SPEC, (64,))
    return bonus, jit(bonus.init)(jax.random.key(0), observation)


def sequence_of(seed: int = 0) -> Sequence:
    return make_trajectory(SPEC, small_actor(SPEC), seed).sequence


def cut(sequence: Sequence, start: int, stop: int) -> Sequence:
    """From one observation to another."""
    observation, is_first = jax.tree.map(lambda x: x[start : stop + 1], (sequence.observation, sequence.is_first))
    return Sequence(observation, jax.tree.map(lambda x: x[start:stop], sequence.action), is_first)


def filled(sequence: Sequence, steps: int = 3, others: int = 2) -> Sequence:
    """Longer and wider by nonsense that says of itself that it is none."""
    wide = [(0, steps), (0, others)]
    observation, is_first, action = jax.tree.map(
        lambda x: jnp.pad(x, [*wide, *[(0, 0)] * (x.ndim - 2)], constant_values=True),
        (sequence.observation, sequence.is_first, sequence.action),
    )
    filling = jnp.pad(jnp.zeros((TIME, BATCH), bool), wide, constant_values=True)
    return Sequence(jax.tree.map(lambda x: jnp.where(x == 1, 50.0, x), observation), action, is_first, filling)


@pytest.mark.parametrize(("core", "horizon", "steps"), [("gru", 3, 6), ("lstm", 3, 6), ("gru", 5, 1), ("gru", 5, 2)])
def test_following_says_what_the_method_says_of_the_whole(core: str, horizon: int, steps: int) -> None:
    """Also of sequences that are shorter than the horizon."""
    bonus, state = started(core=core, horizon=horizon)
    sequence, memory = cut(sequence_of(), 0, steps), bonus.initial_memory(state, BATCH)

    def whole(sequence: Sequence) -> Any:
        view, seen = bonus.view(state.networks, state, memory, sequence)
        return state.networks.method(state.method, view, seen).uncertainty

    _, _, uncertainty = FOLLOW(bonus, state, memory, bonus.opened(state, BATCH), sequence)
    valid = np.asarray(sequence.valid)
    np.testing.assert_allclose(np.asarray(uncertainty)[valid], np.asarray(jit(whole)(sequence))[valid], rtol=1e-4)


@pytest.mark.parametrize("method", ["byol-explore", "icm"])
def test_a_stream_that_is_cut_anywhere_is_seen_as_if_it_were_whole(method: str) -> None:
    """Predictions under way cross the cut, K = 3 steps ahead, and so does the memory."""
    bonus, state = started(method)
    sequence, memory, carry = sequence_of(), bonus.initial_memory(state, BATCH), bonus.opened(state, BATCH)
    after, _, whole = FOLLOW(bonus, state, memory, carry, sequence)
    parts = []
    for start, stop in ((0, 2), (2, 5), (5, 6)):
        memory, carry, part = FOLLOW(bonus, state, memory, carry, cut(sequence, start, stop))
        parts.append(part)
    assert_trees_close(memory, after)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "icm"])
def test_what_fills_up_counts_nowhere(method: str) -> None:
    """Neither in losses, statistics and gradients, nor in memory and windows."""
    bonus, state = started(method)
    sequence, memory = sequence_of(), bonus.initial_memory(state, BATCH)
    wide = bonus.initial_memory(state, BATCH + 2)
    expected, metrics = UPDATE(bonus, state, memory, sequence)
    found, others = UPDATE(bonus, state, wide, filled(sequence))
    assert_trees_close(found, expected, rtol=1e-4)
    assert_trees_close(others, metrics, rtol=1e-4)
    (ours, carry, uncertainty), (theirs, windows, error) = (
        FOLLOW(bonus, state, before, bonus.opened(state, size), one)
        for before, size, one in ((wide, BATCH + 2, filled(sequence)), (memory, BATCH, sequence))
    )
    assert_trees_close(jax.tree.map(lambda x: x[:BATCH], ours), theirs)
    assert_trees_close(jax.tree.map(lambda x: x[:, :BATCH], carry), windows)
    valid = np.asarray(sequence.valid)
    np.testing.assert_allclose(np.asarray(uncertainty)[: TIME - 1, :BATCH][valid], np.asarray(error)[valid], rtol=1e-4)


def test_the_memory_matters_until_an_episode_begins() -> None:
    bonus, state = started()
    sequence, memory, carry = sequence_of(), bonus.initial_memory(state, BATCH), bonus.opened(state, BATCH)
    other = memory._replace(core=memory.core + 1.0)
    running = sequence._replace(is_first=jnp.zeros((TIME, BATCH), bool))
    one, two = (FOLLOW(bonus, state, before, carry, running)[2] for before in (other, memory))
    assert largest(one[0] - two[0]) > 1e-4
    beginning = running._replace(is_first=running.is_first.at[0].set(True))
    one, two = (FOLLOW(bonus, state, before, carry, beginning) for before in (other, memory))
    assert_trees_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "icm"])
def test_it_learns(method: str) -> None:
    bonus, state = started(method)
    memory, sequence, losses = bonus.initial_memory(state, BATCH), sequence_of(), []
    for _ in range(60):
        state, metrics = UPDATE(bonus, state, memory, sequence)
        losses.append(float(metrics["loss_curiosity"]))
    assert losses[-1] < 0.9 * losses[0]


def test_paying_uses_what_is_known() -> None:
    """max(l / sigma - mu, 0) with sigma and mu of the batches that were judged, by hand."""
    bonus, _ = started()
    normalizer, valid = moments.initial_normalizer(), np.ones((5, 3), bool)
    for seed in range(2):
        normalizer, _ = bonus.judge(normalizer, jax.random.uniform(jax.random.key(seed), (5, 3)), valid)
    uncertainty = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    valid[1, 2] = False
    weight, (raw, normalized) = 1 - 0.99**2, normalizer
    mean, square = float(raw.mean) / weight, float(raw.mean_square) / weight
    sigma, threshold = np.sqrt(square - mean**2 + 1e-8), float(normalized.mean) / weight
    expected = np.maximum(uncertainty / sigma - threshold, 0.0) * valid
    np.testing.assert_allclose(bonus.pay(normalizer, uncertainty, valid), expected, rtol=1e-3, atol=1e-5)


def test_a_batch_with_the_weight_of_several_moves_the_statistics_as_far_as_these() -> None:
    bonus, _ = started()
    uncertainty, valid = np.random.default_rng(0).random((5, 3)).astype(np.float32), np.ones((5, 3), bool)
    first, _ = bonus.judge(moments.initial_normalizer(), 3.0 * uncertainty, valid)
    one_by_one = first
    for _ in range(4):
        one_by_one, _ = bonus.judge(one_by_one, uncertainty, valid)
    at_once, _ = bonus.judge(first, uncertainty, valid, 4)
    assert_trees_close(at_once.raw, one_by_one.raw)
    assert int(at_once.normalized.batches) == int(one_by_one.normalized.batches) == 5


def test_a_reader_needs_nothing_but_spaces() -> None:
    """As the module's own words have it."""
    bonus = Bonus(Spaces(Vector(4), ActionSpec(discrete=(2,))), network=small_network())
    state = jit(bonus.init)(jax.random.key(0), jax.random.normal(jax.random.key(1), (32, 4)))
    memory, carry = bonus.initial_memory(state, 3), bonus.opened(state, 3)
    action = Action(jnp.zeros((8, 3, 1), jnp.int32), jnp.zeros((8, 3, 0)))
    sequence = Sequence(jnp.ones((9, 3, 4)), action, jnp.zeros((9, 3), bool))
    _, _, uncertainty = FOLLOW(bonus, state, memory, carry, sequence)
    normalizer, reward = bonus.judge(state.rewards, uncertainty, sequence.valid)
    state, _ = UPDATE(bonus, state._replace(rewards=normalizer), memory, sequence)
    assert reward.shape == (8, 3)
