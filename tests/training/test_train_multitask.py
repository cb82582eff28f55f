"""Runs in one world with two tasks and stages: metrics, evaluation, doctor, films and checkpoints per task."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from byol_explore.cli import runs
from byol_explore.config.config import Config
from byol_explore.config.sections import LogConfig
from byol_explore.doctor.probe import probe_run
from byol_explore.envs.probes.worlds import CELLS, TwoGoals
from byol_explore.envs.registry import make_envs
from byol_explore.envs.vector import VectorEnv
from byol_explore.evaluation import films, trained_agent
from byol_explore.evaluation.films import FilmSubject, film
from byol_explore.evaluation.rollouts import _run_jit_episodes
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.storage.checkpoint import Restored
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.train import make_episode_window
from byol_explore.types import Trajectory
from hosts import indifferent
from runs import DISPATCH, assert_same_checkpoints, quickly, run, saved, shared_runtime, tiny

WORLD, NAMES = "probe:near-or-far", ["probe:near", "probe:far"]
WHOLE, HALF = 8, 4  # dispatches
STAGES = list(TwoGoals.stages)


def config_for(dispatches: int = WHOLE, devices: int = 1, **changes: Any) -> Config:
    log = {"log_every": HALF * DISPATCH, "checkpoint_every": HALF * DISPATCH}
    return tiny(env=WORLD, dispatches=dispatches, devices=devices, log=log, **changes)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("errands") / "whole"
    run(config_for(), path)
    return path


@functools.cache
def run_dispatches(devices: int) -> tuple[Anakin, AnakinState, list[Any]]:
    runtime = shared_runtime(config_for(devices=devices))
    state, rollouts = runtime.init(0), []
    for _ in range(WHOLE):
        state, output = runtime.dispatch(state)
        assert np.all(output.finite.flags)
        rollouts += output.rollouts
    return runtime, state, rollouts


# Rollouts


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_have_the_task_and_the_reached_stages_of_their_episode(devices: int) -> None:
    """Check against returns: an arrival pays 1 at the near goal and 3 at the far one, and is the last stage."""
    _, _, rollouts = run_dispatches(devices)
    task, ended, value, length, reached = (np.concatenate(parts) for parts in zip(*[
        (each.task_ids, each.episodes.ended, each.episodes.episode_return, each.episodes.length, each.stages_reached)
        for each in rollouts
    ], strict=True))  # fmt: skip
    assert reached.shape == (*task.shape, 3)
    arrived = ended & (value > 0)
    np.testing.assert_array_equal(value[arrived], np.asarray([1.0, 3.0])[task[arrived]])
    np.testing.assert_array_equal(reached[ended][:, 2], value[ended] > 0)
    assert set(task[arrived].tolist()) == {0, 1}
    late = ended & (value == 0)
    np.testing.assert_array_equal(length[late], np.asarray([4, 12])[task[late]])
    assert not np.any(reached[1:] < reached[:-1], where=~ended[:-1, :, None] & (length[1:] > 0)[..., None])


def test_a_trajectory_has_the_task_of_every_observation() -> None:
    runtime, state, _ = run_dispatches(1)
    _, trajectory, _ = jax.jit(runtime.rollout)(state.learner.target_actor, state.actor)
    np.testing.assert_array_equal(trajectory.task_id, trajectory.observation[..., CELLS:].argmax(axis=-1))


def test_statistics_and_values_are_kept_per_task() -> None:
    runtime, state, _ = run_dispatches(1)
    statistics = state.learner.statistics
    assert statistics.popart.mean.shape == statistics.reward.intrinsic.weight.shape == (2,)
    assert runtime.learner.critic.tasks == 2
    assert state.learner.online.value_head.layers[-1].bias.shape == (2,)
    assert np.all(np.asarray(statistics.reward.intrinsic.weight) > 0), "each task has its own scale"
    assert statistics.popart.mean[0] != statistics.popart.mean[1]


# Logs


def test_a_log_line_has_success_and_stages_per_task(directory: Path) -> None:
    row = read_metrics(directory / "metrics.jsonl")[-1]
    assert list(row["tasks"]) == NAMES
    for task in row["tasks"].values():
        assert list(task["stages"]) == STAGES
        set_out, half_way, arrived = task["stages"].values()
        assert 1.0 >= set_out >= half_way >= arrived == task["success_rate"]
    shares = [task["stages"]["arrived"] for task in row["tasks"].values()]
    assert row["stages"]["arrived"] == pytest.approx(np.mean(shares))
    assert len(row["intrinsic_reward_per_task"]) == 2
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["tasks"] == row["tasks"]
    assert summary["stages"] == row["stages"]


def test_stages_in_the_window_equal_counts_by_hand() -> None:
    """The window has room for all episodes; its shares are means over the counted ones."""
    _, _, rollouts = run_dispatches(1)
    config = dataclasses.replace(config_for(), log=LogConfig(episode_window=10_000))
    window = make_episode_window(config, make_envs(config.env_ids))
    for steps in rollouts:
        window.on_rollout(steps, 0)
    meta = window.state_dict()
    for index, name in enumerate(NAMES):
        counted = meta["windows"][index]["counted"]
        assert counted
        by_hand = [np.mean([episode[-1] >> stage & 1 for episode in counted]) for stage in range(3)]
        assert list(window.metrics()["tasks"][name]["stages"].values()) == pytest.approx(by_hand)
    again = make_episode_window(config, make_envs(config.env_ids))
    again.load_state_dict(json.loads(json.dumps(meta)))
    assert again.metrics() == window.metrics()


# Resuming


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(directory: Path, tmp_path: Path, devices: int) -> None:
    whole = directory
    if devices > 1:
        whole = tmp_path / "whole"
        run(config_for(devices=devices), whole)
    run(config_for(HALF, devices), tmp_path / "halves")
    before, _ = saved(tmp_path / "halves", config_for(HALF, devices))
    assert np.any(before[".actor.length"] > 0), (
        "the run must stop inside episodes, or states of environments are not tested"
    )
    run(config_for(devices=devices), tmp_path / "halves", resume=True)
    assert_same_checkpoints(tmp_path / "halves", whole, config_for(devices=devices))


# Evaluation, doctor and films


def test_evaluation_plays_every_task_and_averages_over_all(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Always right arrives, always left stays. The policy is indifferent: it samples both, and greedily goes left."""
    actor = indifferent(TwoGoals(("near",)), 0.0, 0.0)
    monkeypatch.setattr(trained_agent, "restore_actor", lambda *_: Restored(actor, {"step": 10}, []))
    programs = _run_jit_episodes._cache_size()
    report = evaluate(directory, episodes=50)
    assert _run_jit_episodes._cache_size() == programs + 2, "one program per acting mode, not per task"
    assert list(report["tasks"]) == NAMES
    near, far = (report["tasks"][name] for name in NAMES)
    for result, payment in ((near, 1.0), (far, 3.0)):
        sampled = result["sampled"]
        assert sampled["return"]["mean"] == pytest.approx(payment * sampled["success_rate"]["mean"])
        assert sampled["stages"]["arrived"] == pytest.approx(sampled["success_rate"]["mean"])
        assert result["greedy"]["stages"] == dict.fromkeys(STAGES, 0.0), "the greedy action is left"
    assert near["sampled"]["success_rate"]["mean"] > far["sampled"]["success_rate"]["mean"] + 0.2
    over_tasks = report["all_tasks"]["sampled"]
    for path in ("success_rate", "return"):
        assert over_tasks[path]["mean"] == pytest.approx(np.mean([one["sampled"][path]["mean"] for one in (near, far)]))
    assert over_tasks["stages"]["arrived"] == pytest.approx(over_tasks["success_rate"]["mean"])
    runs._print(report)
    printed = capsys.readouterr().out
    assert "all 2 tasks" in printed
    assert "stages reached" in printed
    assert all(stage in " ".join(printed.split()) for stage in STAGES)


