"""A resumed run equals an uninterrupted one."""

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from byol_explore.config.sections import LogConfig
from byol_explore.errors import UserError
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.training import train
from byol_explore.training.output import Bar
from byol_explore.utils.interrupts import SignalGuard
from runs import (
    DISPATCH,
    HALF,
    LOG,
    WHOLE,
    RecordingDisplay,
    assert_same_runs,
    config_for,
    damage,
    files,
    half,
    largest_file,
    quickly,
    resume,
    run,
    saved,
    shared_runtime,
    tiny,
    uninterrupted,
)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    whole, halves = uninterrupted(root, devices), half(root, tmp_path / "run", devices)
    before, meta = saved(halves, config_for(devices))
    assert meta["step"] == HALF * DISPATCH
    assert meta["pending"], "the run must stop between two log lines, or pending metrics are not tested"
    messages = resume(halves, monkeypatch, devices)
    assert f"continuing from step {HALF * DISPATCH}" in messages
    assert_same_runs(halves, whole, devices)
    after, _ = saved(halves, config_for(devices))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert any(name.startswith(".learner.online.value") for name in changed)
    assert any(name.startswith(".learner.online.actor.obs_normalizer") for name in changed)
    assert {".actor.key", ".actor.envs[0].key", ".actor.episode_return"} <= changed


def test_checkpoints_are_taken_inside_episodes(root: Path) -> None:
    """Otherwise the tests above would not cover the states of environments."""
    arrays, meta = saved(uninterrupted(root, 1), tiny())
    assert np.any(arrays[".actor.length"] > 0)
    assert np.any(arrays[".actor.envs[0].env_state.time"] > 0)
    assert np.any(arrays[".actor.recurrent_state.policy_core"] != 0)
    assert len(meta["callbacks"]["episodes"]["windows"][0]["counted"]) == 10


@pytest.mark.parametrize("devices", [1, 2])
def test_environments_are_spread_over_the_devices(devices: int) -> None:
    """Otherwise the tests above would not cover two devices."""
    runtime = shared_runtime(config_for(devices))
    state = runtime.shard(runtime.init_on_host(0))
    assert len(state.actor.length.sharding.device_set) == devices


