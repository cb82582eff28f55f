"""Tiny training runs that several test files share."""

import contextlib
import dataclasses
import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import leaves_with_names, small_config
from byol_explore.config.config import Config, to_dict
from byol_explore.config.sections import LogConfig, RuntimeConfig
from byol_explore.envs.interface import JitEnvironment
from byol_explore.envs.probes.base import Probe, ProbeState, ProbeStep
from byol_explore.envs.registry import make_envs
from byol_explore.report import figures
from byol_explore.runtime.anakin import Anakin, AnakinState
from byol_explore.spaces import ActionSpec
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.metrics import read_metrics
from byol_explore.training import train as train_module
from byol_explore.training.loop import RunSummary
from byol_explore.training.output import Display
from byol_explore.training.train import train
from byol_explore.types import Action

DISPATCH = 48  # steps: 8 environments, 2 rollouts of 3 transitions
TIMES = {"elapsed_seconds", "steps_per_second"}  # metrics that differ between equal runs
METRICS = {  # in every line of every run
    "steps", "learner_steps", "success_rate", "return_mean", "episode_length", "episode_return_max", "num_episodes",
    "uncertainty", "intrinsic_reward", "intrinsic_nonzero_fraction", "intrinsic_reward_per_task",
    "transitions_per_task",
    "active_update_fraction", "embedding_spread", "prediction_error_growth",
    "extrinsic_reward", "loss", "loss_curiosity", "loss_value", "loss_policy", "loss_temperature", "loss_kl",
    "entropy", "kl", "temperature", "grad_norm", "steps_per_second", "elapsed_seconds",
}  # fmt: skip


def tiny(
    method: str = "byol-explore",
    *,
    env: str = "probe:memory",
    devices: int = 1,
    dispatches: int = 4,
    log: dict[str, Any] | None = None,
    **changes: Any,
) -> Config:
    """Configure a run of a few dispatches that logs and saves after each; episodes are longer than a sequence."""
    return dataclasses.replace(
        small_config(method, horizon=2),
        env=env,
        steps=dispatches * DISPATCH,
        runtime=RuntimeConfig(num_envs=8, batch_size=4, sequence_length=4, rounds_per_dispatch=2, num_devices=devices),
        log=LogConfig(**{"log_every": DISPATCH, "checkpoint_every": DISPATCH, "episode_window": 10, **(log or {})}),
        **changes,
    )


class SharedRuntime(Anakin):
    """Computes its initial state only once."""

    @functools.cache  # noqa: B019
    def first(self, seed: int) -> AnakinState:
        return super().init_on_host(seed)

    def init_on_host(self, seed: int, *, restored: bool = False) -> AnakinState:
        return jax.tree.map(jnp.copy, self.first(seed))


@functools.cache
def _runtime(config: Config) -> SharedRuntime:
    return SharedRuntime(config, make_envs(config.env_ids), jax.devices()[: config.runtime.num_devices])


def shared_runtime(config: Config, envs: list[JitEnvironment] | None = None, processes: object = None) -> SharedRuntime:
    """Return one runtime, compiled once, for all configurations that differ only in length and logging."""
    return _runtime(
        dataclasses.replace(config, steps=1, stop_at_success_rate=0.0, success_threshold=None, log=LogConfig())
    )


@contextlib.contextmanager
def quickly(*, curves: bool = False) -> Iterator[None]:
    """Share compiled runtimes, compile without optimisation, and skip the curves, which take longest, unless asked."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    draw = figures.draw_curves if curves else lambda directory: None
    try:
        with (
            mock.patch.object(train_module, "make_runtime", shared_runtime),
            mock.patch.object(figures, "draw_curves", draw),
        ):
            yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def run(config: Config, directory: Path, *, curves: bool = False, resume: bool = False) -> RunSummary:
    with quickly(curves=curves):
        return train(config, directory, resume=resume, quiet=True)


def arguments(config: Config) -> list[str]:
    """Return the arguments of `byol-explore train` for this configuration."""

    def options(data: dict[str, Any], prefix: str = "--") -> Iterator[str]:
        for name, value in data.items():
            option = prefix + name.replace("_", "-")
            if isinstance(value, dict):
                yield from options(value, option + ".")
            elif isinstance(value, bool):
                yield option if value else f"{prefix}no-{name.replace('_', '-')}"
            elif value is not None:
                yield from (option, *map(str, value if isinstance(value, tuple) else [value]))

    return list(options(to_dict(config)))


class OverflowProbe(Probe):
    """Reward 0, and infinity after 20 steps of its one long episode."""

    def __init__(self) -> None:
        super().__init__("overflowing", 30, ActionSpec(discrete=(2,)), 29)

    def _act(self, state: ProbeState, action: Action) -> ProbeStep:
        return ProbeStep((), jnp.where(state.time < 20, 0.0, jnp.inf), jnp.array(False))


def overflow_config() -> Config:
    """Configure a run with an infinite reward in its fourth dispatch; OverflowProbe must be registered."""
    return tiny("none", env="probe:overflowing", dispatches=20)


def saved(directory: Path, config: Config, step: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Load the arrays of a checkpoint by name, and its metadata without times."""
    template = shared_runtime(config).first(config.seed)
    restored = Checkpoints(directory / "checkpoints").restore(template, step=step)
    assert not restored.skipped
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, restored.state
    )
    return leaves_with_names(plain), {name: value for name, value in restored.meta.items() if name != "seconds"}


def assert_same_checkpoints(one: Path, other: Path, config: Config) -> None:
    """Assert that the newest checkpoints are equal in every bit."""
    (arrays, meta), (other_arrays, other_meta) = saved(one, config), saved(other, config)
    assert meta == other_meta
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def files(directory: Path) -> dict[str, bytes]:
    """Read all files of a directory by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(path: Path) -> None:
    """Flip bits in the middle half of a file."""
    content = path.read_bytes()
    quarter = len(content) // 4
    middle = bytes(byte ^ 0b101 for byte in content[quarter:-quarter])
    path.write_bytes(content[:quarter] + middle + content[-quarter:])


def largest_file(directory: Path) -> Path:
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


# Runs that stop half-way and continue

WHOLE, HALF = 8, 4  # dispatches

# Lines of metrics.jsonl are due after every third dispatch: a run that stops half-way is between two of them.
LOG = {"log_every": 3 * DISPATCH}


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
    """Copy a run that stopped half-way, so that a test can continue it."""
    shutil.copytree(_half(root, devices), copy)
    return copy


def assert_same_runs(one: Path, other: Path, devices: int = 1) -> None:
    """Assert that checkpoints, metrics and summary are equal, except for times."""
    assert_same_checkpoints(one, other, config_for(devices))
    rows, other_rows = (without_times(read_metrics(path / "metrics.jsonl")) for path in (one, other))
    assert rows == other_rows
    summary, other_summary = (json.loads((path / "summary.json").read_text()) for path in (one, other))
    times = {"seconds", "compile_seconds", "steps_per_second", "crc"}
    assert {k: v for k, v in summary.items() if k not in times} == {
        k: v for k, v in other_summary.items() if k not in times
    }


class RecordingDisplay(Display):
    """Records messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def resume(directory: Path, monkeypatch: pytest.MonkeyPatch, devices: int = 1) -> str:
    """Continue a run to the whole length and return the messages."""
    display = RecordingDisplay()
    monkeypatch.setattr(train_module, "make_display", lambda *_, **__: display)
    run(config_for(devices), directory, resume=True)
    return "\n".join(display.messages)
