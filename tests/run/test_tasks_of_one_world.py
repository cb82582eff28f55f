"""Runs in one world with two tasks and stages: all that is counted, judged, shown and saved by task."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from byol_explore.cli import evaluate as evaluate_command
from byol_explore.doctor.probing import probe_run
from byol_explore.envs.base import KeptTasks, VectorEnv
from byol_explore.envs.registry import make_envs
from byol_explore.envs.worlds.errands import CELLS, Errands
from byol_explore.evaluation.play import _play_inside
from byol_explore.playing import episodes, films
from byol_explore.playing.episodes import evaluate
from byol_explore.playing.films import Film, film_run
from byol_explore.report.logs import read_metrics
from byol_explore.run.checkpoint import Restored
from byol_explore.run.watching import make_window
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.settings.config import Config
from byol_explore.settings.parts import LogConfig
from byol_explore.types import Trajectory
from hosts import indifferent
from runs import DISPATCH, assert_same_checkpoints, quickly, run, saved, shared_runtime, tiny

WORLD, NAMES = "probe:near-or-far", ["probe:near", "probe:far"]
WHOLE, HALF = 8, 4  # dispatches
STAGES = list(Errands.stages)


def config_for(dispatches: int = WHOLE, devices: int = 1, **changes: Any) -> Config:
    log = {"log_every": HALF * DISPATCH, "checkpoint_every": HALF * DISPATCH}
    return tiny(env=WORLD, dispatches=dispatches, devices=devices, log=log, **changes)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("errands") / "whole"
    run(config_for(), path)
    return path


@functools.cache
def rolled(devices: int) -> tuple[Anakin, AnakinState, list[Any]]:
    runtime = shared_runtime(config_for(devices=devices))
    state, heard = runtime.init(0), []
    for _ in range(WHOLE):
        state, output = runtime.dispatch(state)
        assert np.all(output.finite)
        heard += output.steps
    return runtime, state, heard


# What happens


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_say_the_task_of_their_episode_and_the_stages_that_it_has_reached(devices: int) -> None:
    """By what an episode earned: an arrival pays 1 near and 3 far, and is the last stage."""
    _, _, heard = rolled(devices)
    task, ended, value, length, reached = (np.concatenate(parts) for parts in zip(*[
        (steps.task, steps.episodes.ended, steps.episodes.episode_return, steps.episodes.length, steps.reached)
        for steps in heard
    ], strict=True))  # fmt: skip
    assert reached.shape == (*task.shape, 3)
    arrived = ended & (value > 0)
    np.testing.assert_array_equal(value[arrived], np.asarray([1.0, 3.0])[task[arrived]])
    np.testing.assert_array_equal(reached[ended][:, 2], value[ended] > 0)
    assert set(task[arrived].tolist()) == {0, 1}
    late = ended & (value == 0)
    np.testing.assert_array_equal(length[late], np.asarray([4, 12])[task[late]])
    assert not np.any(reached[1:] < reached[:-1], where=~ended[:-1, :, None] & (length[1:] > 0)[..., None])


def test_a_trajectory_says_the_task_of_every_observation() -> None:
    runtime, state, _ = rolled(1)
    _, trajectory, _ = jax.jit(runtime.rollout)(state.learner.acting, state.actor)
    np.testing.assert_array_equal(trajectory.task, trajectory.observation[..., CELLS:].argmax(axis=-1))


def test_statistics_and_values_are_those_of_each_task() -> None:
    runtime, state, _ = rolled(1)
    statistics = state.learner.statistics
    assert statistics.popart.mean.shape == statistics.reward.intrinsic.weight.shape == (2,)
    assert runtime.learner.critic.tasks == 2
    assert state.learner.online.value.layers[-1].bias.shape == (2,)
    assert np.all(np.asarray(statistics.reward.intrinsic.weight) > 0), "several tasks have scales of their own"
    assert statistics.popart.mean[0] != statistics.popart.mean[1]


# What is logged


def test_a_log_line_counts_success_and_stages_by_task(directory: Path) -> None:
    row = read_metrics(directory / "metrics.jsonl")[-1]
    assert list(row["tasks"]) == NAMES
    for task in row["tasks"].values():
        assert list(task["stages"]) == STAGES
        set_out, half_way, arrived = task["stages"].values()
        assert 1.0 >= set_out >= half_way >= arrived == task["success_rate"]
    shares = [task["stages"]["arrived"] for task in row["tasks"].values()]
    assert row["stages"]["arrived"] == pytest.approx(np.mean(shares))
    assert len(row["paid_reward"]) == 2
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["tasks"] == row["tasks"]
    assert summary["stages"] == row["stages"]


def test_the_window_is_what_the_runtime_told_counted_by_hand() -> None:
    """All episodes that have ended, in a window with room for them all: shares over those that are counted."""
    _, _, heard = rolled(1)
    config = dataclasses.replace(config_for(), log=LogConfig(window=10_000))
    window = make_window(config, make_envs(config.env_ids))
    for steps in heard:
        window.add(steps, 0)
    meta = window.to_meta()
    for index, name in enumerate(NAMES):
        counted = meta["windows"][index]["counted"]
        assert counted
        by_hand = [np.mean([episode[-1] >> stage & 1 for episode in counted]) for stage in range(3)]
        assert list(window.summary()["tasks"][name]["stages"].values()) == pytest.approx(by_hand)
    again = make_window(config, make_envs(config.env_ids))
    again.load_meta(json.loads(json.dumps(meta)))
    assert again.summary() == window.summary()


# Stopping and going on


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_half_and_half_is_the_whole_bit_for_bit(directory: Path, tmp_path: Path, devices: int) -> None:
    whole = directory
    if devices > 1:
        whole = tmp_path / "whole"
        run(config_for(devices=devices), whole)
    run(config_for(HALF, devices), tmp_path / "halves")
    before, _ = saved(tmp_path / "halves", config_for(HALF, devices))
    assert np.any(before[".actor.length"] > 0), "the run must stop inside episodes for this test to mean something"
    run(config_for(devices=devices), tmp_path / "halves", resume=True)
    assert_same_checkpoints(tmp_path / "halves", whole, config_for(devices=devices))


# Looking at it


def test_evaluation_plays_every_task_and_tells_of_all_together(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who always goes right arrives; who always goes left stays; and half of the actions are half of each."""
    actor = indifferent(Errands(("near",)), 0.0, 0.0)
    monkeypatch.setattr(episodes, "restore_actor", lambda *_: Restored(actor, {"step": 10}, []))
    programs = _play_inside._cache_size()
    report = evaluate(directory, episodes=50)
    assert _play_inside._cache_size() == programs + 2, "one for each way of acting, and not for each task"
    assert list(report["tasks"]) == NAMES
    near, far = (report["tasks"][name] for name in NAMES)
    for result, payment in ((near, 1.0), (far, 3.0)):
        sampled = result["sampled"]
        assert sampled["return"]["mean"] == pytest.approx(payment * sampled["success_rate"]["mean"])
        assert sampled["stages"]["arrived"] == pytest.approx(sampled["success_rate"]["mean"])
        assert result["greedy"]["stages"] == dict.fromkeys(STAGES, 0.0), "the first action is left"
    assert near["sampled"]["success_rate"]["mean"] > far["sampled"]["success_rate"]["mean"] + 0.2
    together = report["over_tasks"]["sampled"]
    for path in ("success_rate", "return"):
        assert together[path]["mean"] == pytest.approx(np.mean([one["sampled"][path]["mean"] for one in (near, far)]))
    assert together["stages"]["arrived"] == pytest.approx(together["success_rate"]["mean"])
    evaluate_command._print(report)
    printed = capsys.readouterr().out
    assert "all 2 tasks" in printed
    assert "stages reached" in printed
    assert all(stage in " ".join(printed.split()) for stage in STAGES)


