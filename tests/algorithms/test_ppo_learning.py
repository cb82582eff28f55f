"""PPO inside the learner: what is judged once per rollout, what every minibatch does, and what never changes it."""

import dataclasses
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
    shaken,
    small_config,
    unroll,
)
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch, LearnerState
from byol_explore.runtime.learning import cut, learn
from byol_explore.settings.config import Config
from byol_explore.settings.parts import PPOConfig, RuntimeConfig
from byol_explore.types import PyTree, Trajectory

EPOCHS, ENVS = 3, 2 * BATCH


def ppo_config(**settings: Any) -> Config:
    return dataclasses.replace(
        small_config(),
        algorithm="ppo",
        ppo=PPOConfig(epochs=EPOCHS, **settings),
        runtime=RuntimeConfig(num_envs=ENVS, batch_size=BATCH, sequence_length=TIME),
    )


@functools.cache
def setup() -> tuple[Learner, LearnerState, Trajectory]:
    spec = make_spec("vector", "hybrid")
    learner = Learner(ppo_config(), spec, 1, in_turn=True)
    state = learner.init(jax.random.key(1))
    halves = [make_trajectory(spec, state.acting, seed) for seed in (3, 4)]
    timed = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *[half._replace(memory=None) for half in halves])
    memory = jax.tree.map(lambda *x: jnp.concatenate(x), *[half.memory for half in halves])
    return learner, state, timed._replace(memory=memory)


@functools.cache
def learned() -> tuple[LearnerState, Any]:
    learner, state, trajectory = setup()
    return jit(functools.partial(learn, learner))(state, trajectory)


def apart(one: PyTree, other: PyTree) -> float:
    return largest(jax.tree.map(jnp.subtract, one, other))


def test_a_rollout_is_learned_from_epochs_times_in_whole_sequences() -> None:
    learner, state, trajectory = setup()
    assert learner.updates == EPOCHS * ENVS // BATCH
    after, output = learned()
    assert int(after.step) == learner.updates
    assert output.finite.shape == (learner.updates, len(learner.finite_names))
    batches = jit(functools.partial(cut, learner))(state, Batch(trajectory)).trajectory
    seen = np.asarray(batches.observation).reshape(EPOCHS, ENVS // BATCH, TIME, BATCH, -1)
    whole = {np.asarray(trajectory.observation)[:, env].tobytes(): env for env in range(ENVS)}
    orders = [[whole[part[:, j].tobytes()] for part in epoch for j in range(BATCH)] for epoch in seen]
    assert all(sorted(order) == list(range(ENVS)) for order in orders), "every sequence once in every epoch"
    assert len({tuple(order) for order in orders}) > 1, "in another order"
    for index, env in enumerate(orders[0][:BATCH]):
        np.testing.assert_array_equal(batches.memory.core[0, index], trajectory.memory.core[env])
        np.testing.assert_array_equal(batches.reward[0, :, index], trajectory.reward[:, env])


def test_judged_once_with_the_parameters_before() -> None:
    """Statistics after all updates are those of one look at the rollout; every update logs what was judged."""
    learner, state, trajectory = setup()
    prepared, batch, judged = jit(learner.prepare)(state, trajectory)
    after, output = learned()
    assert_trees_close(after.statistics, prepared.statistics, rtol=1e-5, atol=1e-6)
    assert apart(after.statistics, state.statistics) > 1e-3
    for name in ("uncertainty", "intrinsic_reward", "value_target"):
        np.testing.assert_allclose(output.metrics[name], np.full(learner.updates, judged.metrics[name]), rtol=1e-5)
    np.testing.assert_allclose(output.intrinsic_reward, batch.judged.intrinsic, rtol=1e-5)
    moved = state._replace(online=shaken(state.online, seed=2))
    assert apart(jit(learner.prepare)(moved, trajectory)[1].judged, batch.judged) > 1e-2


def test_a_rollout_moves_statistics_as_far_as_its_batches_would() -> None:
    """Else they would be ten times slower than with V-MPO, and a value head that starts far too wide learns nothing."""
    learner, batches, step = setup()[0], ENVS // BATCH, ppo_config().agent.popart_step
    one_by_one = at_once = 5.0
    for _ in range(batches):
        one_by_one += step * (2.0 - one_by_one)
    at_once += learner.critic.step * (2.0 - at_once)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-12)
    assert learner.judge.settings.decay == pytest.approx(ppo_config().curiosity.normalizer_decay ** batches)
    by_batch = Learner(dataclasses.replace(ppo_config(), algorithm="v-mpo"), make_spec("vector", "hybrid"), 1)
    assert by_batch.judge.settings.decay == ppo_config().curiosity.normalizer_decay


