"""Whole runs: what they leave behind, and that stopping and continuing changes nothing."""

import dataclasses
import functools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore import training
from byol_explore.checkpoint import Checkpoints
from byol_explore.config import Config, CuriosityConfig, LogConfig, NetworkConfig, from_dict
from byol_explore.console import NullDisplay
from byol_explore.envs.probes import PROBES
from byol_explore.envs.registry import make_envs
from byol_explore.errors import DivergenceError, UserError
from byol_explore.evaluation.episodes import evaluate
from byol_explore.interrupts import Interrupts
from byol_explore.learner import FINITE_ORDER
from byol_explore.locking import DirectoryLock
from byol_explore.metrics import read_metrics
from byol_explore.run_directory import check_resumable, check_run_dir, load_config, write_config
from byol_explore.training import Run, first_not_finite, make_runtime, train
from runs import (
    DISPATCH,
    Overflowing,
    assert_same_checkpoints,
    damage,
    files,
    largest_file,
    overflowing,
    quickly,
    run,
    saved,
    shared_runtime,
    tiny,
    without_times,
)

WHOLE, HALF = 8, 4  # dispatches
METRICS = {
    "steps", "learner_steps", "success_rate", "return_mean", "episode_length", "best_return", "episodes",
    "uncertainty", "intrinsic_reward", "clipped_share", "extrinsic_reward", "loss", "loss_curiosity", "loss_value",
    "loss_policy", "loss_temperature", "loss_kl", "entropy", "kl", "temperature", "gradient_norm",
    "steps_per_second", "elapsed",
}  # fmt: skip

# Lines of metrics.jsonl are due after every third dispatch: a run that stops half-way is between two of them.
LOG = {"log_every": 3 * DISPATCH}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def config_for(devices: int = 1, dispatches: int = WHOLE) -> Config:
    return tiny(devices=devices, dispatches=dispatches, log=LOG)


@functools.cache
def uninterrupted(root: Path, devices: int) -> Path:
    directory = root / f"whole-{devices}"
    run(config_for(devices), directory, curves=devices == 1)
    return directory


@functools.cache
def _half(root: Path, devices: int) -> Path:
    directory = root / f"half-{devices}"
    run(config_for(devices, HALF), directory)
    return directory


def half(root: Path, copy: Path, devices: int = 1) -> Path:
    """A copy, to be continued, of a run that stopped half-way."""
    shutil.copytree(_half(root, devices), copy)
    return copy


def assert_same_runs(one: Path, other: Path, devices: int = 1) -> None:
    """Equal in everything but time: checkpoints, metrics and summary."""
    assert_same_checkpoints(one, other, config_for(devices))
    rows, other_rows = (without_times(read_metrics(path / "metrics.jsonl")) for path in (one, other))
    assert rows == other_rows
    summary, other_summary = (json.loads((path / "summary.json").read_text()) for path in (one, other))
    times = {"seconds", "compile_seconds", "steps_per_second"}
    assert {k: v for k, v in summary.items() if k not in times} == {
        k: v for k, v in other_summary.items() if k not in times
    }


class Collect(NullDisplay):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def resume(directory: Path, monkeypatch: pytest.MonkeyPatch, devices: int = 1) -> str:
    """Continue to the whole length; what was said."""
    display = Collect()
    monkeypatch.setattr(training, "make_display", lambda *_, **__: display)
    run(config_for(devices), directory, resume=True)
    return "\n".join(display.said)


# Continuing


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
    assert any(name.startswith(".learner.online") for name in changed)
    assert {".actor.key", ".actor.envs[0].key", ".actor.episode_return"} <= changed


def test_checkpoints_are_in_the_middle_of_episodes(root: Path) -> None:
    """Otherwise the environments' states would not be tested."""
    arrays, meta = saved(uninterrupted(root, 1), tiny())
    assert np.any(arrays[".actor.length"] > 0)
    assert np.any(arrays[".actor.envs[0].world.time"] > 0)
    assert np.any(arrays[".actor.memory.core"] != 0)
    assert len(meta["episodes"]["window"][0]) == 10


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


# The run directory