def test_lines_after_the_newest_checkpoint_are_not_written_twice(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: the log is ahead of the newest checkpoint, and its last line is cut off."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    shutil.rmtree(directory / f"checkpoints/step_{WHOLE * DISPATCH:012d}")
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 384, "succ')
    messages = resume(directory, monkeypatch)
    assert f"continuing from step {(WHOLE - 1) * DISPATCH}" in messages
    assert_same_runs(directory, uninterrupted(root, 1))


@pytest.mark.parametrize(("text", "lost"), [("", 2), ('{"steps": 144, "succ\n{}\n', 2), (None, 2), ("keep", 0)])
def test_lost_log_lines_before_the_checkpoint_are_reported(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, lost: int
) -> None:
    """Lines that are not JSON objects with metrics count as lost."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    log = directory / "metrics.jsonl"
    if text is None:
        log.unlink()
    elif text != "keep":
        log.write_text(text)
    messages = resume(directory, monkeypatch)
    words = f"{lost} of 2 lines of metrics.jsonl until step {6 * DISPATCH} are lost"
    assert (words in messages) == bool(lost)
    assert ("are lost" in messages) == bool(lost)


def test_a_damaged_checkpoint_is_skipped_and_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = half(root, tmp_path / "run")
    damage(largest_file(directory / f"checkpoints/step_{HALF * DISPATCH:012d}/state"))
    messages = resume(directory, monkeypatch)
    assert f"skipped a damaged checkpoint: step_{HALF * DISPATCH:012d} (" in messages
    assert f"continuing from step {(HALF - 1) * DISPATCH}" in messages
    assert capfd.readouterr().err == ""
    assert_same_runs(directory, uninterrupted(root, 1))


def test_damaged_later_checkpoints_do_not_displace_new_ones(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two damaged checkpoints have later steps than the resumed run writes; it must continue from its own."""
    directory = half(root, tmp_path / "run")
    newest = directory / f"checkpoints/step_{HALF * DISPATCH:012d}"
    for steps in (WHOLE * DISPATCH, 2 * WHOLE * DISPATCH):
        shutil.copytree(newest, newest.with_name(f"step_{steps:012d}"))
        damage(newest.with_name(f"step_{steps:012d}") / "meta" / "metadata")
    run(config_for(dispatches=HALF + 2), directory, resume=True)
    assert Checkpoints(directory / "checkpoints").steps()[-1] == (HALF + 2) * DISPATCH
    messages = resume(directory, monkeypatch)
    assert "skipped" not in messages
    assert f"continuing from step {(HALF + 2) * DISPATCH}" in messages
    assert_same_runs(directory, uninterrupted(root, 1))


def test_if_all_checkpoints_are_damaged_nothing_changes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = half(root, tmp_path / "run")
    for path in (directory / "checkpoints").glob("step_*"):
        (path / "meta" / "metadata").write_text("{}")
    before = files(directory)
    with quickly(), pytest.raises(UserError, match=r"no whole checkpoint in .*; not usable: step_"):
        train.train(config_for(1), directory, resume=True)
    assert files(directory) == before
    assert capsys.readouterr().out == ""


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = half(root, tmp_path / "run")
    shutil.rmtree(directory / "checkpoints")
    messages = resume(directory, monkeypatch)
    assert "starting from the beginning" in messages
    assert_same_runs(directory, uninterrupted(root, 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    directory = tmp_path / "run"

    class Sender(RecordingDisplay):
        def update(self, bars: Sequence[Bar]) -> None:
            if bars[0].fraction == 5 / WHOLE:  # handled before the next dispatch
                os.kill(os.getpid(), number)

    display = Sender()
    with monkeypatch.context() as patch:
        patch.setattr(train, "make_display", lambda *_, **__: display)
        with pytest.raises(SignalGuard.StoppedBySignal) as stopped:
            run(
                dataclasses.replace(config_for(), log=LogConfig(**LOG, checkpoint_every=10**6, episode_window=10)),
                directory,
            )
    assert stopped.value.exit_code == 128 + number
    assert display.messages[-1] == f"interrupted: saved at step {5 * DISPATCH}; continue with --resume"
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["steps"], summary["interrupted"]) == (5 * DISPATCH, True)
    assert read_metrics(directory / "metrics.jsonl")[-1]["steps"] == 5 * DISPATCH
    assert Checkpoints(directory / "checkpoints").steps() == [5 * DISPATCH]
    resume(directory, monkeypatch)
    assert_same_runs(directory, uninterrupted(root, 1))


def test_resuming_a_finished_run_changes_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    resume(directory, monkeypatch)
    assert_same_runs(directory, uninterrupted(root, 1))
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["seconds"] > json.loads((uninterrupted(root, 1) / "summary.json").read_text())["seconds"] / 2


def test_steps_below_those_done_are_refused(root: Path, tmp_path: Path) -> None:
    """A refused run keeps its config and log. Exactly as many steps as are done are accepted."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    before = files(directory)
    with pytest.raises(UserError, match=rf"^steps is 192, but {directory} has 384 already: leave it out, or ask"):
        run(config_for(dispatches=HALF), directory, resume=True)
    assert files(directory) == before
    run(config_for(), directory, resume=True)


def test_damaged_log_lines_are_named_and_dropped(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    log = directory / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0].replace('"steps": 144', '"steps": 145'), *lines[1:]]))
    messages = resume(directory, monkeypatch)
    assert "metrics.jsonl: line 1 is damaged and dropped" in messages
    assert f"1 of 2 lines of metrics.jsonl until step {6 * DISPATCH} are lost" in messages
    log.write_text("".join([*lines[:1], *lines]))
    assert "lost" not in resume(directory, monkeypatch)
    assert_same_runs(directory, uninterrupted(root, 1))
