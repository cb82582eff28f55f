"""The jit runtime: one program, one truth for actor and learner, repeatable."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import assert_trees_close, jit, small_config, unroll
from byol_explore.envs.registry import make_envs
from byol_explore.learner import keeps_target
from byol_explore.learner_state import Batch
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.runtime.learning import cut
from byol_explore.settings.config import Config
from byol_explore.settings.parts import RuntimeConfig, VMPOConfig


def config_for(env: str = "probe:memory", **changes: Any) -> Config:
    runtime = RuntimeConfig(num_envs=8, batch_size=4, sequence_length=7, rollouts_per_dispatch=2)
    return dataclasses.replace(small_config(**changes), env=env, runtime=runtime)


@functools.cache
def runtime(devices: int) -> Anakin:
    config = config_for()
    return Anakin(config, make_envs(config.env_ids), jax.devices()[:devices])


def host_copy(tree: Any) -> Any:
    """Survives the donation of the original."""
    return jax.tree.map(
        lambda x: np.array(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x), tree
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_one_compilation_serves_all_dispatches(devices: int, caplog: pytest.LogCaptureFixture) -> None:
    anakin = runtime(devices)
    state = anakin.init(0)
    with jax.log_compiles():
        for _ in range(3):
            state, _ = anakin.dispatch(state)
    compiled = [record.getMessage() for record in caplog.records if "XLA compilation" in record.getMessage()]
    assert sum("act_and_learn" in message for message in compiled) == 1, compiled


@pytest.mark.parametrize("devices", [1, 2])
def test_a_seed_makes_a_run_and_another_makes_another(devices: int) -> None:
    anakin = runtime(devices)

    def after_two(seed: int) -> AnakinState:
        state = anakin.init(seed)
        for _ in range(2):
            state, _ = anakin.dispatch(state)
        return host_copy(state)

    first, again, other = after_two(3), after_two(3), after_two(4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first.learner.online.value.layers[0].weight, other.learner.online.value.layers[0].weight)


def test_devices_play_different_episodes_and_learn_the_same() -> None:
    anakin = runtime(2)
    state, output = anakin.dispatch(anakin.init(0))
    returns = np.stack([steps.episodes.episode_return for steps in output.steps])
    assert not np.array_equal(returns[..., :4], returns[..., 4:])
    weight = state.learner.online.value.layers[0].weight
    copies = [np.asarray(shard.data) for shard in weight.addressable_shards]
    np.testing.assert_array_equal(copies[0], copies[1])
    assert returns.shape == (2, 6, 8)


def test_stored_policies_are_what_the_target_network_says_of_the_trajectory() -> None:
    """Actor and learner agree on beliefs, resets and previous actions, across rollouts and episode boundaries."""
    anakin = runtime(1)
    state = anakin.init(0)
    roll = jit(anakin.rollout)
    actor_state, first, _ = roll(state.learner.acting, state.actor)
    actor_state, second, _ = roll(state.learner.acting, actor_state)
    assert bool(jnp.any(second.is_first[1:])), "no boundary inside"
    for trajectory in (first, second):
        view = unroll(state.learner.acting, trajectory)
        policy = state.learner.acting.policy(view.belief[:-1])
        assert_trees_close(policy, trajectory.policy, rtol=1e-4)
    np.testing.assert_array_equal(first.observation[-1], second.observation[0])
    np.testing.assert_array_equal(first.is_first[-1], second.is_first[0])
    np.testing.assert_array_equal(first.reward[-1], second.memory.reward)
    np.testing.assert_array_equal(first.action.discrete[-1], second.memory.action.discrete)


@pytest.mark.parametrize("period", range(1, 13))
def test_a_target_policy_stays_for_a_rollout_if_it_is_refreshed_between_two(period: int) -> None:
    """Counted out: the refreshes before a rollout, which acted, and before each of the updates that learn from it."""
    for updates in range(1, 13):
        acted = [start // period for start in range(0, 12 * period * updates, updates) for _ in range(updates)]
        learned = [step // period for step in range(12 * period * updates)]
        assert keeps_target(period, updates) is (acted == learned), (period, updates)


@pytest.mark.parametrize(("period", "same"), [(1, False), (2, True), (3, False), (10, True)])
def test_a_forward_pass_is_saved_where_the_target_policy_acts_and_only_there(period: int, same: bool) -> None:
    """Two updates per rollout: with an odd period the second learns with another target policy than acted."""
    config = dataclasses.replace(config_for(), vmpo=VMPOConfig(target_period=period))
    assert Anakin(config, make_envs(config.env_ids), jax.devices()[:1]).learner.stored_is_target is same


def test_batches_are_slices_of_environments_with_their_time_in_order() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    _, trajectory, _ = jit(anakin.rollout)(state.learner.acting, state.actor)
    batches = cut(anakin.learner, state.learner, Batch(trajectory)).trajectory
    for index in range(2):
        part = slice(4 * index, 4 * index + 4)
        np.testing.assert_array_equal(batches.observation[index], trajectory.observation[:, part])
        np.testing.assert_array_equal(batches.reward[index], trajectory.reward[:, part])
        np.testing.assert_array_equal(batches.memory.core[index], trajectory.memory.core[part])


def test_episode_returns_are_the_sums_of_their_rewards() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    _, trajectory, (episodes, *_) = jit(anakin.rollout)(state.learner.acting, state.actor)
    reward, ended = np.asarray(trajectory.reward), np.asarray(episodes.ended)
    first = np.asarray(trajectory.is_first)
    assert ended.any()
    for step, env in np.argwhere(ended):
        begin = max(t for t in range(step + 1) if first[t, env])
        np.testing.assert_allclose(episodes.episode_return[step, env], reward[begin : step + 1, env].sum(), rtol=1e-6)
        assert episodes.length[step, env] == step + 1 - begin


@pytest.mark.parametrize("devices", [1, 2])
def test_intrinsic_rewards_are_in_the_order_of_the_environments(devices: int) -> None:
    """Without clipping every step pays, but for the one behind an episode's end."""
    config = config_for(prioritize=False)
    anakin = Anakin(config, make_envs(config.env_ids), jax.devices()[:devices])
    state, _ = anakin.dispatch(anakin.init(0))
    _, output = anakin.dispatch(state)
    ended = np.stack([steps.episodes.ended for steps in output.steps])  # [rollouts, T-1, E]
    pays = np.stack([steps.intrinsic_reward for steps in output.steps]) > 0
    assert ended[:, :-1].any()
    np.testing.assert_array_equal(pays[:, 1:], ~ended[:, :-1])


@pytest.mark.parametrize(
    ("env", "tasks"),
    [
        ("probe:memory", "fixed"),
        pytest.param("rooms-3,rooms-4", "fixed", marks=pytest.mark.slow),
        pytest.param("rooms-3,rooms-4", "drawn", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("shares", [1, 2])
def test_another_number_of_devices_goes_on_with_the_shares_that_there_are(shares: int, env: str, tasks: str) -> None:
    """Environments, batches and what is told of them stay what they are, to rounding."""
    config = dataclasses.replace(config_for(), env=env, tasks=tasks).validate()

    def two_dispatches(devices: int) -> Any:
        anakin = Anakin(config, make_envs(config.env_ids), jax.devices()[:devices], shares=shares)
        state, first = anakin.dispatch(anakin.init(0))
        state, second = anakin.dispatch(state)
        assert [len(x.sharding.device_set) for x in jax.tree.leaves(state)] == [devices] * len(jax.tree.leaves(state))
        return host_copy(state), [(each.metrics, each.finite, each.steps) for each in (first, second)]

    assert_trees_close(two_dispatches(3 - shares), two_dispatches(shares))
