"""Tests of Anakin: one compilation, repeatable runs, actor and learner that agree, any number of devices."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import assert_trees_close, jit, small_config, unroll
from byol_explore.agent.learner import target_is_constant
from byol_explore.agent.state import Batch
from byol_explore.config.config import Config
from byol_explore.config.sections import RuntimeConfig, VMPOConfig
from byol_explore.envs.registry import make_envs
from byol_explore.runtime.anakin import Anakin, AnakinState


def config_for(env: str = "probe:memory", **changes: Any) -> Config:
    runtime = RuntimeConfig(num_envs=8, batch_size=4, sequence_length=7, rounds_per_dispatch=2)
    return dataclasses.replace(small_config(**changes), env=env, runtime=runtime)


@functools.cache
def runtime(devices: int) -> Anakin:
    config = config_for()
    return Anakin(config, make_envs(config.env_ids), jax.devices()[:devices])


def host_copy(tree: Any) -> Any:
    """Copy to the host, because the next dispatch donates the original."""
    return jax.tree.map(
        lambda x: np.array(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x), tree
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_one_compilation_serves_all_dispatches(devices: int, caplog: pytest.LogCaptureFixture) -> None:
    """It begins while the state is initialised."""
    anakin = runtime(devices)
    anakin.init(1)
    program = anakin._compiled
    assert program is not None
    state = anakin.init(0)
    with jax.log_compiles():
        for _ in range(3):
            state, _ = anakin.dispatch(state)
    compiled = [record.getMessage() for record in caplog.records if "XLA compilation" in record.getMessage()]
    assert not [message for message in compiled if "act_and_learn" in message]
    assert anakin._compiled is program


@pytest.mark.parametrize("devices", [1, 2])
def test_runs_are_equal_with_one_seed_and_differ_with_another(devices: int) -> None:
    anakin = runtime(devices)

    def after_two(seed: int) -> AnakinState:
        state = anakin.init(seed)
        for _ in range(2):
            state, _ = anakin.dispatch(state)
        return host_copy(state)

    first, again, other = after_two(3), after_two(3), after_two(4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(
        first.learner.online.value_head.layers[0].weight, other.learner.online.value_head.layers[0].weight
    )


def test_devices_act_in_different_episodes_and_hold_equal_parameters() -> None:
    anakin = runtime(2)
    state, output = anakin.dispatch(anakin.init(0))
    returns = np.stack([steps.episodes.episode_return for steps in output.rollouts])
    assert not np.array_equal(returns[..., :4], returns[..., 4:])
    weight = state.learner.online.value_head.layers[0].weight
    copies = [np.asarray(shard.data) for shard in weight.addressable_shards]
    np.testing.assert_array_equal(copies[0], copies[1])
    assert returns.shape == (2, 6, 8)


def test_behaviour_policies_equal_the_target_network_on_the_trajectory() -> None:
    """Actor and learner agree on beliefs, resets and previous actions, across rollouts and episode boundaries."""
    anakin = runtime(1)
    state = anakin.init(0)
    roll = jit(anakin.rollout)
    actor_state, first, _ = roll(state.learner.target_actor, state.actor)
    actor_state, second, _ = roll(state.learner.target_actor, actor_state)
    assert bool(jnp.any(second.is_first[1:])), "no boundary inside"
    for trajectory in (first, second):
        view = unroll(state.learner.target_actor, trajectory)
        policy = state.learner.target_actor.policy_head(view.belief[:-1])
        assert_trees_close(policy, trajectory.behaviour_policy, rtol=1e-4)
    np.testing.assert_array_equal(first.observation[-1], second.observation[0])
    np.testing.assert_array_equal(first.is_first[-1], second.is_first[0])
    np.testing.assert_array_equal(first.reward[-1], second.initial_state.prev_reward)
    np.testing.assert_array_equal(first.action.discrete[-1], second.initial_state.prev_action.discrete)


@pytest.mark.parametrize("period", range(1, 13))
def test_target_is_constant_agrees_with_counted_refreshes(period: int) -> None:
    """Compare the refreshes before a rollout, which acted, with those before each update that learns from it."""
    for updates in range(1, 13):
        acted = [start // period for start in range(0, 12 * period * updates, updates) for _ in range(updates)]
        learned = [step // period for step in range(12 * period * updates)]
        assert target_is_constant(period, updates) is (acted == learned), (period, updates)


@pytest.mark.parametrize(("period", "same"), [(1, False), (2, True), (3, False), (10, True)])
def test_stored_policy_is_the_target_only_if_the_period_divides(period: int, same: bool) -> None:
    """Two updates per rollout: with an odd period the second update has another target policy than the one that acted.

    If both are the same, the forward pass of the target policy is skipped.
    """
    config = dataclasses.replace(config_for(), vmpo=VMPOConfig(target_period=period))
    assert Anakin(config, make_envs(config.env_ids), jax.devices()[:1]).learner.behaviour_is_target is same


@pytest.mark.parametrize("tasks", [1, 2])
def test_minibatches_take_every_second_group_of_environments(tasks: int) -> None:
    """A group has one environment per task, so both minibatches have equally many of each."""
    config = config_for(",".join(("rooms-3", "rooms-4")[:tasks]))
    anakin = Anakin(config, make_envs(config.env_ids), jax.devices()[:1])
    state = anakin.init(0)
    _, trajectory, _ = jit(anakin.rollout)(state.learner.target_actor, state.actor)
    batches = anakin.learner.make_minibatches(state.learner, Batch(trajectory)).trajectory
    expected = {1: ([0, 2, 4, 6], [1, 3, 5, 7]), 2: ([0, 1, 4, 5], [2, 3, 6, 7])}[tasks]
    for index, envs in enumerate(map(np.array, expected)):
        np.testing.assert_array_equal(batches.observation[index], trajectory.observation[:, envs])
        np.testing.assert_array_equal(batches.reward[index], trajectory.reward[:, envs])
        np.testing.assert_array_equal(batches.task_id[index][0], envs % tasks)
        np.testing.assert_array_equal(
            batches.initial_state.policy_core[index], trajectory.initial_state.policy_core[envs]
        )


def test_episode_returns_are_the_sums_of_their_rewards() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    _, trajectory, (episodes, *_) = jit(anakin.rollout)(state.learner.target_actor, state.actor)
    reward, ended = np.asarray(trajectory.reward), np.asarray(episodes.ended)
    first = np.asarray(trajectory.is_first)
    assert ended.any()
    for step, env in np.argwhere(ended):
        begin = max(t for t in range(step + 1) if first[t, env])
        np.testing.assert_allclose(episodes.episode_return[step, env], reward[begin : step + 1, env].sum(), rtol=1e-6)
        assert episodes.length[step, env] == step + 1 - begin


@pytest.mark.parametrize("devices", [1, 2])
def test_intrinsic_rewards_are_in_the_order_of_the_environments(devices: int) -> None:
    """Without clipping every step has a positive reward except the one after an episode's end."""
    config = config_for(prioritize=False)
    anakin = Anakin(config, make_envs(config.env_ids), jax.devices()[:devices])
    state, _ = anakin.dispatch(anakin.init(0))
    _, output = anakin.dispatch(state)
    ended = np.stack([steps.episodes.ended for steps in output.rollouts])  # [rollouts, T-1, E]
    is_positive = np.stack([steps.intrinsic_reward for steps in output.rollouts]) > 0
    assert ended[:, :-1].any()
    np.testing.assert_array_equal(is_positive[:, 1:], ~ended[:, :-1])


