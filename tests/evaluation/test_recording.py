"""Recordings against worlds whose every step is known."""

import jax
import numpy as np

from builders import small_actor
from byol_explore.evaluation.recording import record
from host_worlds import Scripted, payment, seen, timeline

STEPS = 12


def test_a_recording_is_the_trajectory_that_was_walked() -> None:
    world = Scripted()
    frames, trajectory = record(small_actor(world.spec), world, jax.random.key(0), STEPS, task=3)
    moments = timeline(0, STEPS)
    assert len(frames) == STEPS + 1
    np.testing.assert_array_equal(seen(trajectory.observation)[:, 0], moments)
    np.testing.assert_array_equal(trajectory.is_first[:, 0], [moment.time == 0 for moment in moments])
    actions = trajectory.action.discrete[:, 0, 0]
    expected = [payment(a, m.time) if m.time else 0.0 for a, m in zip(actions, moments[1:], strict=True)]
    np.testing.assert_allclose(trajectory.reward[:, 0], expected)
    assert trajectory.policy.logits[0].shape == (STEPS, 1, 3)
    assert trajectory.task.tolist() == [[3]] * (STEPS + 1)
    assert world.still_open == 0


def test_recordings_of_one_key_are_equal_and_of_two_are_not() -> None:
    actor = small_actor(Scripted().spec)
    actions = [record(actor, Scripted(), jax.random.key(seed), STEPS)[1].action.discrete for seed in (0, 0, 1)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])
