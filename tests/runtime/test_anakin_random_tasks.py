"""Tests of runs that draw a task for each episode: both runtimes, statistics, callbacks, and resuming."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import jit, make_spec, make_trajectory, small_actor, small_config
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch
from byol_explore.config.config import Config
from byol_explore.config.presets import validate_config
from byol_explore.config.sections import CuriosityConfig, RuntimeConfig
from byol_explore.doctor.probe import probe_run
from byol_explore.envs.probes.worlds import TimedReward
from byol_explore.errors import UserError
from byol_explore.evaluation.rollouts import SuccessRule
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import RolloutStats
from byol_explore.runtime.make import choose_devices
from byol_explore.runtime.rollouts import HostActor
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.training.episode_window import EpisodeWindow
from host_worlds import ENVS, STEPS, Scripted, host_config
from runs import DISPATCH, assert_same_checkpoints, run, saved, tiny

PAIR = "probe:truncated,probe:terminated"  # equal observation and action spaces, episodes of several steps
LENGTHS = (3, 8)  # of the episodes of two worlds with equal observations and reward 1 per step


def config_for(**runtime: Any) -> Config:
    sizes = {"num_envs": 8, "batch_size": 4, "sequence_length": 7, "rounds_per_dispatch": 2, **runtime}
    return dataclasses.replace(small_config(), env=PAIR, task_sampling="random", runtime=RuntimeConfig(**sizes))


@functools.cache
def runtime(devices: int) -> Anakin:
    config = config_for()
    worlds = [TimedReward(f"of-{steps}", 8) for steps in LENGTHS]
    for world, steps in zip(worlds, LENGTHS, strict=True):
        world.spec = world.spec._replace(max_steps=steps)
    return Anakin(config, worlds, jax.devices()[:devices])  # pyright: ignore[reportArgumentType]


def assert_tasks_change_with_episodes(task: np.ndarray, is_first: np.ndarray) -> None:
    """Check [T, E]: a task changes at some first steps and at no other step."""
    changes = task[1:] != task[:-1]
    assert not np.any(changes & ~is_first[1:])
    assert np.any(changes)
    assert np.any(is_first[1:] & ~changes)


# Inside jit


def test_trajectory_has_the_task_of_every_observation() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    roll, actor, parts = jit(anakin.rollout), state.actor, []
    for _ in range(8):
        actor, trajectory, _ = roll(state.learner.target_actor, actor)
        parts.append(jax.device_get((trajectory.task_id, trajectory.is_first)))
    for (before, _), (after, _) in itertools.pairwise(parts):
        np.testing.assert_array_equal(before[-1], after[0])
    task, is_first = (np.concatenate([part[index][:-1] for part in parts]) for index in (0, 1))
    assert task.dtype == np.int32
    assert_tasks_change_with_episodes(task, is_first)


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rollout_stats_have_the_task_of_each_step(devices: int) -> None:
    """Episode lengths identify the task."""
    anakin = runtime(devices)
    state, rollouts = anakin.init(0), []
    for _ in range(4):
        state, output = anakin.dispatch(state)
        assert np.all(output.finite.flags)
        rollouts += output.rollouts
    ended, length, task = (np.concatenate(x) for x in zip(*[
        (steps.episodes.ended, steps.episodes.length, steps.task_ids) for steps in rollouts
    ], strict=True))  # fmt: skip
    np.testing.assert_array_equal(length[ended], np.asarray(LENGTHS)[task[ended]])
    assert set(task[ended].tolist()) == {0, 1}


def test_success_and_return_are_counted_per_task() -> None:
    anakin = runtime(1)
    window = EpisodeWindow(PAIR.split(","), 1000, [SuccessRule(2.5), SuccessRule(1e6)], [100, 100], 8)
    state, ended = anakin.init(0), 0
    for _ in range(6):
        state, output = anakin.dispatch(state)
        for steps in output.rollouts:
            window.on_rollout(steps, 0)
            ended += int(steps.episodes.ended.sum())
    figures = window.metrics()["tasks"]
    assert [figures[name]["episode_length"] for name in figures] == list(LENGTHS)
    assert [figures[name]["return_mean"] for name in figures] == list(LENGTHS)
    assert [figures[name]["success_rate"] for name in figures] == [1.0, 0.0]
    assert window.episodes == ended
    again = EpisodeWindow(PAIR.split(","), 1000, [SuccessRule(2.5), SuccessRule(1e6)], [100, 100], 8)
    again.load_state_dict(window.state_dict())
    assert again.metrics() == window.metrics()


def random_tasks(dispatches: int) -> Config:
    return tiny(env=PAIR, task_sampling="random", dispatches=dispatches)


def test_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    run(random_tasks(4), tmp_path / "whole")
    run(random_tasks(2), tmp_path / "halves")
    before, meta = saved(tmp_path / "halves", random_tasks(2))
    assert meta["step"] == 2 * DISPATCH
    assert np.any(before[".actor.length"] > 0), "the run must stop inside an episode"
    summary = run(random_tasks(4), tmp_path / "halves", resume=True)
    assert_same_checkpoints(tmp_path / "halves", tmp_path / "whole", random_tasks(4))
    after, _ = saved(tmp_path / "halves", random_tasks(4))
    assert not np.array_equal(before[".actor.envs.key"], after[".actor.envs.key"])
    assert set(summary["tasks"]) == set(PAIR.split(","))
    probed = probe_run(tmp_path / "halves", random_tasks(4), [])
    assert probed.probe is not None
    assert set(probed.probe.tasks) <= set(PAIR.split(","))


# Learning


def test_statistics_of_a_task_without_samples_do_not_change() -> None:
    """Normalisers, scales and PopArt stay. The task's reward is logged as NaN."""
    config = dataclasses.replace(small_config(), env=PAIR, task_sampling="random", curiosity=CuriosityConfig(horizon=3))
    spec = make_spec()
    learner = Learner(config, spec, 2)
    trajectory = make_trajectory(spec, small_actor(spec))
    state = jit(learner.init)(jax.random.key(0))
    update = jit(lambda state, trajectory: learner.update(state, Batch(trajectory)))
    first, _ = update(state, trajectory._replace(task_id=np.asarray(trajectory.task_id) + 1))
    second, output = update(first, trajectory)
    old, new = (jax.device_get(each.statistics) for each in (first, second))
    for before, after in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        assert before.shape == (2,)
        assert before[1] == after[1]
        assert np.isfinite(after).all()
    assert new.reward.normalizer.uncertainty.num_updates.tolist() == [1, 1]
    assert np.all(output.finite.flags)
    assert np.isfinite(output.metrics["intrinsic_reward_per_task"]).tolist() == [True, False]
    assert output.metrics["transitions_per_task"].tolist() == [np.sum(trajectory.valid), 0]