def test_the_doctor_looks_at_the_tasks_by_name(directory: Path) -> None:
    probed = probe_run(directory, config_for())
    assert probed.probe is not None, probed.reason
    assert set(probed.probe.tasks) <= set(NAMES)
    assert probed.probe.tasks


def test_every_task_of_a_world_is_filmed(directory: Path) -> None:
    recorded: list[Trajectory] = []

    def whole(film: Film, frames: list[np.ndarray], trajectory: Trajectory, judge: Any) -> list[np.ndarray]:
        recorded.append(trajectory)
        return frames[:3]

    with quickly(), mock.patch.multiple(films, make_runtime=shared_runtime, one_episode=whole, STEPS=20):
        paths = film_run(directory)
    names = [f"probe-{task}-{when}.gif" for task in ("near", "far") for when in ("before", "after")]
    assert [path.name for path in paths] == names
    for trajectory, task in zip(recorded, (0, 0, 1, 1), strict=True):
        assert trajectory.is_first.sum() > 1, "there is more than one episode, and all are of the task"
        np.testing.assert_array_equal(trajectory.observation[..., CELLS:].argmax(axis=-1), task)
        np.testing.assert_array_equal(trajectory.task, task)


def test_joined_names_are_the_same_world() -> None:
    config = dataclasses.replace(config_for(), env=",".join(NAMES))
    runtime = Anakin(config, make_envs(config.env_ids))  # pyright: ignore[reportArgumentType]
    assert runtime.learner.tasks == 2
    assert isinstance(runtime.envs, VectorEnv)
    [world] = runtime.envs.worlds
    assert isinstance(world, KeptTasks), "tasks are fixed: nobody draws them"
