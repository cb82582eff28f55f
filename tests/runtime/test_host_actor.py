"""The acting side outside jit: every number of a trajectory, against worlds whose every step is known."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from builders import assert_trees_close, call, jit, small_actor, small_config, unroll
from byol_explore.envs.worlds.probes import PROBES
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.types import Trajectory
from host_worlds import EPISODES, Moment, Outside, Scripted, payment, seen, timeline

ENVS, LENGTH, ROLLOUTS = len(EPISODES), 7, 4
STEPS = LENGTH - 1


class Played(NamedTuple):
    rollouts: list[Rollout]
    lives: list[list[Moment]]  # of each environment, from the first observation on

    def at(self, rollout: int, t: int, env: int) -> Moment:
        """What observation t of a rollout must show."""
        return self.lives[env][rollout * STEPS + t]


@functools.cache
def actor(core: str = "gru", seed: int = 0, *, apart: bool = False) -> Actor:
    return small_actor(Scripted().spec, core, apart=apart, seed=seed)


def new_host_actor(seed: int = 0) -> HostActor:
    return HostActor([Scripted()], ENVS, LENGTH, jax.random.key(seed), seed=0)


@pytest.fixture(scope="module")
def played() -> Played:
    """Looked at only after the last step: what a world overwrites must have been copied."""
    host_actor = new_host_actor()
    rollouts = [host_actor.rollout(actor(), pulled_at=n) for n in range(ROLLOUTS)]
    return Played(rollouts, [timeline(env, ROLLOUTS * STEPS) for env in range(ENVS)])


def test_observations_are_all_there_in_order(played: Played) -> None:
    """The last one of a rollout is the first of the next, and last observations of episodes are kept."""
    shown = 0
    for number, rollout in enumerate(played.rollouts):
        observation, is_first = rollout.trajectory.observation, rollout.trajectory.is_first
        assert (observation.shape, observation.dtype) == ((LENGTH, ENVS, 4), np.float32)
        for t, env in np.ndindex(LENGTH, ENVS):
            now = played.at(number, t, env)
            np.testing.assert_array_equal(seen(observation[t, env]), now)
            assert is_first[t, env] == (now.time == 0)
            shown += now.is_last
    assert shown > 20
    for one, two in zip(played.rollouts, played.rollouts[1:], strict=False):
        np.testing.assert_array_equal(one.trajectory.observation[-1], two.trajectory.observation[0])
        np.testing.assert_array_equal(one.trajectory.is_first[-1], two.trajectory.is_first[0])


def test_rewards_and_discounts_belong_to_the_step_from_their_observation(played: Played) -> None:
    """The reward shows which action was taken and when; only termination takes the future."""
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


def test_episodes_are_added_up_across_rollouts(played: Played) -> None:
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
    assert longest > 1, "an episode must have begun in the rollout before"


def test_places_are_those_after_the_step(played: Played) -> None:
    for number, rollout in enumerate(played.rollouts):
        for t, env in np.ndindex(STEPS, ENVS):
            after = played.at(number, t + 1, env)
            np.testing.assert_array_equal(rollout.places[t, env], [after.episode, 8 * after.time])


def test_memory_is_what_the_agent_knew_before_the_first_observation(played: Played) -> None:
    first = played.rollouts[0].trajectory.memory
    assert_trees_close(first, jax.device_get(actor().initial_memory(Scripted().spec, ENVS)), atol=0)
    for one, two in zip(played.rollouts, played.rollouts[1:], strict=False):
        before, memory = one.trajectory, two.trajectory.memory
        np.testing.assert_array_equal(memory.action.discrete, before.action.discrete[-1])
        np.testing.assert_array_equal(memory.reward, before.reward[-1])
        view = unroll(actor(), before)
        assert_trees_close(memory.core, np.asarray(view.state[-2]), rtol=1e-4)


def assert_policies_are_reproduced(networks: Actor, trajectory: Trajectory) -> None:
    view = unroll(networks, trajectory)
    assert_trees_close(call(networks.policy, view.belief[:-1]), trajectory.policy, rtol=1e-4)
    if networks.curious is not None:
        assert jax.tree.leaves(trajectory.memory.curious)[0].shape[0] == ENVS


def test_the_learner_reads_the_same_policies_from_the_trajectory(played: Played) -> None:
    """Beliefs, resets and previous actions agree across rollouts and boundaries."""
    assert any(rollout.trajectory.is_first[1:-1].any() for rollout in played.rollouts)
    for rollout in played.rollouts:
        assert_policies_are_reproduced(actor(), rollout.trajectory)


@pytest.mark.parametrize(("core", "apart"), [("lstm", False), ("gru", True)])
def test_the_same_holds_for_other_memories(core: str, apart: bool) -> None:
    networks, host_actor = actor(core, apart=apart), new_host_actor()
    for _ in range(2):
        assert_policies_are_reproduced(networks, host_actor.rollout(networks).trajectory)


def test_the_policy_is_that_of_the_parameters_given(played: Played) -> None:
    """New parameters act from the next rollout on, with the memory that the old ones left."""
    host_actor, other = new_host_actor(), actor(seed=1)
    first, second = host_actor.rollout(actor()), host_actor.rollout(other)
    np.testing.assert_array_equal(first.trajectory.policy.logits[0], played.rollouts[0].trajectory.policy.logits[0])
    assert_policies_are_reproduced(other, second.trajectory)
    np.testing.assert_array_equal(second.trajectory.memory.core, played.rollouts[1].trajectory.memory.core)
    logits, unchanged = (r.trajectory.policy.logits[0] for r in (second, played.rollouts[1]))
    assert not np.allclose(logits, unchanged, atol=1e-3)


def test_actions_are_drawn_from_the_policy_anew_at_every_step() -> None:
    """Shares of the actions over many steps; and another key draws others."""
    drawn, share = [], []
    host_actor = new_host_actor()
    for _ in range(40):
        trajectory = host_actor.rollout(actor()).trajectory
        drawn.append(np.eye(3)[trajectory.action.discrete[..., 0]])
        share.append(jax.nn.softmax(trajectory.policy.logits[0]))
    drawn, share = np.concatenate(drawn).reshape(-1, 3), np.concatenate(share).reshape(-1, 3)
    error = np.sqrt(np.sum(share * (1 - share), axis=0))
    np.testing.assert_array_less(np.abs(np.sum(drawn - share, axis=0)), 4 * error)
    actions = [new_host_actor(seed).rollout(actor()).trajectory.action.discrete for seed in (0, 0, 1)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])


def test_tasks_are_those_of_the_environments() -> None:
    worlds = [Scripted(name=name) for name in "ab"]
    host_actor = HostActor(worlds, 6, 3, jax.random.key(0), seed=0)
    trajectory = host_actor.rollout(actor()).trajectory
    np.testing.assert_array_equal(trajectory.task, [[0, 1, 0, 1, 0, 1]] * 3)
    np.testing.assert_array_equal(seen(trajectory.observation[0])[:, 0], [0, 0, 1, 1, 2, 2])
    assert all(world.batches[0].resets == 1 for world in worlds)
    host_actor.close()
    assert [world.still_open for world in worlds] == [0, 0]


def test_a_rollout_says_when_its_parameters_were_pulled_and_what_took_time(played: Played) -> None:
    assert [rollout.pulled_at for rollout in played.rollouts] == list(range(ROLLOUTS))
    assert all(rollout.env_seconds > 0 and rollout.act_seconds > 0 for rollout in played.rollouts)


def test_the_same_world_gives_the_same_trajectory_inside_and_outside_jit() -> None:
    """Also where actions have several parts."""
    world = PROBES["hybrid"]()
    anakin, networks = Anakin(small_config(), [world], jax.devices()[:1]), small_actor(world.spec)
    env_key, actor_key = jax.random.split(jax.random.key(3))
    state = anakin._init_actor(networks, env_key, actor_key)
    config = anakin.config.runtime
    host_actor = HostActor([Outside(world, env_key)], config.num_envs, config.sequence_length, actor_key, seed=0)
    roll = jit(anakin.rollout)
    ended = 0
    for _ in range(2):
        state, expected, told = roll(networks, state)
        rollout = host_actor.rollout(networks)
        assert_trees_close(rollout.trajectory, jax.device_get(expected))
        assert_trees_close(rollout.episodes, jax.device_get(told.episodes))
        ended += np.sum(rollout.episodes.ended)
    assert ended > 0
