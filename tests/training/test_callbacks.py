"""Callbacks of `train`: called at each event, may stop a run, add metrics and keep state in checkpoints."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.errors import UserError
from byol_explore.runtime.base import RolloutStats
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.training.callbacks import Callback, Progress
from byol_explore.training.train import train
from runs import DISPATCH, quickly, tiny


class Watcher(Callback):
    """Record every call, and stop after some dispatches."""

    name = "watcher"

    def __init__(self, stop_after: int = 10**9) -> None:
        self.steps, self.dispatches, self.stop_after = 0, 0, stop_after
        self.dispatched_steps: list[tuple[int, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.written: list[Path] = []

    def on_rollout(self, steps: RolloutStats, at: int) -> None:
        assert at == self.steps
        assert steps.intrinsic_reward.shape == steps.task_ids.shape == steps.episodes.ended.shape
        assert np.all(np.isfinite(steps.intrinsic_reward))
        self.steps += steps.task_ids.size

    def on_dispatch(self, progress: Progress) -> None:
        self.dispatches += 1
        self.dispatched_steps.append((progress.before, progress.steps))
        assert progress.metrics["loss"].shape == (4,)
        assert progress.actor is not None
        if self.dispatches >= self.stop_after:
            progress.stop()

    def metrics(self) -> dict[str, Any]:
        return {"steps_watched": self.steps}

    def on_log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def on_checkpoint(self, directory: Path) -> None:
        self.written.append(directory)

    def state_dict(self) -> Any:
        return {"steps": self.steps, "dispatches": self.dispatches}

    def load_state_dict(self, meta: Any) -> None:
        self.steps, self.dispatches = meta["steps"], meta["dispatches"]


def test_a_callback_is_called_logged_saved_and_can_stop(tmp_path: Path) -> None:
    watcher = Watcher(stop_after=3)
    with quickly():
        summary = train(tiny(dispatches=8), tmp_path / "run", quiet=True, callbacks=[watcher])
    assert summary["steps"] == summary["steps_watched"] == 3 * DISPATCH
    assert not summary["interrupted"]
    assert watcher.dispatched_steps == [(0, DISPATCH), (DISPATCH, 2 * DISPATCH), (2 * DISPATCH, 3 * DISPATCH)]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["steps_watched"] for row in rows] == [DISPATCH, 2 * DISPATCH, 3 * DISPATCH]
    assert [row["steps"] for row in watcher.rows] == [row["steps"] for row in rows]
    assert watcher.written == [tmp_path / "run"] * 3

    resumed = Watcher()
    with quickly():
        train(tiny(dispatches=5), tmp_path / "run", resume=True, quiet=True, callbacks=[resumed])
    assert (resumed.steps, resumed.dispatches) == (5 * DISPATCH, 5)
    assert resumed.dispatched_steps == [(3 * DISPATCH, 4 * DISPATCH), (4 * DISPATCH, 5 * DISPATCH)]


def test_a_run_resumes_without_a_callback_it_was_saved_with(tmp_path: Path) -> None:
    with quickly():
        train(tiny(dispatches=2), tmp_path / "run", quiet=True, callbacks=[Watcher()])
        summary = train(tiny(dispatches=3), tmp_path / "run", resume=True, quiet=True)
    assert summary["steps"] == 3 * DISPATCH


class Cooler(Callback):
    """After the first dispatch, turn off intrinsic rewards and make learner steps too small to change a parameter."""

    def on_dispatch(self, progress: Progress) -> None:
        self.hyperparams = dict(progress.hyperparams)
        if progress.steps >= DISPATCH:
            progress.set(mixing=np.float32(0), learning_rate=1e-20)


def networks(directory: Path, dispatches: int) -> Any:
    state = Checkpoints(directory / "checkpoints")._read(dispatches * DISPATCH)[0]
    return {name: value for name, value in state.items() if name.startswith("learner.online.curiosity")}


def test_a_callback_sets_hyperparameters_that_are_logged_and_restored(tmp_path: Path) -> None:
    cooler, config = Cooler(), tiny(dispatches=3)
    with quickly():
        train(config, tmp_path / "run", quiet=True, callbacks=[cooler])
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["mixing"] for row in rows] == [pytest.approx(config.curiosity.mixing), 0.0, 0.0]
    assert [row["learning_rate"] for row in rows][1:] == [pytest.approx(1e-20)] * 2
    assert cooler.hyperparams == {
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


def test_hyperparameters_obey_the_rules_of_their_settings() -> None:
    progress = Progress(tiny(), print, lambda: False)
    with pytest.raises(UserError, match=r"curiosity\.mixing is -1: it must not be negative"):
        progress.set(mixing=-1)
    with pytest.raises(UserError, match=r"unknown hyperparameter 'gamma'.*mixing"):
        progress.set(gamma=0.5)
    for wrong in ("abc", None, True, [1.0], 10**400):
        with pytest.raises(UserError, match=r"curiosity\.mixing is .*: it must be"):
            progress.set(mixing=wrong)  # pyright: ignore[reportArgumentType]
    for wrong in (1e39, 1e-50):  # valid in float64, but hyperparameters are float32
        with pytest.raises(UserError, match=r"optimizer\.learning_rate is .*: it must be"):
            progress.set(learning_rate=wrong)
    assert progress.changes == {}
    progress.set(mixing=np.float64(0.5), entropy_weight=jnp.ones(()))
    assert progress.changes == {"mixing": 0.5, "entropy_weight": 1.0}