def test_the_doctor_probes_tasks_by_name(directory: Path) -> None:
    probed = probe_run(directory, config_for(), [])
    assert probed.probe is not None, probed.why_no_probe
    assert set(probed.probe.tasks) <= set(NAMES)
    assert probed.probe.tasks


def test_every_task_of_a_world_is_filmed(directory: Path) -> None:
    recorded: list[Trajectory] = []

    def record(film: FilmSubject, frames: list[np.ndarray], trajectory: Trajectory, judge: Any) -> list[np.ndarray]:
        recorded.append(trajectory)
        return frames[:3]

    with quickly(), mock.patch.multiple(films, make_runtime=shared_runtime, draw_episode=record, STEPS=20):
        paths = film(directory)
    names = [f"probe-{task}-{when}.gif" for task in ("near", "far") for when in ("before", "after")]
    assert [path.name for path in paths] == names
    for trajectory, task in zip(recorded, (0, 0, 1, 1), strict=True):
        assert trajectory.is_first.sum() > 1, "there must be several episodes, all of the task"
        np.testing.assert_array_equal(trajectory.observation[..., CELLS:].argmax(axis=-1), task)
        np.testing.assert_array_equal(trajectory.task_id, task)


def test_tasks_joined_by_commas_share_one_world() -> None:
    config = dataclasses.replace(config_for(), env=",".join(NAMES))
    runtime = Anakin(config, make_envs(config.env_ids))  # pyright: ignore[reportArgumentType]
    assert runtime.learner.tasks == 2
    assert isinstance(runtime.envs, VectorEnv)
    [world] = runtime.envs.envs
    assert world.tasks is not None, "tasks are fixed, not drawn"