# Outside jit


def test_host_actor_records_the_task_of_every_observation() -> None:
    """Each world adds its number to its observations."""

    class Named(Scripted):
        def __init__(self, number: int) -> None:
            super().__init__(name=f"scripted-{number}")
            self.number = number

        def make_vector_env(self, num_envs: int, seed: int) -> Any:
            batch = super().make_vector_env(num_envs, seed)
            observe = batch._observe
            batch._observe = lambda: observe() + np.float32(self.number)  # pyright: ignore[reportAttributeAccessIssue]
            return batch

    worlds = [Named(0), Named(8)]
    actor, spec = HostActor(worlds, ENVS, 40, jax.random.key(0), 0, tasks="random"), worlds[0].spec
    rollouts = [actor.rollout(small_actor(spec)) for _ in range(2)]
    actor.close()
    assert [world.still_open for world in worlds] == [0, 0]
    for rollout in rollouts:
        trajectory = rollout.trajectory
        np.testing.assert_array_equal(trajectory.task_id, (trajectory.observation[..., 0] > 7).astype(int))
        assert_tasks_change_with_episodes(trajectory.task_id, trajectory.is_first)
    np.testing.assert_array_equal(rollouts[0].trajectory.task_id[-1], rollouts[1].trajectory.task_id[0])


def test_sebulba_draws_a_task_per_episode() -> None:
    config = dataclasses.replace(host_config(synchronous=True), env="one,two", task_sampling="random")
    sebulba = Sebulba(config, [Scripted(name="one"), Scripted(name="two")])
    state, rollouts = sebulba.init(0), []
    try:
        for _ in range(12):
            state, output = sebulba.dispatch(state)
            assert np.all(output.finite.flags)
            rollouts += output.rollouts
    finally:
        sebulba.close()
    task = np.concatenate([steps.task_ids for steps in rollouts])
    assert task.shape == (12 * STEPS, ENVS)
    ended = np.concatenate([steps.episodes.ended for steps in rollouts])
    assert np.any(task[1:] != task[:-1])
    assert not np.any((task[1:] != task[:-1]) & ~ended[:-1])
    assert all(isinstance(steps, RolloutStats) for steps in rollouts)


# Configuration


def test_random_tasks_need_not_divide_the_batch() -> None:
    three = dataclasses.replace(Config(), env="rooms-3,rooms-4,rooms-5")
    with pytest.raises(UserError, match=r"3 tasks cannot share a batch of 16 evenly: .*or task_sampling to random"):
        validate_config(three)
    validate_config(dataclasses.replace(three, task_sampling="random"))
    with pytest.raises(UserError, match="unknown task_sampling 'drawn'; choose from: fixed, random"):
        validate_config(dataclasses.replace(three, task_sampling="drawn"))


def test_devices_share_batches_of_random_tasks() -> None:
    config = dataclasses.replace(
        config_for(batch_size=2), runtime=RuntimeConfig(num_envs=2, batch_size=2, num_devices=2)
    )
    assert len(choose_devices(config)) == 2
    with pytest.raises(UserError, match="cannot share a batch of 1 sequences per task evenly"):
        choose_devices(dataclasses.replace(config, task_sampling="fixed"))
