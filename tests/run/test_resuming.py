"""Stopping and continuing a run changes nothing."""

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byol_explore.errors import UserError
from byol_explore.interrupts import Interrupts
from byol_explore.report.logs import read_metrics
from byol_explore.run import training
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.settings.parts import LogConfig
from runs import (
    DISPATCH,
    HALF,
    LOG,
    WHOLE,
    Collect,
    assert_same_runs,
    config_for,
    damage,
    files,
    half,
    largest_file,
    resume,
    run,
    saved,
    tiny,
    uninterrupted,
)


@pytest.mark.parametrize("devices", [1, 2])
def test_half_and_half_is_the_whole_bit_for_bit(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    whole, halves = uninterrupted(root, devices), half(root, tmp_path / "run", devices)
    before, meta = saved(halves, config_for(devices))
    assert meta["step"] == HALF * DISPATCH
    assert meta["pending"], "the run must stop between two lines for this test to mean something"
    said = resume(halves, monkeypatch, devices)
    assert f"continuing from step {HALF * DISPATCH}" in said
    assert_same_runs(halves, whole, devices)
    after, _ = saved(halves, config_for(devices))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert any(name.startswith(".learner.online.value") for name in changed)
    assert any(name.startswith(".learner.online.actor.normalizer") for name in changed)
    assert {".actor.key", ".actor.envs[0].key", ".actor.episode_return"} <= changed


def test_checkpoints_are_in_the_middle_of_episodes(root: Path) -> None:
    """Otherwise the environments' states would not be tested."""
    arrays, meta = saved(uninterrupted(root, 1), tiny())
    assert np.any(arrays[".actor.length"] > 0)
    assert np.any(arrays[".actor.envs[0].inner.time"] > 0)
    assert np.any(arrays[".actor.memory.core"] != 0)
    assert len(meta["trackers"]["episodes"]["windows"][0]["counted"]) == 10


def test_the_number_of_devices_makes_another_run(root: Path) -> None:
    """So that the test on two devices is not the one on one."""
    one, two = (saved(uninterrupted(root, devices), config_for(devices))[0] for devices in (1, 2))
    assert one[".actor.key"].shape[0] == 1
    assert two[".actor.key"].shape[0] == 2


def test_a_run_that_lost_its_newest_checkpoint_repeats_itself(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: lines that were written after the checkpoint are not there twice."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    shutil.rmtree(directory / f"checkpoints/step_{WHOLE * DISPATCH:012d}")
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 384, "succ')
    said = resume(directory, monkeypatch)
    assert f"continuing from step {(WHOLE - 1) * DISPATCH}" in said
    assert_same_runs(directory, uninterrupted(root, 1))


@pytest.mark.parametrize(("text", "lost"), [("", 2), ('{"steps": 144, "succ\n{}\n', 2), (None, 2), ("keep", 0)])
def test_lines_that_were_lost_before_the_checkpoint_are_mentioned(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, lost: int
) -> None:
    """Not even lines that are no lines of metrics are in the way."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    log = directory / "metrics.jsonl"
    if text is None:
        log.unlink()
    elif text != "keep":
        log.write_text(text)
    said = resume(directory, monkeypatch)
    words = f"{lost} of 2 lines of metrics.jsonl until step {6 * DISPATCH} are lost"
    assert (words in said) == bool(lost)
    assert ("are lost" in said) == bool(lost)


def test_a_damaged_checkpoint_is_skipped_and_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = half(root, tmp_path / "run")
    damage(largest_file(directory / f"checkpoints/step_{HALF * DISPATCH:012d}/state"))
    said = resume(directory, monkeypatch)
    assert f"skipped a damaged checkpoint: step_{HALF * DISPATCH:012d} (" in said
    assert f"continuing from step {(HALF - 1) * DISPATCH}" in said
    assert capfd.readouterr().err == ""
    assert_same_runs(directory, uninterrupted(root, 1))


def test_damaged_checkpoints_far_ahead_do_not_cost_the_new_ones(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that are newer than all that the resumed run will write: it goes on from its own."""
    directory = half(root, tmp_path / "run")
    newest = directory / f"checkpoints/step_{HALF * DISPATCH:012d}"
    for steps in (WHOLE * DISPATCH, 2 * WHOLE * DISPATCH):
        shutil.copytree(newest, newest.with_name(f"step_{steps:012d}"))
        damage(newest.with_name(f"step_{steps:012d}") / "meta" / "metadata")
    run(config_for(dispatches=HALF + 2), directory, resume=True)
    assert Checkpoints(directory / "checkpoints").steps()[-1] == (HALF + 2) * DISPATCH
    said = resume(directory, monkeypatch)
    assert "skipped" not in said
    assert f"continuing from step {(HALF + 2) * DISPATCH}" in said
    assert_same_runs(directory, uninterrupted(root, 1))


def test_with_nothing_but_damaged_checkpoints_nothing_is_changed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = half(root, tmp_path / "run")
    for path in (directory / "checkpoints").glob("step_*"):
        (path / "meta" / "metadata").write_text("{}")
    before = files(directory)
    with pytest.raises(UserError, match=r"no whole checkpoint in .*; not usable: step_"):
        resume(directory, monkeypatch)
    assert files(directory) == before


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = half(root, tmp_path / "run")
    shutil.rmtree(directory / "checkpoints")
    said = resume(directory, monkeypatch)
    assert "starting from the beginning" in said
    assert_same_runs(directory, uninterrupted(root, 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    directory = tmp_path / "run"

    class Sender(Collect):
        def advance(self, steps: int, metrics: dict[str, Any]) -> None:
            if steps == 5 * DISPATCH:  # noticed at once
                os.kill(os.getpid(), number)

    display = Sender()
    with monkeypatch.context() as patch:
        patch.setattr(training, "make_display", lambda *_, **__: display)
        with pytest.raises(Interrupts.Stopped) as stopped:
            run(dataclasses.replace(config_for(), log=LogConfig(**LOG, checkpoint_every=10**6, window=10)), directory)
    assert stopped.value.exit_code == 128 + number
    assert display.said[-1] == f"interrupted: saved at step {5 * DISPATCH}; continue with --resume"
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["steps"], summary["interrupted"]) == (5 * DISPATCH, True)
    assert read_metrics(directory / "metrics.jsonl")[-1]["steps"] == 5 * DISPATCH
    assert Checkpoints(directory / "checkpoints").steps() == [5 * DISPATCH]
    resume(directory, monkeypatch)
    assert_same_runs(directory, uninterrupted(root, 1))


def test_a_finished_run_has_nothing_left_to_do(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    resume(directory, monkeypatch)
    assert_same_runs(directory, uninterrupted(root, 1))
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["seconds"] > json.loads((uninterrupted(root, 1) / "summary.json").read_text())["seconds"] / 2


def test_a_run_cannot_become_shorter(root: Path, tmp_path: Path) -> None:
    """Neither its configuration nor its log is touched; as many steps as it has are no fewer."""
    directory = tmp_path / "run"
    shutil.copytree(uninterrupted(root, 1), directory)
    before = files(directory)
    with pytest.raises(UserError, match=rf"^steps is 192, but {directory} has 384 already: leave it out, or ask"):
        run(config_for(dispatches=HALF), directory, resume=True)
    assert files(directory) == before
    run(config_for(), directory, resume=True)
