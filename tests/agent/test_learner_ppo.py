"""Tests of PPO in the learner: targets once per rollout, minibatches, and masks."""

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
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch, LearnerState
from byol_explore.config.config import Config
from byol_explore.config.sections import PPOConfig, RuntimeConfig
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
    learner = Learner(ppo_config(), spec, 1, synchronous=True)
    state = learner.init(jax.random.key(1))
    halves = [make_trajectory(spec, state.target_actor, seed) for seed in (3, 4)]
    timed = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *[half._replace(initial_state=None) for half in halves])
    memory = jax.tree.map(lambda *x: jnp.concatenate(x), *[half.initial_state for half in halves])
    return learner, state, timed._replace(initial_state=memory)


@functools.cache
def learned() -> tuple[LearnerState, Any]:
    learner, state, trajectory = setup()
    return jit(learner.learn_rollout)(state, trajectory)


def max_difference(one: PyTree, other: PyTree) -> float:
    return largest(jax.tree.map(jnp.subtract, one, other))


def test_every_epoch_has_each_whole_sequence_once_in_random_order() -> None:
    learner, state, trajectory = setup()
    assert learner.updates_per_rollout == EPOCHS * ENVS // BATCH
    after, output = learned()
    assert int(after.step) == learner.updates_per_rollout
    assert output.finite.flags.shape == (learner.updates_per_rollout, len(output.finite.names))
    batches = jit(learner.make_minibatches)(state, Batch(trajectory)).trajectory
    seen = np.asarray(batches.observation).reshape(EPOCHS, ENVS // BATCH, TIME, BATCH, -1)
    whole = {np.asarray(trajectory.observation)[:, env].tobytes(): env for env in range(ENVS)}
    orders = [[whole[part[:, j].tobytes()] for part in epoch for j in range(BATCH)] for epoch in seen]
    assert all(sorted(order) == list(range(ENVS)) for order in orders), "a sequence is missing or repeated in an epoch"
    assert len({tuple(order) for order in orders}) > 1, "all epochs have one order"
    for index, env in enumerate(orders[0][:BATCH]):
        np.testing.assert_array_equal(
            batches.initial_state.policy_core[0, index], trajectory.initial_state.policy_core[env]
        )
        np.testing.assert_array_equal(batches.reward[0, :, index], trajectory.reward[:, env])


def test_targets_are_computed_once_with_the_parameters_before_the_updates() -> None:
    """Statistics move once per rollout, and every update logs the same targets."""
    learner, state, trajectory = setup()
    prepared, batch, prepared_output = jit(learner.compute_rollout_targets)(state, trajectory)
    after, output = learned()
    assert_trees_close(after.statistics, prepared.statistics, rtol=1e-5, atol=1e-6)
    assert max_difference(after.statistics, state.statistics) > 1e-3
    for name in ("uncertainty", "intrinsic_reward", "value_target"):
        np.testing.assert_allclose(
            output.metrics[name], np.full(learner.updates_per_rollout, prepared_output.metrics[name]), rtol=1e-5
        )
    np.testing.assert_allclose(output.intrinsic_reward, batch.targets.intrinsic_reward, rtol=1e-5)
    moved = state._replace(online=shaken(state.online, seed=2))
    assert max_difference(jit(learner.compute_rollout_targets)(moved, trajectory)[1].targets, batch.targets) > 1e-2


def test_rollout_moves_statistics_as_far_as_its_batches_would() -> None:
    """PPO's statistics would follow the rewards more slowly than V-MPO's otherwise."""
    learner, batches, step = setup()[0], ENVS // BATCH, ppo_config().agent.popart_step_size
    one_by_one = at_once = 5.0
    for _ in range(batches):
        one_by_one += step * (2.0 - one_by_one)
    at_once += learner.critic.step_size * (2.0 - at_once)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-12)
    assert learner.target_computer.settings.decay == pytest.approx(ppo_config().curiosity.normalizer_decay ** batches)
    by_batch = Learner(dataclasses.replace(ppo_config(), algorithm="v-mpo"), make_spec("vector", "hybrid"), 1)
    assert by_batch.target_computer.settings.decay == ppo_config().curiosity.normalizer_decay