def test_a_run_leaves_all_its_files(root: Path) -> None:
    directory = uninterrupted(root, 1)
    names = {path.name for path in directory.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "summary.json", "curves.png", "checkpoints"}
    assert (directory / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    steps = sorted(path.name for path in (directory / "checkpoints").glob("step_*"))
    assert {f"step_{n * DISPATCH:012d}" for n in (WHOLE - 1, WHOLE)} <= set(steps)
    assert len(steps) <= 3


def test_config_is_the_one_that_was_asked_for(root: Path) -> None:
    config = config_for()
    assert load_config(uninterrupted(root, 1)) == config
    assert from_dict(json.loads((uninterrupted(root, 1) / "config.json").read_text())) == config


def test_the_number_of_devices_is_resolved_in_the_config(tmp_path: Path) -> None:
    config = training.resolve_devices(tiny(devices=0))
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
        assert 0 <= row["clipped_share"] <= 1
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
    for name in ("success_rate", "return_mean", "best_return", "episode_length", "episodes"):
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
    monkeypatch.setattr(training, "SOLVED", 0.1)
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


# What is refused


def test_a_directory_with_a_run_is_not_touched(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match=r"run already holds a run: continue it with --resume"):
        run(tiny(), directory)
    assert files(directory) == before


def test_a_directory_with_anything_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose me")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        run(tiny(), tmp_path)
    with pytest.raises(UserError, match="is a file"):
        run(tiny(), tmp_path / "thesis.tex")
    assert files(tmp_path) == {"thesis.tex": b"do not lose me"}


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    check_run_dir(tmp_path, tiny(), resume=False)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (tiny(env="probe:nothing"), "unknown environment 'probe:nothing'"),
        (tiny(env="probe:memory,probe:two-armed"), "cannot be learned by one agent"),
        (tiny(network=NetworkConfig(core="rnn")), "rnn"),
        (tiny(network=NetworkConfig(encoder="resnet")), "resnet"),
        (tiny(devices=3), "runtime.devices is 3"),
        (tiny(log={"wandb": True}), "byol-explore\\[wandb\\]"),
    ],
    ids=["env", "envs", "core", "encoder", "devices", "wandb"],
)
def test_a_wrong_value_leaves_no_directory_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, complaint: str
) -> None:
    """The corrected command must not stumble over it."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=complaint):
        train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume: .*gone holds no run"):
        run(tiny(), tmp_path / "gone", resume=True)
    assert not (tmp_path / "gone").exists()


def test_only_length_and_logging_may_change() -> None:
    config = tiny()
    longer = dataclasses.replace(config, steps=10**6, stop_at_success=0.9, log=LogConfig(window=3))
    check_resumable(config, longer)
    check_resumable(longer, config)
    with pytest.raises(UserError, match=r"seed was 0, now 1; only steps, stop_at_success and log\.\* may change"):
        check_resumable(config, dataclasses.replace(config, seed=1))
    with pytest.raises(UserError, match=r"curiosity\.horizon was 2, now 1"):
        check_resumable(config, dataclasses.replace(config, curiosity=CuriosityConfig(horizon=1)))
    with pytest.raises(UserError, match=r"network\.encoder_hidden was \(10,\), now \(128,\)"):
        check_resumable(config, dataclasses.replace(config, network=NetworkConfig()))


def test_resuming_with_another_config_changes_nothing(root: Path, tmp_path: Path) -> None:
    directory = half(root, tmp_path / "run")
    before = files(directory)
    with pytest.raises(UserError, match="method was 'byol-explore', now 'rnd'"):
        run(dataclasses.replace(tiny(), method="rnd"), directory, resume=True)
    assert files(directory) == before


def test_a_run_continues_with_the_config_that_it_wrote(root: Path) -> None:
    check_resumable(load_config(uninterrupted(root, 2)), training.resolve_devices(tiny(devices=0)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"stepz": 3}', "unknown configuration field 'stepz'; choose from: preset, env"),
        ('{"agent": {"gama": 3}}', "unknown configuration field 'gama'"),
    ],
)
def test_an_unreadable_config(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=complaint):
        load_config(tmp_path)
    with pytest.raises(UserError, match="holds no run"):
        load_config(tmp_path / "nowhere")


# Divergence


@pytest.mark.filterwarnings("ignore:invalid value")  # the mean of infinite returns
def test_divergence_is_named_and_the_last_good_checkpoint_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch is two rollouts of 3 steps in every environment: the seventh rollout meets the infinite reward."""
    monkeypatch.setitem(PROBES, "overflowing", Overflowing)
    directory, config = tmp_path / "run", overflowing()
    with pytest.raises(DivergenceError) as caught:
        run(config, directory)
    message = str(caught.value)
    assert "became NaN or infinite first" in message
    assert any(f"the {quantity} became" in message for quantity in FINITE_ORDER)
    assert "at learner step 13:" in message  # of two per rollout
    assert f"the last good checkpoint is of step {3 * DISPATCH}" in message
    assert caught.value.exit_code == 3
    arrays, meta = saved(directory, config)
    assert meta["step"] == 3 * DISPATCH
    for name, array in arrays.items():
        assert np.all(np.isfinite(array)), name
    assert [row["steps"] for row in read_metrics(directory / "metrics.jsonl")] == [DISPATCH * n for n in (1, 2, 3)]
    assert not (directory / "summary.json").exists()
    with quickly():
        report = evaluate(directory, episodes=2)
    assert report["checkpoint_steps"] == 3 * DISPATCH


def test_parameters_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """The last update before a checkpoint may break what no loss has been computed from yet."""
    config = tiny(dispatches=1)
    with quickly():
        envs = make_envs(config.env_ids)
        lock = DirectoryLock(tmp_path / "run")
        one = Run(config, envs, make_runtime(config, envs), tmp_path / "run", NullDisplay(), lock, resume=False)
    broken = one.state.learner._replace(duals=one.state.learner.duals._replace(temperature=jnp.asarray(jnp.nan)))
    one.state = one.state._replace(learner=broken)
    one.steps = DISPATCH
    with pytest.raises(DivergenceError, match=r"learner step 4: the duals\.temperature became NaN .*no checkpoint"):
        one._save()
    assert one.checkpoints.steps() == []


def test_the_first_array_that_is_not_finite_has_a_name() -> None:
    good = {"a": jnp.ones((2,)), "n": jnp.arange(3)}
    assert first_not_finite(good) is None
    assert first_not_finite(shared_runtime(tiny()).first(0).learner) is None
    assert first_not_finite({**good, "b": [jnp.asarray([1.0, jnp.inf])], "c": jnp.asarray(jnp.nan)}) == "b.0"
