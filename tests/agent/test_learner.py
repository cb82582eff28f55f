"""Tests of a learner step: statistics, losses, masks, target policy, and batches that are sharded over devices."""

import dataclasses
import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import references
from builders import (
    BATCH,
    TIME,
    assert_trees_close,
    jit,
    largest,
    make,
    make_spec,
    make_trajectory,
    shaken,
    small_config,
    unroll,
    update_of,
)
from byol_explore.agent.acting import policy_forward
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch, FiniteChecks, LearnerState
from byol_explore.agent.targets import TargetOutput
from byol_explore.config.config import Config
from byol_explore.config.sections import AgentConfig, OptimizerConfig
from byol_explore.curiosity.method import health_metrics
from byol_explore.networks.representation import Actor
from byol_explore.ops import value as value_ops
from byol_explore.ops.rewards import compute_rewards
from byol_explore.registry import METHODS
from byol_explore.types import Array, Policy, TimeStep, Trajectory

AGENT = AgentConfig(popart_step_size=0.5, popart_min_relative_std=1e-3)


def with_settings(config: Config, *, agent: AgentConfig = AGENT, **optimizer: Any) -> Config:
    return dataclasses.replace(config, agent=agent, optimizer=OptimizerConfig(**optimizer))


def setup(config: Config, action: str = "discrete", tasks: int = 1) -> tuple[Learner, LearnerState, Trajectory]:
    spec = make_spec("vector", action)
    learner = Learner(config, spec, tasks)
    state = learner.init(jax.random.key(1))
    return learner, state, make_trajectory(spec, state.target_actor)


@functools.cache
def default() -> tuple[Learner, LearnerState, Trajectory, Any]:
    learner, state, trajectory = setup(with_settings(small_config()))
    return learner, state, trajectory, update_of(learner)


@functools.cache
def update_with_stored_policy() -> Any:
    learner = default()[0]
    learner = Learner(learner.config, learner.spec, 1, synchronous=True)
    assert learner.behaviour_is_target
    return update_of(learner)


def experienced(learner: Learner, state: LearnerState, trajectory: Trajectory) -> LearnerState:
    """Return a state whose value head is not zero any more, under statistics of one batch."""
    state, _ = update_of(learner)(state, trajectory)
    return eqx.tree_at(lambda s: s.online.value_head, state, replace_fn=shaken)


def values(learner: Learner, state: LearnerState, belief: Array) -> np.ndarray:
    """Unnormalised values of the online network."""
    stats = state.statistics.popart
    scale = value_ops.popart_std(stats, learner.config.agent.popart_min_relative_std)
    return np.asarray(scale * state.online.value_head(belief) + stats.mean)


def test_values_start_at_zero() -> None:
    learner, state, _, _ = default()
    belief = jax.random.normal(jax.random.key(2), (5, learner.config.network.belief_size))
    np.testing.assert_array_equal(values(learner, state, belief), np.zeros((5, 1)))


def test_popart_preserves_values_while_its_statistics_move() -> None:
    learner, state, trajectory = setup(with_settings(small_config(), learning_rate=1e-12))
    state = experienced(learner, state, trajectory)
    after, _ = update_of(learner)(state, trajectory)
    belief = jax.random.normal(jax.random.key(2), (5, learner.config.network.belief_size))
    assert abs(float(after.statistics.popart.mean[0] - state.statistics.popart.mean[0])) > 1e-3
    np.testing.assert_allclose(values(learner, after, belief), values(learner, state, belief), rtol=1e-4, atol=1e-5)


