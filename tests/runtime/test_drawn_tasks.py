"""Runs whose tasks are drawn for each episode: both runtimes, statistics, trackers, and stopping and going on."""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from builders import jit, make_spec, make_trajectory, small_actor, small_config
from byol_explore.doctor.probing import probe_run
from byol_explore.envs.worlds.probes import Wage
from byol_explore.errors import UserError
from byol_explore.evaluation.success import SuccessRule
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch
from byol_explore.run.episode_window import EpisodeWindow
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import Steps
from byol_explore.runtime.devices import choose_devices
from byol_explore.runtime.host_actor import HostActor
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.settings.config import Config
from byol_explore.settings.parts import CuriosityConfig, RuntimeConfig
from byol_explore.settings.presets import checked
from host_worlds import ENVS, STEPS, Scripted, host_config
from runs import DISPATCH, assert_same_checkpoints, run, saved, tiny

PAIR = "probe:truncated,probe:terminated"  # tasks that share observations and actions, with episodes of several steps


LENGTHS = (3, 8)  # of the episodes of two worlds that look alike and pay 1 at every step


def config_for(**runtime: Any) -> Config:
    sizes = {"num_envs": 8, "batch_size": 4, "sequence_length": 7, "rollouts_per_dispatch": 2, **runtime}
    return dataclasses.replace(small_config(), env=PAIR, tasks="drawn", runtime=RuntimeConfig(**sizes))


@functools.cache
def runtime(devices: int) -> Anakin:
    config = config_for()
    worlds = [Wage(f"of-{steps}", 8, terminates=True) for steps in LENGTHS]
    for world, steps in zip(worlds, LENGTHS, strict=True):
        world.spec = world.spec._replace(max_steps=steps)
    return Anakin(config, worlds, jax.devices()[:devices])  # pyright: ignore[reportArgumentType]


def assert_tasks_change_with_episodes(task: np.ndarray, is_first: np.ndarray) -> None:
    """[T, E]: and are not always the same, nor always another."""
    changes = task[1:] != task[:-1]
    assert not np.any(changes & ~is_first[1:])
    assert np.any(changes)
    assert np.any(is_first[1:] & ~changes)


# Inside jit


def test_a_trajectory_says_the_task_of_every_observation() -> None:
    anakin = runtime(1)
    state = anakin.init(0)
    roll, actor, parts = jit(anakin.rollout), state.actor, []
    for _ in range(8):
        actor, trajectory, _ = roll(state.learner.acting, actor)
        parts.append(jax.device_get((trajectory.task, trajectory.is_first)))
    for (before, _), (after, _) in itertools.pairwise(parts):
        np.testing.assert_array_equal(before[-1], after[0])
    task, is_first = (np.concatenate([part[index][:-1] for part in parts]) for index in (0, 1))
    assert task.dtype == np.int32
    assert_tasks_change_with_episodes(task, is_first)


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_trackers_hear_is_the_task_of_each_step(devices: int) -> None:
    """By the length of its episodes, which is the task's own."""
    anakin = runtime(devices)
    state, heard = anakin.init(0), []
    for _ in range(4):
        state, output = anakin.dispatch(state)
        assert np.all(output.finite)
        heard += output.steps
    ended, length, task = (np.concatenate(x) for x in zip(*[
        (steps.episodes.ended, steps.episodes.length, steps.task) for steps in heard
    ], strict=True))  # fmt: skip
    np.testing.assert_array_equal(length[ended], np.asarray(LENGTHS)[task[ended]])
    assert set(task[ended].tolist()) == {0, 1}


def test_success_and_return_are_counted_by_the_task_of_the_episode() -> None:
    anakin = runtime(1)
    window = EpisodeWindow(PAIR.split(","), 1000, [SuccessRule(2.5), SuccessRule(1e6)], [100, 100], 8)
    state, ended = anakin.init(0), 0
    for _ in range(6):
        state, output = anakin.dispatch(state)
        for steps in output.steps:
            window.add(steps, 0)
            ended += int(steps.episodes.ended.sum())
    figures = window.summary()["tasks"]
    assert [figures[name]["episode_length"] for name in figures] == list(LENGTHS)
    assert [figures[name]["return_mean"] for name in figures] == list(LENGTHS)
    assert [figures[name]["success_rate"] for name in figures] == [1.0, 0.0]
    assert window.episodes == ended
    again = EpisodeWindow(PAIR.split(","), 1000, [SuccessRule(2.5), SuccessRule(1e6)], [100, 100], 8)
    again.load_meta(window.to_meta())
    assert again.summary() == window.summary()


def drawn(dispatches: int) -> Config:
    return tiny(env=PAIR, tasks="drawn", dispatches=dispatches)


