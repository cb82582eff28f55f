"""Curiosity without an agent: it agrees with the learner's, carries its memory, and pays by what it knows."""

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
    small_config,
    small_network,
    update_of,
)
from byol_explore.curiosity.bonus import Bonus, BonusMemory, BonusState, Trained
from byol_explore.curiosity.reward import RewardSettings, RewardStatistics, initial_statistics, make_rewards, pay
from byol_explore.learner import Learner
from byol_explore.networks.assembly import Actor
from byol_explore.settings.parts import CuriosityConfig
from byol_explore.spaces import ActionSpec, Spaces, Vector
from byol_explore.types import Action, Sequence

SPEC = make_spec("vector", "hybrid")


def bonus_of(method: str = "byol-explore", **curiosity: Any) -> Bonus:
    return Bonus(SPEC, method, network=small_network(), curiosity=CuriosityConfig(**{"horizon": 2} | curiosity))


@functools.cache
def started(method: str, horizon: int = 2) -> tuple[Bonus, BonusState, Any, Any]:
    bonus = bonus_of(method, horizon=horizon)
    observation = random_observation(np.random.default_rng(0), SPEC, (64,))
    return bonus, jit(bonus.init)(jax.random.key(0), observation), jit(bonus.update), jit(bonus.pay)


def sequence_of(seed: int = 0) -> Sequence:
    return make_trajectory(SPEC, small_actor(SPEC), seed).sequence


def cut(sequence: Sequence, start: int, stop: int) -> Sequence:
    """From one observation to another."""
    observation, is_first = jax.tree.map(lambda x: x[start : stop + 1], (sequence.observation, sequence.is_first))
    return Sequence(observation, jax.tree.map(lambda x: x[start:stop], sequence.action), is_first)