def test_value_gradient_is_that_of_the_rescaled_head() -> None:
    """Compare with two passes: first the statistics, then the loss of the head that is rescaled to them."""
    learner, state, trajectory, _ = default()
    state, agent = experienced(learner, state, trajectory), learner.config.agent

    view = unroll(state.online.actor, trajectory)
    valid, task, old = trajectory.valid, trajectory.task_id, state.statistics.popart
    uncertainty = jnp.abs(trajectory.reward)

    def compute_targets(head: Any, belief: Array) -> TargetOutput:
        return learner.target_computer(
            state.statistics,
            head.layers[-1],
            head.hidden(belief),
            uncertainty,
            trajectory,
            mixing=state.hyperparams.mixing,
        )

    output = compute_targets(state.online.value_head, view.belief)
    new, targets = output.statistics.popart, output.targets.value_target

    def fast(head: Any, belief: Array) -> Array:
        hidden = head.hidden(belief)[:-1]
        return learner.critic.loss(head.layers[-1], old, new, hidden, task[:-1], targets, valid)

    gradient, belief_gradient = jax.grad(fast, (0, 1))(state.online.value_head, view.belief)
    value = value_ops.popart_std(old, agent.popart_min_relative_std) * state.online.value_head(view.belief) + old.mean
    advantage = value_ops.popart_std(new, agent.popart_min_relative_std) * output.targets.advantage
    np.testing.assert_allclose(value[:-1, :, 0] + advantage, targets, rtol=1e-5, atol=1e-6)
    layer = learner.critic.rescale_head(state.online.value_head.layers[-1], old, new)
    head = eqx.tree_at(lambda h: h.layers[-1], state.online.value_head, layer)

    def slow(head: Any, belief: Array) -> Array:
        scale = value_ops.popart_std(new, agent.popart_min_relative_std)
        error = head(belief)[:-1, :, 0] - (targets - new.mean) / scale
        return jnp.sum(jnp.where(trajectory.valid, error**2, 0.0)) / jnp.sum(trajectory.valid)

    expected, expected_belief = jax.grad(slow, (0, 1))(head, view.belief)
    assert_trees_close(gradient, expected, rtol=1e-4)
    np.testing.assert_allclose(belief_gradient, expected_belief, rtol=1e-4, atol=1e-6)


def test_dummy_transitions_leave_no_trace_in_the_update() -> None:
    """Change rewards, discounts, actions and policies from last to first observations: state and metrics stay equal."""
    _, state, trajectory, _ = default()
    update = update_with_stored_policy()
    dummy = ~np.asarray(trajectory.valid)
    assert dummy.any()

    def change(x: Array) -> Array:
        mask = dummy.reshape(*dummy.shape, *[1] * (x.ndim - 2))
        other = 1 - x if x.dtype == jnp.int32 else x + 3.0
        return jnp.where(mask, jnp.abs(other), x)

    changed = trajectory._replace(
        reward=change(trajectory.reward),
        discount=change(trajectory.discount),
        action=jax.tree.map(change, trajectory.action),
        behaviour_policy=jax.tree.map(change, trajectory.behaviour_policy),
    )
    # An ignored action is also the previous action of a first observation, which reads "no action" instead.
    assert_trees_close(update(state, changed), update(state, trajectory), rtol=1e-6, atol=1e-7)


def slow_target_policies(actor: Actor, trajectory: Trajectory) -> list[Policy]:
    """Run the policy step by step from the stored recurrent state, as an actor does."""
    memory, policies = trajectory.initial_state, []
    forward = jit(policy_forward)
    rewards = jnp.concatenate([memory.prev_reward[None], trajectory.reward])
    for t in range(trajectory.reward.shape[0]):
        observation = jax.tree.map(lambda x, t=t: x[t], trajectory.observation)
        timestep = TimeStep(observation, rewards[t], rewards[t], trajectory.is_first[t], *2 * [trajectory.is_first[t]])
        memory, policy = forward(actor, memory, timestep)
        memory = memory._replace(prev_action=jax.tree.map(lambda x, t=t: x[t], trajectory.action))
        policies.append(policy)
    return policies


def slow_kls(target: Policy, online: Policy, env: int) -> list[float]:
    """Return the KLs of one environment by action component: categoricals, then means, then variances."""
    kls = [
        references.categorical_kl(np.asarray(p[env], np.float64), np.asarray(q[env], np.float64))
        for p, q in zip(target.logits, online.logits, strict=True)
    ]
    gaussians = [np.asarray(x, np.float64)[env] for x in (target.mean, target.stddev, online.mean, online.stddev)]
    for mean, stddev, _, other in (each := list(zip(*gaussians, strict=True))):
        kls.append(references.gaussian_kl(mean, stddev, mean, other))
    return [*kls, *(references.gaussian_kl(mean, stddev, other, stddev) for mean, stddev, other, _ in each)]


