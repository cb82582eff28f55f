"""Tests of rollouts outside jit: every number of a trajectory, against a scripted world."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from builders import assert_trees_close, call, jit, small_actor, small_config, unroll
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.networks.representation import Actor
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.rollouts import HostActor, Rollout
from byol_explore.types import Trajectory
from host_worlds import EPISODES, Moment, Outside, Scripted, payment, seen, timeline

ENVS, LENGTH, ROLLOUTS = len(EPISODES), 7, 4
STEPS = LENGTH - 1


class Played(NamedTuple):
    rollouts: list[Rollout]
    lives: list[list[Moment]]  # of each environment, from the first observation on

    def at(self, rollout: int, t: int, env: int) -> Moment:
        """Return the moment that observation t of a rollout must show."""
        return self.lives[env][rollout * STEPS + t]


@functools.cache
def actor(core: str = "gru", seed: int = 0, *, apart: bool = False) -> Actor:
    return small_actor(Scripted().spec, core, apart=apart, seed=seed)


def new_host_actor(seed: int = 0) -> HostActor:
    return HostActor([Scripted()], ENVS, LENGTH, jax.random.key(seed), seed=0)


@pytest.fixture(scope="module")
def played() -> Played:
    """Return rollouts after the last step: arrays that the world overwrites must have been copied."""
    host_actor = new_host_actor()
    rollouts = [host_actor.rollout(actor(), params_step=n) for n in range(ROLLOUTS)]
    return Played(rollouts, [timeline(env, ROLLOUTS * STEPS) for env in range(ENVS)])


def test_observations_are_complete_and_in_order(played: Played) -> None:
    """The last observation of a rollout is the first of the next; last observations of episodes are kept."""
    shown = 0
    for number, rollout in enumerate(played.rollouts):
        observation, is_first = rollout.trajectory.observation, rollout.trajectory.is_first
        assert (observation.shape, observation.dtype) == ((LENGTH, ENVS, 4), np.float32)
        for t, env in np.ndindex(LENGTH, ENVS):
            moment = played.at(number, t, env)
            np.testing.assert_array_equal(seen(observation[t, env]), moment)
            assert is_first[t, env] == (moment.time == 0)
            shown += moment.is_last
    assert shown > 20
    for one, two in zip(played.rollouts, played.rollouts[1:], strict=False):
        np.testing.assert_array_equal(one.trajectory.observation[-1], two.trajectory.observation[0])
        np.testing.assert_array_equal(one.trajectory.is_first[-1], two.trajectory.is_first[0])


def test_rewards_and_discounts_belong_to_the_step_after_their_observation(played: Played) -> None:
    """The reward shows the action and the time; the discount is 0 at termination alone."""
    ends = set()
    for number, rollout in enumerate(played.rollouts):
        trajectory = rollout.trajectory
        for t, env in np.ndindex(STEPS, ENVS):
            after = played.at(number, t + 1, env)
            choice = int(trajectory.action.discrete[t, env, 0])
            assert trajectory.reward[t, env] == (payment(choice, after.time) if after.time else 0.0)
            assert trajectory.discount[t, env] == (0.0 if after.is_last and after.script.terminated else 1.0)
            assert trajectory.valid[t, env] == (after.time != 0)
            if after.is_last:
                ends.add((after.script.terminated, after.script.truncated))
        assert (trajectory.reward.dtype, trajectory.discount.dtype) == (np.float32, np.float32)
    assert len(ends) == 3


def test_episode_statistics_continue_across_rollouts(played: Played) -> None:
    total, length, longest = np.zeros(ENVS), np.zeros(ENVS, int), 0
    for number, rollout in enumerate(played.rollouts):
        episodes = rollout.episodes
        for t, env in np.ndindex(STEPS, ENVS):
            after = played.at(number, t + 1, env)
            total[env] = total[env] + rollout.trajectory.reward[t, env] if after.time else 0.0
            length[env] = after.time
            assert episodes.ended[t, env] == after.is_last
            if after.is_last:
                np.testing.assert_allclose(episodes.episode_return[t, env], total[env], rtol=1e-6)
                assert episodes.length[t, env] == after.script.length == length[env]
                longest = max(longest, after.time - t)
    assert longest > 1, "no episode began in an earlier rollout"


def test_positions_are_those_after_the_step(played: Played) -> None:
    for number, rollout in enumerate(played.rollouts):
        for t, env in np.ndindex(STEPS, ENVS):
            after = played.at(number, t + 1, env)
            np.testing.assert_array_equal(rollout.positions[t, env], [after.episode, 8 * after.time])


def test_initial_state_is_that_before_the_first_observation(played: Played) -> None:
    first = played.rollouts[0].trajectory.initial_state
    assert_trees_close(first, jax.device_get(actor().initial_state(Scripted().spec, ENVS)), atol=0)
    for one, two in zip(played.rollouts, played.rollouts[1:], strict=False):
        before, memory = one.trajectory, two.trajectory.initial_state
        np.testing.assert_array_equal(memory.prev_action.discrete, before.action.discrete[-1])
        np.testing.assert_array_equal(memory.prev_reward, before.reward[-1])
        view = unroll(actor(), before)
        assert_trees_close(memory.policy_core, np.asarray(view.core_state[-2]), rtol=1e-4)


def assert_policies_are_reproduced(networks: Actor, trajectory: Trajectory) -> None:
    view = unroll(networks, trajectory)
    assert_trees_close(call(networks.policy_head, view.belief[:-1]), trajectory.behaviour_policy, rtol=1e-4)
    if networks.curiosity_representation is not None:
        assert jax.tree.leaves(trajectory.initial_state.curiosity_core)[0].shape[0] == ENVS


def test_learner_computes_the_policies_of_the_trajectory(played: Played) -> None:
    """Beliefs, resets and previous actions agree across rollouts and episode boundaries."""
    assert any(rollout.trajectory.is_first[1:-1].any() for rollout in played.rollouts)
    for rollout in played.rollouts:
        assert_policies_are_reproduced(actor(), rollout.trajectory)


@pytest.mark.parametrize(("core", "apart"), [("lstm", False), ("gru", True)])
def test_policies_are_reproduced_with_other_recurrent_states(core: str, apart: bool) -> None:
    networks, host_actor = actor(core, apart=apart), new_host_actor()
    for _ in range(2):
        assert_policies_are_reproduced(networks, host_actor.rollout(networks).trajectory)


def test_new_parameters_act_from_the_next_rollout_on(played: Played) -> None:
    """They continue with the recurrent state that the old parameters left."""
    host_actor, other = new_host_actor(), actor(seed=1)
    first, second = host_actor.rollout(actor()), host_actor.rollout(other)
    np.testing.assert_array_equal(
        first.trajectory.behaviour_policy.logits[0], played.rollouts[0].trajectory.behaviour_policy.logits[0]
    )
    assert_policies_are_reproduced(other, second.trajectory)
    np.testing.assert_array_equal(
        second.trajectory.initial_state.policy_core, played.rollouts[1].trajectory.initial_state.policy_core
    )
    logits, unchanged = (r.trajectory.behaviour_policy.logits[0] for r in (second, played.rollouts[1]))
    assert not np.allclose(logits, unchanged, atol=1e-3)


def test_actions_are_sampled_from_the_policy_at_every_step() -> None:
    """Compare frequencies over many steps with probabilities; another key samples other actions."""
    sampled, probability = [], []
    host_actor = new_host_actor()
    for _ in range(40):
        trajectory = host_actor.rollout(actor()).trajectory
        sampled.append(np.eye(3)[trajectory.action.discrete[..., 0]])
        probability.append(jax.nn.softmax(trajectory.behaviour_policy.logits[0]))
    sampled, probability = np.concatenate(sampled).reshape(-1, 3), np.concatenate(probability).reshape(-1, 3)
    error = np.sqrt(np.sum(probability * (1 - probability), axis=0))
    np.testing.assert_array_less(np.abs(np.sum(sampled - probability, axis=0)), 4 * error)
    actions = [new_host_actor(seed).rollout(actor()).trajectory.action.discrete for seed in (0, 0, 1)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])


def test_task_ids_are_those_of_the_environments() -> None:
    worlds = [Scripted(name=name) for name in "ab"]
    host_actor = HostActor(worlds, 6, 3, jax.random.key(0), seed=0)
    trajectory = host_actor.rollout(actor()).trajectory
    np.testing.assert_array_equal(trajectory.task_id, [[0, 1, 0, 1, 0, 1]] * 3)
    np.testing.assert_array_equal(seen(trajectory.observation[0])[:, 0], [0, 0, 1, 1, 2, 2])
    assert all(world.batches[0].resets == 1 for world in worlds)
    host_actor.close()
    assert [world.still_open for world in worlds] == [0, 0]


def test_rollout_has_the_step_of_its_parameters_and_times(played: Played) -> None:
    assert [rollout.params_step for rollout in played.rollouts] == list(range(ROLLOUTS))
    assert all(rollout.env_seconds > 0 and rollout.act_seconds > 0 for rollout in played.rollouts)


def test_trajectories_inside_and_outside_jit_are_equal() -> None:
    """Use a world whose actions have several parts."""
    world = PROBES["hybrid"]()
    anakin, networks = Anakin(small_config(), [world], jax.devices()[:1]), small_actor(world.spec)
    env_key, actor_key = jax.random.split(jax.random.key(3))
    state = anakin.init_actor(networks, env_key, actor_key)
    config = anakin.config.runtime
    host_actor = HostActor([Outside(world, env_key)], config.num_envs, config.sequence_length, state.key, seed=0)
    roll = jit(anakin.rollout)
    ended = 0
    for _ in range(2):
        state, expected, info = roll(networks, state)
        rollout = host_actor.rollout(networks)
        assert_trees_close(rollout.trajectory, jax.device_get(expected))
        assert_trees_close(rollout.episodes, jax.device_get(info.episodes))
        ended += np.sum(rollout.episodes.ended)
    assert ended > 0