@pytest.mark.parametrize(
    ("env", "tasks"),
    [
        ("probe:memory", "fixed"),
        pytest.param("rooms-3,rooms-4", "fixed", marks=pytest.mark.slow),
        pytest.param("rooms-3,rooms-4", "random", marks=pytest.mark.slow),
    ],
)
def test_one_and_two_devices_compute_the_same_to_rounding(env: str, tasks: str) -> None:
    """Compare environments, minibatches and statistics, also of runs that resume on the other number of devices."""
    config = dataclasses.replace(config_for(), env=env, task_sampling=tasks).validate()
    runtimes = [Anakin(config, make_envs(config.env_ids), jax.devices()[:count]) for count in (1, 2)]

    def two_dispatches(first: int, second: int) -> Any:
        state, outputs = runtimes[first].init(0), []
        for index in (first, second):
            anakin = runtimes[index]
            state, output = anakin.dispatch(anakin.shard(jax.device_get(state)))
            outputs.append((output.metrics, output.finite.flags, output.rollouts))
            assert {len(x.sharding.device_set) for x in jax.tree.leaves(state)} == {index + 1}
        return host_copy(state), outputs

    uninterrupted = two_dispatches(0, 0)
    for first, second in ((1, 1), (0, 1), (1, 0)):
        assert_trees_close(two_dispatches(first, second), uninterrupted)


def test_a_new_key_changes_only_its_own_environment() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    roll, keys = jit(anakin.rollout), state.actor.key
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 8
    _, expected, _ = roll(state.learner.target_actor, state.actor)
    other = state.actor._replace(key=keys.at[3].set(jax.random.key(99)))
    _, changed, _ = roll(state.learner.target_actor, other)
    same = np.all(np.asarray(changed.action.discrete == expected.action.discrete), axis=(0, 2))
    np.testing.assert_array_equal(same, np.arange(8) != 3)