@pytest.mark.parametrize("apart", [False, True])
def test_kl_is_to_the_target_policy_and_not_to_the_policy_that_acted(apart: bool) -> None:
    """Constraints and metric ignore the behaviour policy of the batch.

    Adam's first moment of a multiplier is a tenth of its gradient, eps - KL.
    """
    learner, state, trajectory = setup(with_settings(small_config(share_representation=not apart)), "hybrid")
    state = state._replace(target_actor=shaken(state.target_actor, seed=5))
    after, (metrics, *_) = update_of(learner)(state, trajectory)
    pairs = [slow_target_policies(actor, trajectory) for actor in (state.target_actor, state.online.actor)]
    valid = np.argwhere(np.asarray(trajectory.valid))
    expected = np.mean([slow_kls(pairs[0][t], pairs[1][t], env) for t, env in valid], axis=0)
    assert expected.min() > 1e-3
    np.testing.assert_allclose(metrics["kl"], expected.sum(), rtol=1e-4)
    agent, moment = learner.config.vmpo, after.dual_opt_state[0].mu
    epsilons = [agent.epsilon_categorical] * 2 + [agent.epsilon_covariance] * 2 + [agent.epsilon_mean] * 2
    actual = np.concatenate([moment.categorical, moment.covariance, moment.mean])
    np.testing.assert_allclose(actual, 0.1 * (np.asarray(epsilons) - expected), rtol=1e-3, atol=1e-6)


def test_stored_policy_replaces_the_target_policy_if_that_acted() -> None:
    _, state, trajectory, update = default()
    update_by_stored = update_with_stored_policy()
    view = unroll(state.target_actor, trajectory)
    stored = trajectory._replace(behaviour_policy=state.target_actor.policy_head(view.belief[:-1]))
    assert_trees_close(update_by_stored(state, stored), update(state, trajectory), rtol=1e-4)
    assert update_by_stored(state, trajectory)[1].metrics["kl"] > 0.1  # to the random policy of the batch


def test_target_policy_is_refreshed_every_period_and_not_between() -> None:
    _, state, trajectory, update = default()
    first = state.target_actor
    for step in range(1, 11):
        state, _ = update(state, trajectory)
        if step < 10:
            assert_trees_close(state.target_actor, first, rtol=0, atol=0)
    assert_trees_close(state.target_actor, state.online.actor, rtol=0, atol=0)
    assert largest(jax.tree.map(jnp.subtract, state.target_actor, first)) > 0


def test_ema_target_moves_towards_the_online_encoder_after_the_step() -> None:
    learner, state, trajectory, update = default()
    after, _ = update(state, trajectory)
    decay = learner.config.curiosity.target_decay
    expected = jax.tree.map(
        lambda old, new: decay * old + (1 - decay) * new, state.method_state, after.online.actor.curiosity_encoder
    )
    assert_trees_close(after.method_state, expected, atol=1e-6)
    assert largest(jax.tree.map(jnp.subtract, after.method_state, state.method_state)) > 0


def test_gradients_are_clipped_by_their_global_norm() -> None:
    """Adam's first moment is (1 - b1) times the clipped gradient: one factor for all parameters."""
    learner, state, trajectory = setup(with_settings(small_config(), max_grad_norm=0.01))
    after, (metrics, *_) = update_of(learner)(state, trajectory)
    gradient, _ = jit(lambda s, t: jax.grad(learner.loss_function.loss, has_aux=True)(s.online, s.duals, s, Batch(t)))(
        state, trajectory
    )
    norm = float(optax.tree.norm(gradient))
    assert norm > 0.01
    moment = after.opt_state[1].mu
    expected = 0.1 * ravel_pytree(gradient)[0] * 0.01 / norm
    assert_trees_close(moment, expected, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-4)


@pytest.mark.parametrize(("regime", "extrinsic", "intrinsic"), [
    ("mixed", 1.0, 0.25), ("intrinsic", 0.0, 1.0), ("extrinsic", 1.0, 0.0),
])  # fmt: skip
def test_regimes(regime: str, extrinsic: float, intrinsic: float) -> None:
    config = dataclasses.replace(small_config(mixing=0.25), regime=regime)
    learner, state, trajectory = setup(config)
    uncertainty = jnp.abs(jax.random.normal(jax.random.key(0), trajectory.reward.shape)) + 1.0
    statistics, settings = state.statistics.reward, learner.target_computer.settings
    task = trajectory.task_id[:-1]
    _, rewards = compute_rewards(statistics, uncertainty, trajectory.reward, task, trajectory.valid, settings)
    valid = np.asarray(trajectory.valid)
    r_e = np.asarray(trajectory.reward) / np.sqrt(np.mean(np.asarray(trajectory.reward)[valid] ** 2))
    scaled = np.asarray(uncertainty) / np.sqrt(np.var(np.asarray(uncertainty)[valid]) + 1e-8)
    r_i = np.maximum(scaled - scaled[valid].mean(), 0.0)
    expected = extrinsic * r_e + intrinsic * r_i
    np.testing.assert_allclose(np.asarray(rewards.total)[valid], expected[valid], rtol=1e-4, atol=1e-6)


