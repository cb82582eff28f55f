"""Stages of environments outside jit: in batches, in rollouts and in evaluations."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from builders import small_actor
from byol_explore.agent.state import FiniteChecks, UpdateOutput
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import HostVectorEnv
from byol_explore.envs.watchdog import Watchdog
from byol_explore.evaluation.rollouts import run_episodes
from byol_explore.runtime.rollouts import HostActor
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from byol_explore.types import Action
from host_worlds import ENVS, STEPS, Scripted, ScriptedBatch, host_config, seen

STAGES = ("first step", "third step")
TIMES = np.asarray([1, 3])


class Staged(Scripted):
    """Has times of an episode as stages; the next step overwrites their array."""

    stages = STAGES

    def make_vector_env(self, num_envs: int, seed: int) -> "StagedBatch":
        return StagedBatch(self, num_envs, seed)


class StagedBatch(ScriptedBatch):
    @functools.cached_property
    def _reached(self) -> np.ndarray:
        return np.zeros((self.num_envs, 2), bool)

    def stages_reached(self) -> np.ndarray:
        self._reached[:] = np.asarray([moment.time for moment in self._moments])[:, None] >= TIMES
        return self._reached


def times(observation: np.ndarray) -> np.ndarray:
    return seen(observation)[..., 2]


@pytest.mark.parametrize("tasks", ["fixed", "random"])
@pytest.mark.parametrize("watched", [False, True])
def test_stages_are_padded_over_tasks(tasks: str, watched: bool) -> None:
    """One of three tasks has stages, which the others never reach."""
    envs = [Scripted(name="one"), Staged(name="two"), Scripted(name="three")]
    batch: HostVectorEnv = make_host_vector_env(Watchdog(5.0).wrap(envs) if watched else envs, 6, 0, tasks)
    timestep, met = batch.reset(), 0
    for _ in range(12):
        reached, task = batch.stages_reached(), batch.task_ids()
        assert reached is not None
        expected = (times(timestep.observation)[:, None] >= TIMES) & (task == 1)[:, None]
        np.testing.assert_array_equal(reached, expected)
        met += int(reached.sum())
        timestep = batch.step(Action(np.zeros((6, 1), np.int32), np.zeros((6, 0), np.float32)))
    assert met
    batch.close()


@pytest.mark.parametrize("tasks", ["fixed", "random"])
def test_batches_without_stages_return_none(tasks: str) -> None:
    batch = make_host_vector_env([Scripted(name="one"), Scripted(name="two")], 4, 0, tasks)
    batch.reset()
    assert batch.stages_reached() is None
    assert Scripted().make_vector_env(2, 0).stages_reached() is None
    batch.close()


def test_rollouts_have_the_stages_of_every_step() -> None:
    env = Staged()
    actor = HostActor([env], ENVS, STEPS + 1, jax.random.key(0), 0)
    rollout = actor.rollout(small_actor(env.spec))
    actor.close()
    assert rollout.stages_reached is not None
    led_to = times(rollout.trajectory.observation)[1:]
    np.testing.assert_array_equal(rollout.stages_reached, led_to[..., None] >= TIMES)
    assert rollout.stages_reached.any(axis=(0, 1)).all()


def test_outputs_of_a_dispatch_have_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a runtime that does not learn, which would take long to compile."""
    env = Staged()
    learned = None, [UpdateOutput({}, FiniteChecks(("loss",), np.ones(1, bool)), np.zeros((STEPS, ENVS)))]  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(Sebulba, "_learn", lambda self, learner, rollout: (learner, *learned))
    sebulba = Sebulba(host_config(synchronous=True), [env])
    learner = SimpleNamespace(step=0, target_actor=small_actor(env.spec))
    try:
        _, output = sebulba.dispatch(SebulbaState(learner, np.zeros((), int)))  # pyright: ignore[reportArgumentType]
    finally:
        sebulba.close()
    for steps in output.rollouts:
        assert steps.stages_reached is not None
        assert steps.stages_reached.shape == (STEPS, ENVS, 2)
        assert steps.stages_reached[..., 0][steps.episodes.ended].all(), "no episode ends before its first step"


def test_evaluations_have_the_stages_of_the_first_episode() -> None:
    """Not those of later episodes that run until the others have ended."""
    results = run_episodes(small_actor(Staged().spec), Staged(), 6, jax.random.key(0))
    assert results.stages_reached is not None
    np.testing.assert_array_equal(results.stages_reached, results.length[:, None] >= TIMES)
    assert not results.stages_reached.all()
    assert run_episodes(small_actor(Scripted().spec), Scripted(), 2, jax.random.key(0)).stages_reached is None