def test_preparing_keeps_every_value() -> None:
    """PopArt's statistics move and the head is rescaled: what it says in units of the reward stays."""
    learner, state, trajectory = setup()
    prepared = jit(learner.prepare)(state, trajectory)[0]
    belief = jax.random.normal(jax.random.key(2), (5, 1, 6))

    def values(state: LearnerState) -> np.ndarray:
        head = state.online.value
        task = jnp.zeros((5, 1), jnp.int32)
        return np.asarray(learner.critic.values(head.layers[-1], state.statistics.popart, head.hidden(belief), task))

    np.testing.assert_allclose(values(prepared), values(state), rtol=1e-4, atol=1e-5)
    assert apart(prepared.online.value, state.online.value) > 1e-4


def test_the_acting_policy_is_refreshed_after_the_rollout_and_the_target_follows_every_update() -> None:
    learner, state, trajectory = setup()
    update = jit(learner.update)
    now, batch, _ = jit(learner.prepare)(state, trajectory)
    batches = jit(functools.partial(cut, learner))(now, batch)
    for index in range(learner.updates):
        before = now
        now, _ = update(now, jax.tree.map(lambda x, i=index: x[i], batches))
        encoder = now.online.actor.curious_encoder
        expected = jax.tree.map(lambda phi, theta: 0.99 * phi + 0.01 * theta, before.curiosity, encoder)
        assert_trees_close(now.curiosity, expected, atol=1e-6)
        last = index == learner.updates - 1
        assert (apart(now.acting, state.acting) > 0) is last
    assert_trees_close(now.acting, now.online.actor, rtol=0, atol=0)


@pytest.mark.parametrize("normalize", [True, False])
def test_better_actions_become_more_likely(normalize: bool) -> None:
    """On policy the first gradient is that of -A log pi: a step of it raises the probability where A is positive."""
    spec = make_spec("vector", "discrete")
    learner = Learner(ppo_config(normalize_advantage=normalize), spec, 1, in_turn=True)
    state = learner.init(jax.random.key(1))
    trajectory = make_trajectory(spec, state.acting)
    view = unroll(state.acting, trajectory)
    trajectory = trajectory._replace(policy=state.acting.policy(view.belief[:-1]))
    policy = trajectory.policy
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]),
                        (policy, trajectory.action, trajectory.valid))  # fmt: skip
    advantage = jnp.asarray(np.random.default_rng(0).normal(size=flat[2].shape), jnp.float32)

    def loss(logits: jax.Array) -> jax.Array:
        from byol_explore.algorithms.base import Choices

        choices = Choices(flat[0]._replace(logits=(logits,)), flat[0], flat[0], flat[1], flat[2])
        return learner.algorithm.loss((), choices, advantage).loss

    gradient = np.asarray(jax.grad(loss)(flat[0].logits[0]))
    chosen = np.take_along_axis(gradient, np.asarray(flat[1].discrete), axis=1)[:, 0]
    valid, above = np.asarray(flat[2]), np.asarray(advantage)
    above = above - above[valid].mean() if normalize else above
    np.testing.assert_array_equal(np.sign(chosen[valid]), -np.sign(above[valid]))
    assert not np.any(gradient[~valid])


def test_dummy_transitions_leave_no_trace() -> None:
    learner, state, trajectory = setup()
    dummy = ~np.asarray(trajectory.valid)
    reward = jnp.where(dummy, 7.0, trajectory.reward)
    action = jax.tree.map(lambda x: jnp.where(dummy[..., None], 0, x), trajectory.action)
    changed, _ = jit(functools.partial(learn, learner))(state, trajectory._replace(reward=reward, action=action))
    assert_trees_close(changed.statistics, learned()[0].statistics, rtol=1e-5, atol=1e-6)
    assert_trees_close(changed.online, learned()[0].online, rtol=1e-3, atol=1e-4)