def test_no_curiosity_is_pure_reinforcement_learning() -> None:
    learner, state, trajectory = setup(small_config("none"))
    _, (metrics, finite, _) = update_of(learner)(state, trajectory)
    assert metrics["intrinsic_reward"] == 0.0
    assert metrics["loss_curiosity"] == 0.0
    assert bool(jnp.all(finite.flags))


@pytest.mark.parametrize("action", ["continuous", "hybrid"])
def test_every_dual_of_every_action_part_is_trained(action: str) -> None:
    learner, state, trajectory = setup(with_settings(small_config()), action)
    after, (_, finite, _) = update_of(learner)(state, trajectory)
    assert bool(jnp.all(finite.flags))
    for name, before in state.duals._asdict().items():
        assert np.all(np.asarray(getattr(after.duals, name)) != np.asarray(before)), name


def test_statistics_are_kept_per_task() -> None:
    learner, state, trajectory = setup(with_settings(small_config()), tasks=2)
    trajectory = trajectory._replace(
        task_id=jnp.tile(jnp.asarray([0, 1, 0], jnp.int32), (TIME, 1)),
        reward=trajectory.reward * jnp.asarray([1.0, 50.0, 1.0]),
    )
    after, _ = update_of(learner)(state, trajectory)
    scale = np.asarray(after.statistics.reward.extrinsic.mean_square)
    assert scale[1] > 100 * scale[0]
    only_first = trajectory._replace(task_id=jnp.zeros((TIME, BATCH), jnp.int32))
    again, _ = update_of(learner)(after, only_first)
    assert again.statistics.popart.mean[1] == after.statistics.popart.mean[1]
    assert again.statistics.popart.mean[0] != after.statistics.popart.mean[0]


def loop_bodies(program: str) -> list[str]:
    """Return the texts of the loop bodies of a compiled program."""
    names = set(re.findall(r"body=(%[\w.-]+)", program))
    bodies = [text for text in program.split("\n\n") if text.strip().split(" ")[0] in names]
    assert bodies
    return bodies


QUICK = ("byol-explore", "rnd", "icm")  # the others are tested by `make test-slow`
CURIOUS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in METHODS.names()
    if METHODS.get(name).has_reward
]


@pytest.mark.parametrize("method", CURIOUS)
def test_batch_on_two_devices_gives_the_update_of_one(method: str) -> None:
    """Loss, statistics, top half and gradients are over the whole batch, not over each device's part."""
    config = with_settings(small_config(method))
    spec = make_spec("vector", "hybrid")
    learner = Learner(config, spec, 1)
    state = learner.init(jax.random.key(1))
    state = state._replace(
        target_actor=shaken(state.target_actor, seed=5)
    )  # away from the online policy: a KL to average
    halves = [make_trajectory(spec, state.target_actor, seed) for seed in (3, 4)]
    # All of the best advantages lie in the first half: a top half per device would pick others.
    halves[0] = halves[0]._replace(reward=halves[0].reward + 10.0)
    timed = [half._replace(initial_state=None) for half in halves]
    batch = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *timed)._replace(
        initial_state=jax.tree.map(lambda *x: jnp.concatenate(x), *[half.initial_state for half in halves])
    )
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("devices",))
    shares = [NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "devices"), ("devices",), ())]
    spread = jax.device_put(batch, Trajectory(*shares[:1] * 7, initial_state=shares[1]))  # pyright: ignore[reportArgumentType]
    state, _ = update_of(learner)(state, batch)  # some methods have no uncertainty before the first batch
    expected, expected_output = update_of(learner)(state, batch)
    assert abs(expected_output.metrics["uncertainty"]) > 1e-3
    program = update_of(learner).lower(jax.device_put(state, shares[2]), spread).compile()
    gathered = re.findall(r"= \w+\[([\d,]*)\]\S* all-gather", program.as_text())
    # re3 stores embeddings of all devices; ngu finds neighbours by top_k, which XLA does not partition (sorting instead
    # takes 17 times as long).
    if method not in ("re3", "ngu") and not METHODS.get(method).uses_batch_negatives:
        assert gathered == [str(batch.reward.size)]  # advantages alone, for the top half
    assert not [body for body in loop_bodies(program.as_text()) if " all-reduce(" in body]
    actual, output = program(jax.device_put(state, shares[2]), spread)
    assert_trees_close(output.metrics, expected_output.metrics, rtol=1e-4, atol=1e-5)
    assert expected_output.metrics["kl"] > 0.01
    assert_trees_close(actual.dual_opt_state, expected.dual_opt_state, rtol=1e-4, atol=1e-6)
    assert_trees_close(output.intrinsic_reward, expected_output.intrinsic_reward, rtol=1e-3, atol=1e-4)
    assert_trees_close(actual.statistics, expected.statistics, rtol=1e-4)
    assert_trees_close(actual.method_state, expected.method_state, rtol=1e-4, atol=1e-6)
    assert_trees_close(actual.opt_state[1].mu, expected.opt_state[1].mu, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("where", "name"), [
    (lambda s: s.online.actor.representation.encoder.mlp.layers[0].weight, "observation embedding"),
    (lambda s: s.online.curiosity.predictor.layers[0].weight, "curiosity loss"),
    (lambda s: s.online.value_head.layers[0].weight, "value"),
    (lambda s: s.online.actor.policy_head.mlp.layers[0].weight, "policy logits"),
    (lambda s: s.duals.log_temperature, "policy loss"),
])  # fmt: skip
def test_first_quantity_that_is_not_finite_is_named(where: Any, name: str) -> None:
    _, state, trajectory, update = default()
    state = eqx.tree_at(where, state, replace_fn=lambda x: jnp.full_like(x, jnp.nan))
    _, (_, finite, _) = update(state, trajectory)
    assert FiniteChecks(finite.names, finite.flags[None]).first_failure() == (0, name)