def test_half_and_half_is_the_whole_bit_for_bit(tmp_path: Path) -> None:
    run(drawn(4), tmp_path / "whole")
    run(drawn(2), tmp_path / "halves")
    before, meta = saved(tmp_path / "halves", drawn(2))
    assert meta["step"] == 2 * DISPATCH
    assert np.any(before[".actor.length"] > 0), "the run must stop inside episodes for this test to mean something"
    summary = run(drawn(4), tmp_path / "halves", resume=True)
    assert_same_checkpoints(tmp_path / "halves", tmp_path / "whole", drawn(4))
    after, _ = saved(tmp_path / "halves", drawn(4))
    assert not np.array_equal(before[".actor.envs.key"], after[".actor.envs.key"])
    assert set(summary["tasks"]) == set(PAIR.split(","))
    probed = probe_run(tmp_path / "halves", drawn(4))
    assert probed.probe is not None
    assert set(probed.probe.tasks) <= set(PAIR.split(","))


# Learning


def test_statistics_of_a_task_that_is_not_in_a_batch_stay_as_they_are() -> None:
    """Normalisers, scales and PopArt. What such a task is paid is not taken for nothing."""
    config = dataclasses.replace(small_config(), env=PAIR, tasks="drawn", curiosity=CuriosityConfig(horizon=3))
    spec = make_spec()
    learner = Learner(config, spec, 2)
    trajectory = make_trajectory(spec, small_actor(spec))
    state = jit(learner.init)(jax.random.key(0))
    update = jit(lambda state, trajectory: learner.update(state, Batch(trajectory)))
    first, _ = update(state, trajectory._replace(task=np.asarray(trajectory.task) + 1))
    second, output = update(first, trajectory)
    old, new = (jax.device_get(each.statistics) for each in (first, second))
    for before, after in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        assert before.shape == (2,)
        assert before[1] == after[1]
        assert np.isfinite(after).all()
    assert new.reward.normalizer.raw.batches.tolist() == [1, 1]
    assert np.all(output.finite)
    assert output.metrics["paid_reward"][0] == pytest.approx(float(output.metrics["paid_reward"][1]))


# Outside jit


def test_an_actor_outside_jit_says_the_task_of_every_observation() -> None:
    """A world's own name is in its observations: its number is added to the environment's."""

    class Named(Scripted):
        def __init__(self, number: int) -> None:
            super().__init__(name=f"scripted-{number}")
            self.number = number

        def batch(self, num_envs: int, seed: int) -> Any:
            batch = super().batch(num_envs, seed)
            observe = batch._observe
            batch._observe = lambda: observe() + np.float32(self.number)  # pyright: ignore[reportAttributeAccessIssue]
            return batch

    worlds = [Named(0), Named(8)]
    actor, spec = HostActor(worlds, ENVS, 40, jax.random.key(0), 0, tasks="drawn"), worlds[0].spec
    rollouts = [actor.rollout(small_actor(spec)) for _ in range(2)]
    actor.close()
    assert [world.still_open for world in worlds] == [0, 0]
    for rollout in rollouts:
        trajectory = rollout.trajectory
        np.testing.assert_array_equal(trajectory.task, (trajectory.observation[..., 0] > 7).astype(int))
        assert_tasks_change_with_episodes(trajectory.task, trajectory.is_first)
    np.testing.assert_array_equal(rollouts[0].trajectory.task[-1], rollouts[1].trajectory.task[0])


def test_the_runtime_outside_jit_draws_tasks_too() -> None:
    config = dataclasses.replace(host_config(deterministic=True), env="one,two", tasks="drawn")
    sebulba = Sebulba(config, [Scripted(name="one"), Scripted(name="two")])
    state, heard = sebulba.init(0), []
    try:
        for _ in range(12):
            state, output = sebulba.dispatch(state)
            assert np.all(output.finite)
            heard += output.steps
    finally:
        sebulba.close()
    task = np.concatenate([steps.task for steps in heard])
    assert task.shape == (12 * STEPS, ENVS)
    ended = np.concatenate([steps.episodes.ended for steps in heard])
    assert np.any(task[1:] != task[:-1])
    assert not np.any((task[1:] != task[:-1]) & ~ended[:-1])
    assert all(isinstance(steps, Steps) for steps in heard)


# Configuration


def test_tasks_need_not_share_a_batch_evenly_when_they_are_drawn() -> None:
    three = dataclasses.replace(Config(), env="rooms-3,rooms-4,rooms-5")
    with pytest.raises(UserError, match=r"3 tasks cannot share a batch of 16 evenly: .*or tasks to drawn"):
        checked(three)
    checked(dataclasses.replace(three, tasks="drawn"))
    with pytest.raises(UserError, match="unknown tasks 'random'; choose from: fixed, drawn"):
        checked(dataclasses.replace(three, tasks="random"))


def test_devices_share_batches_of_drawn_tasks() -> None:
    config = dataclasses.replace(config_for(batch_size=2), runtime=RuntimeConfig(num_envs=2, batch_size=2, devices=2))
    assert len(choose_devices(config)) == 2
    with pytest.raises(UserError, match="cannot share a batch of 1 sequences per task evenly"):
        choose_devices(dataclasses.replace(config, tasks="fixed"))