@pytest.mark.parametrize("method", ["byol-explore", "icm"])
def test_it_computes_what_the_learner_computes(method: str) -> None:
    """With networks apart, curiosity learns nothing from the agent: both paths lead to the same parameters."""
    learner = Learner(small_config(method, share=False, horizon=2), SPEC, 1)
    state = learner.init(jax.random.key(1))
    actor: Actor = state.online.actor
    assert actor.curious is not None
    bonus = Bonus(SPEC, method, network=learner.config.network, curiosity=learner.config.curiosity,
                  optimizer=learner.config.optimizer)  # fmt: skip
    networks = Trained(actor.curious, state.online.curiosity)
    own = BonusState(
        networks, actor.normalizer, state.curiosity, bonus.optimizer.init(networks), initial_statistics()  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    update, learn = jit(bonus.update), update_of(learner)
    for seed in range(3):
        trajectory = make_trajectory(SPEC, actor, seed)
        memory = BonusMemory(trajectory.memory.curious, trajectory.memory.action)
        state, theirs = learn(state, trajectory)
        own, _, ours = update(own, memory, trajectory.sequence)
        np.testing.assert_allclose(ours.reward, theirs.intrinsic_reward, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.metrics["prediction_error"], theirs.metrics["prediction_error"], rtol=1e-4)
        np.testing.assert_allclose(ours.metrics["embedding_spread"], theirs.metrics["embedding_spread"], rtol=1e-4)
    assert_trees_close(own.networks, Trained(state.online.actor.curious, state.online.curiosity), rtol=1e-4)
    assert_trees_close(own.method, state.curiosity, rtol=1e-4)
    assert_trees_close(own.statistics.normalizer, state.statistics.reward.normalizer, rtol=1e-4)
    assert_trees_close(own.normalizer, state.online.actor.normalizer)


@pytest.mark.parametrize("middle", [2, TIME // 2, TIME - 2])
def test_a_sequence_that_is_cut_is_seen_as_if_it_were_whole(middle: int) -> None:
    """One step ahead, no window is lost where it is cut; the memory is all that goes across."""
    bonus, state, _, paid = started("byol-explore", horizon=1)
    sequence, memory = sequence_of(), bonus.initial_memory(state, BATCH)
    state = state._replace(statistics=experienced())
    after, whole = paid(state, memory, sequence)
    memory, first = paid(state, memory, cut(sequence, 0, middle))
    memory, second = paid(state, memory, cut(sequence, middle, TIME - 1))
    assert_trees_close(memory, after)
    for name in ("uncertainty", "reward"):
        together = np.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_allclose(together, getattr(whole, name), rtol=1e-4, atol=1e-6)


def test_the_memory_matters_until_an_episode_begins() -> None:
    bonus, state, _, paid = started("byol-explore", horizon=1)
    sequence, memory = sequence_of(), bonus.initial_memory(state, BATCH)
    other = memory._replace(core=memory.core + 1.0)
    running = sequence._replace(is_first=jnp.zeros((TIME, BATCH), bool))
    difference = paid(state, other, running)[1].uncertainty - paid(state, memory, running)[1].uncertainty
    assert largest(difference[0]) > 1e-4
    beginning = running._replace(is_first=running.is_first.at[0].set(True))
    assert_trees_close(paid(state, other, beginning), paid(state, memory, beginning), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["byol-explore", "rnd", "icm"])
def test_it_learns(method: str) -> None:
    bonus, state, update, _ = started(method)
    memory, sequence, losses = bonus.initial_memory(state, BATCH), sequence_of(), []
    for _ in range(60):
        state, _, output = update(state, memory, sequence)
        losses.append(float(output.metrics["loss_curiosity"]))
    assert losses[-1] < 0.9 * losses[0]
    assert np.all(np.isfinite(output.reward))
    np.testing.assert_array_equal(np.asarray(output.reward)[~np.asarray(sequence.valid)], 0.0)


def experienced() -> RewardStatistics:
    """Statistics that have seen two batches of uncertainties."""
    statistics = initial_statistics()
    for seed in range(2):
        uncertainty = jax.random.uniform(jax.random.key(seed), (5, 3))
        task, valid = jnp.zeros((5, 3), jnp.int32), jnp.ones((5, 3), bool)
        statistics, _ = make_rewards(statistics, uncertainty, 0 * uncertainty, task, valid, RewardSettings())
    return statistics


def test_paying_leaves_everything_as_it_is_and_uses_what_is_known() -> None:
    """max(l / sigma - mu, 0) with sigma and mu of the batches that were learned from, by hand."""
    bonus, state, _, paid = started("byol-explore")
    state = state._replace(statistics=experienced())
    sequence = sequence_of()
    _, output = paid(state, bonus.initial_memory(state, BATCH), sequence)
    decay, raw, normalized = 0.99, *state.statistics.normalizer
    weight = 1 - decay**2
    mean, square = float(raw.mean[0]) / weight, float(raw.mean_square[0]) / weight
    sigma, threshold = np.sqrt(square - mean**2 + 1e-8), float(normalized.mean[0]) / weight
    expected = np.maximum(np.asarray(output.uncertainty) / sigma - threshold, 0.0) * np.asarray(sequence.valid)
    np.testing.assert_allclose(output.reward, expected, rtol=1e-3, atol=1e-5)


def test_a_task_is_paid_on_its_own_scale() -> None:
    """Statistics as they stand: those of the task, and nobody else's."""
    settings = RewardSettings("intrinsic", decay=0.9, intrinsic_step=0.5)
    uncertainty, task = jnp.array([[0.1, 3.0], [0.4, 5.0]]), jnp.array([[0, 1], [0, 1]])
    valid = jnp.ones((2, 2), bool)
    statistics, rewards = make_rewards(initial_statistics(2), uncertainty, 0 * uncertainty, task, valid, settings)
    np.testing.assert_allclose(pay(statistics, uncertainty, task, valid, settings), rewards.total, rtol=1e-5)
    lower = pay(statistics, uncertainty / 2, task, valid, settings)
    assert float(lower[1, 1]) < float(rewards.total[1, 1])


def test_a_reader_needs_nothing_but_spaces() -> None:
    """As the module's own words have it."""
    bonus = Bonus(Spaces(Vector(4), ActionSpec(discrete=(2,))))
    state = bonus.init(jax.random.key(0), jax.random.normal(jax.random.key(1), (32, 4)))
    memory = bonus.initial_memory(state, 3)
    action = Action(jnp.zeros((8, 3, 1), jnp.int32), jnp.zeros((8, 3, 0)))
    sequence = Sequence(jnp.ones((9, 3, 4)), action, jnp.zeros((9, 3), bool))
    _, memory, output = jit(bonus.update)(state, memory, sequence)
    assert output.reward.shape == (8, 3)