@pytest.mark.parametrize("method", ["byol-explore", "none"])
def test_intrinsic_reward_of_a_batch_equals_that_of_an_update(method: str) -> None:
    learner, state, trajectory = setup(small_config(method, prioritize=False))
    _, output = update_of(learner)(state, trajectory)
    reward = np.asarray(jit(learner.intrinsic_reward)(state, trajectory))
    np.testing.assert_allclose(reward, output.intrinsic_reward, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(reward > 0, np.asarray(trajectory.valid) & (method != "none"))


def test_health_metrics_are_those_of_the_networks() -> None:
    _, state, trajectory, update = default()
    state = state._replace(
        method_state=jax.tree.map(lambda x: 1.5 * x, state.method_state)
    )  # distance of half its norm
    metrics = update(state, trajectory)[1].metrics
    np.testing.assert_allclose(metrics["target_relative_distance"], 0.5, rtol=1e-5)
    embedding = np.asarray(unroll(state.online.actor, trajectory).embedding, np.float64)
    unit = embedding / np.linalg.norm(embedding, axis=-1, keepdims=True)
    np.testing.assert_allclose(
        metrics["embedding_spread"], unit.reshape(-1, unit.shape[-1]).var(axis=0).sum(), rtol=1e-3
    )


def test_target_distance_ignores_the_untrained_mean_image() -> None:
    learner = Learner(small_config(), make_spec("image"), 1)
    state = make(learner.init)
    away = jax.tree.map(lambda x: 1.5 * x, state.online.actor.curiosity_encoder)
    bright = jnp.full_like(away.center.mean, 100.0)
    state = eqx.tree_at(lambda s: s.online.actor.representation.encoder.center.mean, state, bright)
    state = state._replace(method_state=eqx.tree_at(lambda encoder: encoder.center.mean, away, bright))
    encoder = state.online.actor.representation.encoder
    distance = health_metrics(state.online.curiosity, state.method_state, encoder, jnp.ones((2, 1, 8)))[
        "target_relative_distance"
    ]
    np.testing.assert_allclose(distance, 0.5, rtol=1e-5)


def test_intrinsic_reward_metrics_are_per_task_and_on_the_reward_scale() -> None:
    config = with_settings(small_config(), agent=dataclasses.replace(AGENT, intrinsic_rms_step_size=0.01))
    learner, state, trajectory = setup(config, tasks=2)
    trajectory = trajectory._replace(task_id=jnp.tile(jnp.asarray([0, 1, 1], jnp.int32), (TIME, 1)))
    state, output = update_of(learner)(state, trajectory)
    valid, reward, task = (
        np.asarray(trajectory.valid),
        np.asarray(output.intrinsic_reward),
        np.asarray(trajectory.task_id)[0],
    )
    np.testing.assert_allclose(output.metrics["intrinsic_nonzero_fraction"], np.mean(reward[valid] > 0), rtol=1e-6)
    for index in range(2):
        paid = reward[:, task == index][valid[:, task == index]]
        scale = np.sqrt(np.mean(np.square(paid)))  # after the first batch: its own RMS
        np.testing.assert_allclose(output.metrics["intrinsic_reward_per_task"][index], np.mean(paid) / scale, rtol=1e-4)
