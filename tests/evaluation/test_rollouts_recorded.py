"""Recorded rollouts of an environment whose steps are known by hand."""

from unittest import mock

import jax
import numpy as np

from builders import small_actor
from byol_explore.agent.acting import HostAgentLoop
from byol_explore.evaluation import rollouts
from byol_explore.evaluation.rollouts import record_rollout, run_episodes
from host_worlds import Scripted, payment, seen, timeline

STEPS = 12


def test_recording_is_the_played_trajectory() -> None:
    world = Scripted()
    frames, trajectory = record_rollout(small_actor(world.spec), world, jax.random.key(0), STEPS, task=3)
    moments = timeline(0, STEPS)
    assert len(frames) == STEPS + 1
    np.testing.assert_array_equal(seen(trajectory.observation)[:, 0], moments)
    np.testing.assert_array_equal(trajectory.is_first[:, 0], [moment.time == 0 for moment in moments])
    actions = trajectory.action.discrete[:, 0, 0]
    expected = [payment(a, m.time) if m.time else 0.0 for a, m in zip(actions, moments[1:], strict=True)]
    np.testing.assert_allclose(trajectory.reward[:, 0], expected)
    assert trajectory.behaviour_policy.logits[0].shape == (STEPS, 1, 3)
    assert trajectory.task_id.tolist() == [[3]] * (STEPS + 1)
    assert world.still_open == 0
    assert world.batches[0].count == STEPS + 1, "one step per chosen action"


def test_recordings_are_equal_exactly_for_equal_keys() -> None:
    actor = small_actor(Scripted().spec)
    actions = [record_rollout(actor, Scripted(), jax.random.key(seed), STEPS)[1].action.discrete for seed in (0, 0, 1)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])


def test_environment_seed_and_actions_have_separate_keys() -> None:
    world, actor = Scripted(), small_actor(Scripted().spec)
    with mock.patch.object(rollouts, "HostAgentLoop", wraps=HostAgentLoop) as loop:
        run_episodes(actor, world, 2, jax.random.key(0))
        record_rollout(actor, world, jax.random.key(0), STEPS)
    keys = [call.args[2] for call in loop.call_args_list]
    assert len(keys) == 2
    for batch, key in zip(world.batches, keys, strict=True):
        assert batch.seed != int(jax.random.bits(key) >> 2)
