"""Stages of environments outside jit: from their batches to what trackers hear, and to evaluations."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from builders import small_actor
from byol_explore.envs.guarding import Guard
from byol_explore.envs.host import HostBatch, reached_in
from byol_explore.envs.host_tasks import make_batch
from byol_explore.evaluation.play import play
from byol_explore.runtime.host_actor import HostActor
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from byol_explore.types import Action
from host_worlds import ENVS, STEPS, Scripted, ScriptedBatch, host_config, seen

STAGES = ("first step", "third step")
TIMES = np.asarray([1, 3])


class Staged(Scripted):
    """Whose stages are moments of an episode; their array is overwritten by the next step."""

    stages = STAGES

    def batch(self, num_envs: int, seed: int) -> "StagedBatch":
        return StagedBatch(self, num_envs, seed)


class StagedBatch(ScriptedBatch):
    @functools.cached_property
    def _reached(self) -> np.ndarray:
        return np.zeros((self.num_envs, 2), bool)

    def reached(self) -> np.ndarray:
        self._reached[:] = np.asarray([moment.time for moment in self._moments])[:, None] >= TIMES
        return self._reached


def times(observation: np.ndarray) -> np.ndarray:
    return seen(observation)[..., 2]


@pytest.mark.parametrize("tasks", ["fixed", "drawn"])
@pytest.mark.parametrize("guarded", [False, True])
def test_batches_of_several_tasks_fill_up_the_stages_of_others(tasks: str, guarded: bool) -> None:
    """Of three tasks, one has stages; those of the others are never reached."""
    envs = [Scripted(name="one"), Staged(name="two"), Scripted(name="three")]
    batch: HostBatch = make_batch(Guard(5.0).protect(envs) if guarded else envs, 6, 0, tasks)
    timestep, met = batch.reset(), 0
    for _ in range(12):
        reached, task = reached_in(batch), batch.task  # pyright: ignore[reportAttributeAccessIssue]
        assert reached is not None
        expected = (times(timestep.observation)[:, None] >= TIMES) & (task == 1)[:, None]
        np.testing.assert_array_equal(reached, expected)
        met += int(reached.sum())
        timestep = batch.step(Action(np.zeros((6, 1), np.int32), np.zeros((6, 0), np.float32)))
    assert met
    batch.close()


@pytest.mark.parametrize("tasks", ["fixed", "drawn"])
def test_without_stages_there_is_nothing_to_tell(tasks: str) -> None:
    batch = make_batch([Scripted(name="one"), Scripted(name="two")], 4, 0, tasks)
    batch.reset()
    assert reached_in(batch) is None
    assert reached_in(Scripted().batch(2, 0)) is None
    batch.close()


def test_an_actor_keeps_what_was_reached_at_every_step() -> None:
    env = Staged()
    actor = HostActor([env], ENVS, STEPS + 1, jax.random.key(0), 0)
    rollout = actor.rollout(small_actor(env.spec))
    actor.close()
    assert rollout.reached is not None
    led_to = times(rollout.trajectory.observation)[1:]
    np.testing.assert_array_equal(rollout.reached, led_to[..., None] >= TIMES)
    assert rollout.reached.any(axis=(0, 1)).all()


def test_trackers_hear_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a runtime that learns nothing, which would take long to compile."""
    env = Staged()
    learned = [({}, np.ones(1, bool))], [np.zeros((STEPS, ENVS))]
    monkeypatch.setattr(Sebulba, "_learn", lambda self, learner, rollout: (learner, *learned))
    sebulba = Sebulba(host_config(deterministic=True), [env])
    learner = SimpleNamespace(step=0, acting=small_actor(env.spec))
    try:
        _, output = sebulba.dispatch(SebulbaState(learner, np.zeros((), int)))  # pyright: ignore[reportArgumentType]
    finally:
        sebulba.close()
    for steps in output.steps:
        assert steps.reached is not None
        assert steps.reached.shape == (STEPS, ENVS, 2)
        assert steps.reached[..., 0][steps.episodes.ended].all(), "no episode ends before its first step"


def test_an_evaluation_keeps_what_the_one_episode_reached() -> None:
    """Not what the next ones do in the time that others take."""
    results = play(small_actor(Staged().spec), Staged(), 6, jax.random.key(0))
    assert results.reached is not None
    np.testing.assert_array_equal(results.reached, results.length[:, None] >= TIMES)
    assert not results.reached.all()
    assert play(small_actor(Scripted().spec), Scripted(), 2, jax.random.key(0)).reached is None
