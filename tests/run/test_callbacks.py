"""Callbacks of `train`: they hear of everything, may stop a run, add to its log and live in its checkpoints."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.errors import UserError
from byol_explore.report.logs import read_metrics
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.trackers import Progress, Tracker
from byol_explore.run.training import train
from byol_explore.runtime.base import Steps
from runs import DISPATCH, quickly, tiny


class Watcher(Tracker):
    """Counts steps and rewards, and stops after some dispatches."""

    name = "watcher"

    def __init__(self, stop_after: int = 10**9) -> None:
        self.steps, self.dispatches, self.stop_after = 0, 0, stop_after
        self.heard: list[tuple[int, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.written: list[Path] = []

    def add(self, steps: Steps, at: int) -> None:
        assert at == self.steps
        assert steps.intrinsic_reward.shape == steps.task.shape == steps.episodes.ended.shape
        assert np.all(np.isfinite(steps.intrinsic_reward))
        self.steps += steps.task.size

    def after(self, progress: Progress) -> None:
        self.dispatches += 1
        self.heard.append((progress.before, progress.steps))
        assert progress.metrics["loss"].shape == (4,)
        assert progress.actor is not None
        if self.dispatches >= self.stop_after:
            progress.stop()

    def summary(self) -> dict[str, Any]:
        return {"steps_watched": self.steps}

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def write(self, directory: Path) -> None:
        self.written.append(directory)

    def to_meta(self) -> Any:
        return {"steps": self.steps, "dispatches": self.dispatches}

    def load_meta(self, meta: Any) -> None:
        self.steps, self.dispatches = meta["steps"], meta["dispatches"]


def test_a_callback_hears_logs_saves_and_stops(tmp_path: Path) -> None:
    watcher = Watcher(stop_after=3)
    with quickly():
        summary = train(tiny(dispatches=8), tmp_path / "run", quiet=True, callbacks=[watcher])
    assert summary["steps"] == summary["steps_watched"] == 3 * DISPATCH
    assert not summary["interrupted"]
    assert watcher.heard == [(0, DISPATCH), (DISPATCH, 2 * DISPATCH), (2 * DISPATCH, 3 * DISPATCH)]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["steps_watched"] for row in rows] == [DISPATCH, 2 * DISPATCH, 3 * DISPATCH]
    assert [row["steps"] for row in watcher.rows] == [row["steps"] for row in rows]
    assert watcher.written == [tmp_path / "run"] * 3

    again = Watcher()
    with quickly():
        train(tiny(dispatches=5), tmp_path / "run", resume=True, quiet=True, callbacks=[again])
    assert (again.steps, again.dispatches) == (5 * DISPATCH, 5)
    assert again.heard == [(3 * DISPATCH, 4 * DISPATCH), (4 * DISPATCH, 5 * DISPATCH)]


def test_a_run_goes_on_without_a_callback_that_it_was_saved_with(tmp_path: Path) -> None:
    with quickly():
        train(tiny(dispatches=2), tmp_path / "run", quiet=True, callbacks=[Watcher()])
        summary = train(tiny(dispatches=3), tmp_path / "run", resume=True, quiet=True)
    assert summary["steps"] == 3 * DISPATCH


class Cooler(Tracker):
    """After the first dispatch curiosity pays nothing, and steps are too small to change a number."""

    def after(self, progress: Progress) -> None:
        self.dials = dict(progress.dials)
        if progress.steps >= DISPATCH:
            progress.turn(mixing=np.float32(0), learning_rate=1e-20)


def networks(directory: Path, dispatches: int) -> Any:
    state = Checkpoints(directory / "checkpoints")._read(dispatches * DISPATCH)[0]
    return {name: value for name, value in state.items() if name.startswith("learner.online.curiosity")}


def test_a_callback_turns_dials_which_are_logged_saved_and_restored(tmp_path: Path) -> None:
    cooler, config = Cooler(), tiny(dispatches=3)
    with quickly():
        train(config, tmp_path / "run", quiet=True, callbacks=[cooler])
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["mixing"] for row in rows] == [pytest.approx(config.curiosity.mixing), 0.0, 0.0]
    assert [row["learning_rate"] for row in rows][1:] == [pytest.approx(1e-20)] * 2
    assert cooler.dials == {
        "mixing": 0.0,
        "learning_rate": pytest.approx(1e-20),
        "entropy_weight": 0.0,
        "loss_weight": 1.0,
    }
    first, last = networks(tmp_path / "run", 2), networks(tmp_path / "run", 3)
    assert first
    assert all(np.array_equal(first[name], last[name]) for name in first)
    with quickly():
        train(tiny(dispatches=4), tmp_path / "run", resume=True, quiet=True)
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["learning_rate"] == pytest.approx(1e-20)


def test_dials_turn_no_further_than_their_settings_may() -> None:
    progress = Progress(tiny(), print, lambda: False)
    with pytest.raises(UserError, match=r"curiosity\.mixing is -1: it must not be negative"):
        progress.turn(mixing=-1)
    with pytest.raises(UserError, match=r"unknown dial 'gamma'.*mixing"):
        progress.turn(gamma=0.5)
    for wrong in ("abc", None, True, [1.0], 10**400):
        with pytest.raises(UserError, match=r"curiosity\.mixing is .*: it must be"):
            progress.turn(mixing=wrong)  # pyright: ignore[reportArgumentType]
    for wrong in (1e39, 1e-50):  # not so for the numbers that dials are
        with pytest.raises(UserError, match=r"optimizer\.learning_rate is .*: it must be"):
            progress.turn(learning_rate=wrong)
    assert progress.turned == {}
    progress.turn(mixing=np.float64(0.5), entropy_weight=jnp.ones(()))
    assert progress.turned == {"mixing": 0.5, "entropy_weight": 1.0}
