"""Tests of whole runs outside jit: their files, resuming with new episodes, interruptions and failures."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from builders import leaves_with_names
from byol_explore.config.config import Config
from byol_explore.config.sections import LogConfig
from byol_explore.envs.registry import register_env
from byol_explore.errors import EnvironmentFailure
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.report import figures
from byol_explore.report.build import build_report
from byol_explore.report.load import load_runs
from byol_explore.runtime import make
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from byol_explore.storage.checkpoint import Checkpoints, Restored
from byol_explore.storage.metrics import read_metrics
from byol_explore.storage.run_directory import load_config
from byol_explore.training import train as train_module
from byol_explore.training.loop import RunSummary
from byol_explore.training.output import Bar, Display
from byol_explore.training.train import train
from byol_explore.types import Action, TimeStep
from byol_explore.utils.interrupts import SignalGuard
from host_worlds import (
    ENVS,
    EPISODES,
    LOADS,
    STEPS,
    UPDATES,
    Moment,
    QuickSebulba,
    Scripted,
    ScriptedBatch,
    crash,
    host_config,
    timeline,
)
from references import fair_samples
from runs import METRICS

ROUNDS = 2  # of a dispatch
DISPATCH = ENVS * STEPS * ROUNDS
HALF, WHOLE = 3, 7  # dispatches


def config_for(dispatches: int, log: dict[str, Any] | None = None, **runtime: Any) -> Config:
    """Configure a run that logs, saves and evaluates after every dispatch."""
    each = {name: DISPATCH for name in ("log_every", "checkpoint_every", "evaluate_every")}
    return dataclasses.replace(
        host_config(rounds_per_dispatch=ROUNDS, **runtime),
        steps=dispatches * DISPATCH,
        log=LogConfig(**{**each, "evaluate_episodes": 5, "episode_window": 1000, **(log or {})}),
    )


@contextlib.contextmanager
def playing(world: Scripted) -> Iterator[None]:
    """Register a world. Fails if it is not closed afterwards, or if an actor is left."""
    register_env(world.spec.name, lambda: world, replace=True)
    try:
        yield
    finally:
        assert world.still_open == 0
        assert not [thread for thread in threading.enumerate() if thread.name == "actor"]


def using(runtime: type[Sebulba]) -> Any:
    """Train with another runtime for environments outside jit."""
    return mock.patch.object(make, "Sebulba", runtime)


def run(config: Config, directory: Path, world: Scripted, *, resume: bool = False, curves: bool = False) -> RunSummary:
    draw = figures.draw_curves if curves else lambda directory: None
    with using(QuickSebulba), mock.patch.object(figures, "draw_curves", draw), playing(world):
        return train(config, directory, resume=resume, quiet=True)


def saved(directory: Path, config: Config) -> Restored:
    template = QuickSebulba(config, [Scripted()]).init(0)
    restored = Checkpoints(directory / "checkpoints").restore(template)
    assert not restored.skipped
    return restored


def moments_of(dispatches: int) -> list[Moment]:
    """Return the moments of all environments in the first dispatches of a session, without the first observations."""
    return [moment for env in range(ENVS) for moment in timeline(env, dispatches * ROUNDS * STEPS)[1:]]


def fair_lengths(dispatches: int, longest_before: int) -> list[int]:
    """Return the lengths of the episodes that the episode window counts after some dispatches."""
    dispatched = [n * ROUNDS * STEPS for n in range(1, dispatches + 1)]
    episodes: list[list[tuple[int, int]]] = []  # first and last step, by environment
    for env in range(ENVS):
        began = [moment.count for moment in timeline(env, dispatched[-1]) if moment.time == 0]
        lengths = [EPISODES[(env + i) % len(EPISODES)].length for i in range(len(began))]
        episodes.append([(first, first + length) for first, length in zip(began, lengths, strict=True)])
    counted = fair_samples(episodes, dispatched, 1000, longest_before)[-1]
    return [episodes[env][i][1] - began for began, env, i in counted]


def assert_statistics(summary: dict[str, Any], meta: dict[str, Any], *sessions: int) -> None:
    """Compare episodes and coverage with the script, over the sessions of a run."""
    moments = [moment for dispatches in sessions for moment in moments_of(dispatches)]
    assert (
        summary["num_episodes"]
        == meta["callbacks"]["episodes"]["episodes"]
        == sum(moment.is_last for moment in moments)
    )
    [window] = meta["callbacks"]["episodes"]["windows"]
    lengths: list[int] = []
    for dispatches in sessions:
        lengths += fair_lengths(dispatches, max(lengths, default=0))
    assert [length for *_, length, _ in window["counted"]] == lengths
    assert summary["episode_length"] == pytest.approx(np.mean(lengths))
    visits = Counter((moment.episode, moment.time) for moment in moments)
    assert {(room, x): count for room, x, count in meta["callbacks"]["coverage"]["visits"]} == visits
    assert (summary["rooms_visited"], summary["cells_visited"]) == (len({room for room, _ in visits}), len(visits))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@functools.cache
def half(root: Path) -> Path:
    run(config_for(HALF), root / "half", Scripted(), curves=True)
    return root / "half"


def test_run_writes_its_files_and_room_coverage(root: Path) -> None:
    names = {path.name for path in half(root).iterdir() if not path.name.startswith(".")}
    assert names == {
        "config.json", "versions.json", "metrics.jsonl", "summary.json", "curves.png", "checkpoints",
        "room_coverage.json",
    }  # fmt: skip
    assert load_config(half(root)) == config_for(HALF)
    summary = json.loads((half(root) / "summary.json").read_text())
    assert (summary["steps"], summary["interrupted"], summary["env"]) == (HALF * DISPATCH, False, "scripted")
    meta = saved(half(root), config_for(HALF)).meta
    assert_statistics(summary, meta, HALF)
    assert json.loads((half(root) / "room_coverage.json").read_text()) == meta["callbacks"]["coverage"]


def test_metrics_are_complete_and_finite(root: Path) -> None:
    rows = read_metrics(half(root) / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [DISPATCH * n for n in range(1, HALF + 1)]
    assert [row["learner_steps"] for row in rows] == [ROUNDS * UPDATES * n for n in range(1, HALF + 1)]
    for row in rows:
        assert row.keys() >= METRICS | LOADS | {
            "policy_lag",
            "evaluation_return",
            "evaluation_return_max",
            "rooms_visited",
        }
        assert np.all(np.isfinite([value for value in row.values() if isinstance(value, float)]))
        assert 0 <= row["policy_lag"] <= 2 * UPDATES
        assert all(0 <= row[name] <= 1 for name in LOADS)


def test_best_evaluation_never_decreases(root: Path) -> None:
    rows = read_metrics(half(root) / "metrics.jsonl")
    returns = [row["evaluation_return"] for row in rows]
    np.testing.assert_allclose([row["evaluation_return_max"] for row in rows], np.maximum.accumulate(returns))
    assert len(set(returns)) > 1, "evaluations repeat their actions"


class RecordsFirstState(QuickSebulba):
    """Records the state of its first dispatch."""

    first: SebulbaState | None = None

    def dispatch(self, state: SebulbaState) -> tuple[SebulbaState, DispatchOutput]:
        if RecordsFirstState.first is None:
            RecordsFirstState.first = jax.tree.map(np.array, state)
        return super().dispatch(state)


def test_resumed_run_starts_new_episodes_and_continues_all_else(root: Path, tmp_path: Path) -> None:
    directory, world = tmp_path / "run", Scripted()
    shutil.copytree(half(root), directory)
    before = saved(directory, config_for(HALF))
    with using(RecordsFirstState), mock.patch.object(figures, "draw_curves"), playing(world):
        summary = train(config_for(WHOLE), directory, resume=True, quiet=True)
    began = leaves_with_names(RecordsFirstState.first)
    for name, array in leaves_with_names(before.state).items():
        np.testing.assert_array_equal(began[name], array, err_msg=name)
    after = saved(directory, config_for(WHOLE))
    assert (int(before.state.rollouts_per_env), int(after.state.rollouts_per_env)) == (HALF * ROUNDS, WHOLE * ROUNDS)
    assert int(after.state.learner.step) == WHOLE * ROUNDS * UPDATES
    assert (summary["steps"], after.meta["step"]) == (WHOLE * DISPATCH, WHOLE * DISPATCH)
    assert_statistics(summary.data, after.meta, HALF, WHOLE - HALF)
    rows = read_metrics(directory / "metrics.jsonl")
    assert rows[:HALF] == read_metrics(half(root) / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [DISPATCH * n for n in range(1, WHOLE + 1)]
    assert all(one["elapsed_seconds"] < two["elapsed_seconds"] for one, two in itertools.pairwise(rows))
    returns = [row["evaluation_return"] for row in rows]
    np.testing.assert_allclose([row["evaluation_return_max"] for row in rows], np.maximum.accumulate(returns))


def test_resumed_run_plays_other_episodes(tmp_path: Path) -> None:
    """Compare the seeds of the acting environments of two sessions, without evaluation."""
    worlds = Scripted(), Scripted()
    for number, world in enumerate(worlds):
        run(config_for(number + 1, {"evaluate_every": 0}), tmp_path / "run", world, resume=number > 0)
    one, two = ([batch.seed for batch in world.batches] for world in worlds)
    assert len(one) == len(two) == 1
    assert one != two


def test_synchronous_runs_are_equal(tmp_path: Path) -> None:
    rows, states = [], []
    for name in "ab":
        config = config_for(2, synchronous=True)
        run(config, tmp_path / name, Scripted())
        times = LOADS | {"elapsed_seconds", "steps_per_second"}
        lines = read_metrics(tmp_path / name / "metrics.jsonl")
        rows.append([{key: value for key, value in line.items() if key not in times} for line in lines])
        states.append(leaves_with_names(saved(tmp_path / name, config).state))
    assert rows[0] == rows[1]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], err_msg=name)


def test_ctrl_c_saves_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class InterruptingDisplay(Display):
        def update(self, bars: Sequence[Bar]) -> None:
            if bars[0].fraction == 2 / WHOLE:
                os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "make_display", lambda *_, **__: InterruptingDisplay())
        with pytest.raises(SignalGuard.StoppedBySignal) as stopped:
            run(config_for(WHOLE, {"checkpoint_every": 10**6}), tmp_path / "run", Scripted())
    assert stopped.value.exit_code == 130
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["steps"], summary["interrupted"]) == (2 * DISPATCH, True)
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [2 * DISPATCH]
    assert run(config_for(3), tmp_path / "run", Scripted(), resume=True)["steps"] == 3 * DISPATCH


@pytest.mark.parametrize(("event", "count"), [("batch", 1), ("reset", 0), ("step", 2 * ROUNDS * STEPS + 1)])
def test_failure_of_an_actor_stops_the_run_which_can_be_resumed(tmp_path: Path, event: str, count: int) -> None:
    """The error names it, traceback.txt has the traceback, and learning is saved."""
    done, directory = count // (ROUNDS * STEPS), tmp_path / "run"
    config = config_for(4, {"evaluate_every": 0}, num_actors=2)
    with pytest.raises(EnvironmentFailure) as raised:
        run(config, directory, Scripted(crash(event, count, RuntimeError("scripted failure"))))
    operation = f"step {count + 1}" if event == "step" else {"batch": "its start", "reset": "its reset"}[event]
    kept = f"what was learned until step {done * DISPATCH} is saved: continue with --resume"
    assert str(raised.value) == (
        f"environment 'scripted' failed in {operation}: RuntimeError: scripted failure; "
        f"{kept if done else 'nothing had been learned yet'}; the traceback is in {directory / 'traceback.txt'}"
    )
    assert "in hook\n    raise error\nRuntimeError: scripted failure" in (directory / "traceback.txt").read_text()
    assert Checkpoints(directory / "checkpoints").steps() == [DISPATCH * n for n in range(1, done + 1)]
    assert run(config, directory, Scripted(), resume=True)["steps"] == 4 * DISPATCH
    assert not (directory / "traceback.txt").exists()


def test_a_run_survives_faulty_environments(tmp_path: Path) -> None:
    """A number that is not finite and an exception: the run has all its steps, and the log counts both."""
    directory, faults = tmp_path / "run", {3: "nan", 2 * ROUNDS * STEPS + 1: "raise"}
    total = iter(range(10**6))

    class Faulty(ScriptedBatch):
        def step(self, action: Action) -> TimeStep:
            fault, timestep = faults.pop(next(total), ""), super().step(action)
            if fault == "raise":
                raise RuntimeError("scripted failure")
            return timestep._replace(reward=timestep.reward * np.nan) if fault else timestep

    class World(Scripted):
        def make_vector_env(self, num_envs: int, seed: int) -> ScriptedBatch:
            self.batches.append(Faulty(self, num_envs, seed))
            return self.batches[-1]

    summary = run(config_for(4, {"evaluate_every": 0}, max_env_restarts=2), directory, world := World())
    assert (summary["steps"], faults, len(world.batches)) == (4 * DISPATCH, {}, 3)
    assert [row.get("env_restarts") for row in read_metrics(directory / "metrics.jsonl")][-1] == 2
    [loaded] = load_runs(directory).runs
    assert loaded.env_restarts == 2
    text = str(build_report(directory).sections[0])
    assert f"Environments that were restarted after faults: 2 in {directory.name}." in text


def test_hang_in_the_middle_of_a_dispatch_saves_what_was_learned(tmp_path: Path) -> None:
    """No checkpoint is due before it."""
    rare, release = {"checkpoint_every": 10**6, "evaluate_every": 0}, threading.Event()
    hangs_at = (ROUNDS + 1) * STEPS + 1  # in the second rollout of the second dispatch

    def hook(event: str, count: int) -> None:
        if (event, count) == ("step", hangs_at):
            release.wait()

    config = config_for(4, rare, synchronous=True, step_timeout=0.3)
    step = DISPATCH // ROUNDS * (ROUNDS + 1)
    with using(QuickSebulba), mock.patch.object(figures, "draw_curves"):
        register_env("scripted", lambda: Scripted(hook), replace=True)
        with pytest.raises(EnvironmentFailure, match=rf"hangs: step {hangs_at + 1} .* until step {step} is saved"):
            train(config, tmp_path / "run", quiet=True)
    release.set()
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [step]
    assert int(saved(tmp_path / "run", config).state.learner.step) == (ROUNDS + 1) * UPDATES
    assert run(config, tmp_path / "run", Scripted(), resume=True)["steps"] >= 4 * DISPATCH
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["learner_steps"] == 4 * ROUNDS * UPDATES + UPDATES


def test_run_is_evaluated(root: Path, tmp_path: Path) -> None:
    directory, world = half(root), Scripted()
    with playing(world):
        report = evaluate(directory, video=tmp_path / "episodes.gif", video_episodes=1)
    assert (report["checkpoint_steps"], report["episodes"]) == (HALF * DISPATCH, 10)
    for mode in ("greedy", "sampled"):
        assert report["tasks"]["scripted"][mode]["length_mean"] == 3.0  # of the five episodes, each played twice
    assert [batch.num_envs for batch in world.batches] == [10, 10, 1]
    assert (tmp_path / "episodes.gif").read_bytes().startswith(b"GIF")
