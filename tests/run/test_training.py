"""What a whole run leaves behind."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from byol_explore.report.logs import read_metrics
from byol_explore.run import loop, training
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config, write_config
from byol_explore.run.training import train
from byol_explore.runtime.anakin import AnakinState
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.choosing import resolve_devices
from byol_explore.settings.config import from_dict
from runs import (
    DISPATCH,
    METRICS,
    WHOLE,
    Collect,
    Shared,
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


def test_config_is_the_one_that_was_asked_for(root: Path) -> None:
    config = config_for()
    assert load_config(uninterrupted(root, 1)) == config
    assert from_dict(json.loads((uninterrupted(root, 1) / "config.json").read_text())) == config


def test_the_number_of_devices_is_resolved_in_the_config(tmp_path: Path) -> None:
    config = resolve_devices(tiny(devices=0))
    assert config.runtime.devices == 2
    write_config(tmp_path / "new" / "run", config)
    assert load_config(tmp_path / "new" / "run").runtime.devices == 2


def test_metrics_have_every_name_and_are_due_when_they_should(root: Path) -> None:
    rows = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")
    assert [row["steps"] for row in rows] == [3 * DISPATCH, 6 * DISPATCH, 8 * DISPATCH]
    assert [row["learner_steps"] for row in rows] == [12, 24, 32]  # 2 rollouts of 2 batches per dispatch
    for row in rows:
        assert row.keys() >= METRICS
        assert len(row["prediction_error"]) == 2
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert np.all(np.isfinite(numbers))
        assert row["uncertainty"] > 0
        assert 0 <= row["paid_share"] <= 1
        assert 0 < row["paying_share"] <= 1
        assert row["error_growth"] == pytest.approx(row["prediction_error"][1] / row["prediction_error"][0])
    assert rows[-1]["steps_per_second"] > 0
    assert rows[0]["elapsed"] < rows[1]["elapsed"] < rows[2]["elapsed"]


def test_a_line_is_the_mean_of_its_dispatches(root: Path, tmp_path: Path) -> None:
    run(tiny(dispatches=3), tmp_path / "each")
    each = read_metrics(tmp_path / "each" / "metrics.jsonl")
    together = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")[0]
    assert [row["steps"] for row in each] == [DISPATCH, 2 * DISPATCH, 3 * DISPATCH]
    for name in ("loss", "entropy", "uncertainty", "gradient_norm"):
        np.testing.assert_allclose(together[name], np.mean([row[name] for row in each]), rtol=1e-5)
    for name in ("success_rate", "return_mean", "episodes"):
        assert together[name] == each[-1][name]


def test_the_summary_is_that_of_the_last_line(root: Path) -> None:
    summary = json.loads((uninterrupted(root, 1) / "summary.json").read_text())
    last = read_metrics(uninterrupted(root, 1) / "metrics.jsonl")[-1]
    assert summary["steps"] == WHOLE * DISPATCH
    assert summary["steps_per_second"] == pytest.approx(summary["steps"] / summary["seconds"])
    assert 0 < summary["compile_seconds"] < summary["seconds"]
    for name in ("success_rate", "return_mean", "best_return", "episode_length", "episodes", "paying_share"):
        assert summary[name] == last[name]
    assert summary["episode_length"] == 6.0
    assert summary["best_return"] == 1.0
    assert summary["interrupted"] is False
    assert (summary["env"], summary["method"], summary["seed"]) == ("probe:memory", "byol-explore", 0)


def test_train_returns_the_summary(tmp_path: Path) -> None:
    with quickly():
        summary = train(tiny(dispatches=1), str(tmp_path / "run"), quiet=True)
    assert summary.run_dir == tmp_path / "run"
    assert summary["steps"] == DISPATCH
    assert summary.data == json.loads((tmp_path / "run" / "summary.json").read_text())


def test_without_a_directory_the_run_is_named_after_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with quickly():
        summary = train(tiny(dispatches=1), quiet=True)
    assert summary.run_dir == Path("runs/probe-memory/byol-explore-seed0")
    assert (tmp_path / summary.run_dir / "summary.json").exists()


def test_steps_are_rounded_up_to_whole_dispatches(tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(), steps=DISPATCH + 1)
    assert run(config, tmp_path / "run")["steps"] == 2 * DISPATCH


def test_training_ends_when_enough_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is enough here: the window of ten episodes is full after two dispatches at the earliest."""
    monkeypatch.setattr(loop, "SOLVED", 0.1)
    config = tiny(dispatches=50, stop_at_success=0.1)
    summary = run(config, tmp_path / "run")
    assert summary["success_rate"] >= 0.1
    assert summary["episodes"] >= 10
    assert summary["steps"] < 10 * DISPATCH
    assert summary["solved_at"]["steps"] == summary["steps"]
    assert saved(tmp_path / "run", config)[1]["step"] == summary["steps"]
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["steps"] == summary["steps"]


def test_the_best_checkpoint_is_that_of_the_highest_success(root: Path) -> None:
    directory = uninterrupted(root, 1) / "checkpoints"
    scores = {int(step): score for step, score in json.loads((directory / "scores.json").read_text()).items()}
    best = Checkpoints(directory).best_step()
    assert best is not None
    assert scores[best] == max(scores.values())


def test_what_environments_make_doubtful_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display, dispatch = Collect(), Shared.dispatch

    def doubtful(self: Shared, state: AnakinState) -> tuple[AnakinState, DispatchOutput]:
        state, output = dispatch(self, state)
        return state, output._replace(remarks=("environment 'x': its reward is not finite (step 3)",))

    monkeypatch.setattr(Shared, "dispatch", doubtful)
    monkeypatch.setattr(training, "make_display", lambda *_, **__: display)
    run(tiny(dispatches=1), tmp_path / "run")
    assert display.said[1:] == ["environment 'x': its reward is not finite (step 3)"]