def test_rollout_targets_keep_all_values() -> None:
    """PopArt's statistics move and the head is rescaled: values in units of the reward stay."""
    learner, state, trajectory = setup()
    compute_targets = jit(learner.compute_rollout_targets)
    state = compute_targets(state, trajectory)[0]._replace(online=shaken(state.online))
    prepared = compute_targets(state, trajectory)[0]
    belief = jax.random.normal(jax.random.key(2), (5, 1, 6))

    def values(state: LearnerState) -> np.ndarray:
        head = state.online.value_head
        task = jnp.zeros((5, 1), jnp.int32)
        return np.asarray(learner.critic.values(head.layers[-1], state.statistics.popart, head.hidden(belief), task))

    np.testing.assert_allclose(values(prepared), values(state), rtol=1e-4, atol=1e-5)
    assert max_difference(prepared.online.value_head, state.online.value_head) > 1e-4


def test_acting_policy_is_refreshed_once_and_the_target_encoder_every_update() -> None:
    learner, state, trajectory = setup()
    update = jit(learner.update)
    now, batch, _ = jit(learner.compute_rollout_targets)(state, trajectory)
    batches = jit(learner.make_minibatches)(now, batch)
    for index in range(learner.updates_per_rollout):
        before = now
        now, _ = update(now, jax.tree.map(lambda x, i=index: x[i], batches))
        encoder = now.online.actor.curiosity_encoder
        expected = jax.tree.map(lambda phi, theta: 0.99 * phi + 0.01 * theta, before.method_state, encoder)
        assert_trees_close(now.method_state, expected, atol=1e-6)
        last = index == learner.updates_per_rollout - 1
        assert (max_difference(now.target_actor, state.target_actor) > 0) is last
    assert_trees_close(now.target_actor, now.online.actor, rtol=0, atol=0)


def test_ratio_is_one_in_every_minibatch_before_any_gradient() -> None:
    """Without a step of the optimizer nothing that the policy reads may move between the minibatches of a rollout."""
    learner, state, trajectory = setup()
    behaviour = state.target_actor.policy_head(unroll(state.target_actor, trajectory).belief[:-1])
    hyperparams = state.hyperparams._replace(learning_rate=jnp.zeros(()))
    _, output = jit(learner.learn_rollout)(
        state._replace(hyperparams=hyperparams), trajectory._replace(behaviour_policy=behaviour)
    )
    assert output.metrics["kl"].shape == (learner.updates_per_rollout,)
    np.testing.assert_allclose(output.metrics["kl"], 0.0, atol=1e-6)
    np.testing.assert_array_equal(output.metrics["clip_fraction"], 0.0)


def test_normalizer_adds_each_observation_once_per_rollout() -> None:
    _, state, trajectory = setup()
    after, _ = learned()
    expected = state.online.actor.obs_normalizer.update(trajectory.observation)
    assert float(expected.entries[""].count) == float(state.online.actor.obs_normalizer.entries[""].count) + TIME * ENVS
    assert_trees_close(after.online.actor.obs_normalizer, expected)
    assert_trees_close(after.target_actor.obs_normalizer, expected)


@pytest.mark.parametrize("normalize", [True, False])
def test_better_actions_become_more_likely(normalize: bool) -> None:
    """On policy the first gradient is that of -A log pi, so a step raises the probability where A > 0."""
    spec = make_spec("vector", "discrete")
    learner = Learner(ppo_config(normalize_advantage=normalize), spec, 1, synchronous=True)
    state = learner.init(jax.random.key(1))
    trajectory = make_trajectory(spec, state.target_actor)
    view = unroll(state.target_actor, trajectory)
    trajectory = trajectory._replace(behaviour_policy=state.target_actor.policy_head(view.belief[:-1]))
    policy = trajectory.behaviour_policy
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]),
                        (policy, trajectory.action, trajectory.valid))  # fmt: skip
    advantage = jnp.asarray(np.random.default_rng(0).normal(size=flat[2].shape), jnp.float32)

    def loss(logits: jax.Array) -> jax.Array:
        from byol_explore.agent.algorithm import PolicyBatch

        batch = PolicyBatch(flat[0]._replace(logits=(logits,)), flat[0], flat[0], flat[1], flat[2])
        return learner.algorithm.loss((), batch, advantage).loss

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
    changed, _ = jit(learner.learn_rollout)(state, trajectory._replace(reward=reward, action=action))
    assert_trees_close(changed.statistics, learned()[0].statistics, rtol=1e-5, atol=1e-6)
    assert_trees_close(changed.online, learned()[0].online, rtol=1e-3, atol=1e-4)
