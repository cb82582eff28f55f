"""Files, metrics and summary of whole runs."""

import dataclasses
import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from byol_explore.config.config import from_dict
from byol_explore.errors import UserError
from byol_explore.runtime.anakin import AnakinState
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.make import resolve_devices
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.storage.run_directory import load_config, write_config
from byol_explore.training import loop
from byol_explore.training import train as train_module
from byol_explore.training.train import train
from byol_explore.utils.files import read_json_object
from runs import (
    DISPATCH,
    METRICS,
    WHOLE,
    RecordingDisplay,
    SharedRuntime,
    config_for,
    quickly,
    run,
    saved,
    tiny,
    uninterrupted,
)


def test_a_run_leaves_all_its_files(root: Path) -> None:
    directory = uninterrupted(root, 1)
    names = {path.name for path in directory.iterdir()}
    assert names == {"config.json", "versions.json", "metrics.jsonl", "summary.json", "curves.png", "checkpoints"}
    assert (directory / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    steps = sorted(path.name for path in (directory / "checkpoints").glob("step_*"))
    assert {f"step_{n * DISPATCH:012d}" for n in (WHOLE - 1, WHOLE)} <= set(steps)
    assert len(steps) <= 3


def test_the_saved_config_is_that_of_the_run(root: Path) -> None:
    config = config_for()
    assert load_config(uninterrupted(root, 1)) == config
    assert from_dict(read_json_object(uninterrupted(root, 1), "config.json")) == config


def test_the_number_of_devices_is_resolved_in_the_config(tmp_path: Path) -> None:
    config = resolve_devices(tiny(devices=0))
    assert config.runtime.num_devices == 2
    write_config(tmp_path / "new" / "run", config)
    assert load_config(tmp_path / "new" / "run").runtime.num_devices == 2


def test_log_lines_have_all_metrics_at_the_right_steps(root: Path) -> None:
    rows = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [3 * DISPATCH, 6 * DISPATCH, 8 * DISPATCH]
    assert [row["learner_steps"] for row in rows] == [12, 24, 32]  # 2 rollouts of 2 batches per dispatch
    for row in rows:
        assert row.keys() >= METRICS
        assert len(row["prediction_error"]) == 2
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert np.all(np.isfinite(numbers))
        assert row["uncertainty"] > 0
        assert 0 <= row["intrinsic_nonzero_fraction"] <= 1
        assert 0 < row["active_update_fraction"] <= 1
        assert row["prediction_error_growth"] == pytest.approx(row["prediction_error"][1] / row["prediction_error"][0])
    assert rows[-1]["steps_per_second"] > 0
    assert rows[0]["elapsed_seconds"] < rows[1]["elapsed_seconds"] < rows[2]["elapsed_seconds"]


def test_a_log_line_is_the_mean_of_its_dispatches(root: Path, tmp_path: Path) -> None:
    run(tiny(dispatches=3), tmp_path / "each")
    each = read_metrics(tmp_path / "each" / "metrics.jsonl")
    together = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")[0]
    assert [row["steps"] for row in each] == [DISPATCH, 2 * DISPATCH, 3 * DISPATCH]
    for name in ("loss", "entropy", "uncertainty", "grad_norm"):
        np.testing.assert_allclose(together[name], np.mean([row[name] for row in each]), rtol=1e-5)
    for name in ("success_rate", "return_mean", "num_episodes"):
        assert together[name] == each[-1][name]


def test_the_summary_agrees_with_the_last_log_line(root: Path) -> None:
    summary = json.loads((uninterrupted(root, 1) / "summary.json").read_text())
    last = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")[-1]
    assert summary["steps"] == WHOLE * DISPATCH
    assert summary["steps_per_second"] == pytest.approx(summary["steps"] / summary["seconds"])
    assert 0 < summary["compile_seconds"] < summary["seconds"]
    for name in (
        "success_rate",
        "return_mean",
        "episode_return_max",
        "episode_length",
        "num_episodes",
        "active_update_fraction",
    ):
        assert summary[name] == last[name]
    assert summary["episode_length"] == 6.0
    assert summary["episode_return_max"] == 1.0
    assert summary["interrupted"] is False
    assert (summary["env"], summary["method"], summary["seed"]) == ("probe:memory", "byol-explore", 0)


def test_train_returns_the_summary(tmp_path: Path) -> None:
    with quickly():
        summary = train(tiny(dispatches=1), str(tmp_path / "run"), quiet=True)
    assert summary.run_dir == tmp_path / "run"
    assert summary["steps"] == DISPATCH
    assert summary.data == read_json_object(tmp_path / "run", "summary.json")


def test_the_default_run_dir_is_named_after_env_method_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with quickly():
        summary = train(tiny(dispatches=1), quiet=True)
    assert summary.run_dir == Path("runs/probe-memory/byol-explore-seed0")
    assert (tmp_path / summary.run_dir / "summary.json").exists()


def test_steps_are_rounded_up_to_whole_dispatches(tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(), steps=DISPATCH + 1)
    assert run(config, tmp_path / "run")["steps"] == 2 * DISPATCH


def test_training_ends_at_the_success_rate_to_stop_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random actions succeed often enough. The window of ten episodes is full after two dispatches at the earliest."""
    monkeypatch.setattr(loop, "SOLVED_SUCCESS", 0.1)
    config = tiny(dispatches=50, stop_at_success_rate=0.1)
    summary = run(config, tmp_path / "run")
    assert summary["success_rate"] >= 0.1
    assert summary["num_episodes"] >= 10
    assert summary["steps"] < 10 * DISPATCH
    assert summary["solved_at"]["steps"] == summary["steps"]
    assert saved(tmp_path / "run", config)[1]["step"] == summary["steps"]
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["steps"] == summary["steps"]


def test_the_best_checkpoint_is_that_of_the_highest_success(root: Path) -> None:
    checkpoints = Checkpoints(uninterrupted(root, 1) / "checkpoints")
    scores, best = checkpoints.scores(), checkpoints.best_step()
    assert best is not None
    assert scores[best] == max(score for score in scores.values() if score is not None)


def test_warnings_of_environments_are_displayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display, dispatch = RecordingDisplay(), SharedRuntime.dispatch

    def dispatch_with_warning(self: SharedRuntime, state: AnakinState) -> tuple[AnakinState, DispatchOutput]:
        state, output = dispatch(self, state)
        return state, output._replace(warnings=("environment 'x': its reward is not finite (step 3)",))

    monkeypatch.setattr(SharedRuntime, "dispatch", dispatch_with_warning)
    monkeypatch.setattr(train_module, "make_display", lambda *_, **__: display)
    run(tiny(dispatches=1), tmp_path / "run")
    assert display.messages[1:] == ["environment 'x': its reward is not finite (step 3)"]


def test_the_display_is_closed_if_the_runtime_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display, make_runtime = mock.Mock(RecordingDisplay), mock.Mock(side_effect=UserError("no devices"))
    monkeypatch.setattr(train_module, "make_display", lambda *_, **__: display)
    monkeypatch.setattr(train_module, "make_runtime", make_runtime)
    with pytest.raises(UserError, match="no devices"):
        train(tiny(), tmp_path / "run")
    display.close.assert_called_once()
