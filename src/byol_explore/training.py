"""Training: a run directory from a configuration. `train(config)` is all that the command line does."""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.checkpoint import Checkpoints, write_atomically
from byol_explore.compilation import enable_compilation_cache
from byol_explore.config import Config, default_run_dir
from byol_explore.console import Display, make_display
from byol_explore.curiosity.vitals import Payments, error_growth
from byol_explore.devices import choose_actor_devices, choose_devices
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.episode_window import EpisodeWindow
from byol_explore.errors import DivergenceError, UserError
from byol_explore.evaluation.coverage import Coverage
from byol_explore.evaluation.maps import CuriosityMaps
from byol_explore.evaluation.periodic import Evaluations
from byol_explore.evaluation.rules import evaluation_envs
from byol_explore.interrupts import Interrupts
from byol_explore.learner import LearnerState
from byol_explore.locking import DirectoryLock
from byol_explore.metrics import Writer, check_extras, make_writers
from byol_explore.networks.choosing import encoder_names
from byol_explore.presets import checked
from byol_explore.report.curves import draw_curves
from byol_explore.report.pyramid import draw_pyramid
from byol_explore.run_directory import check_run_dir, load_config, write_config
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import DispatchOutput, Runtime
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.success import success_rules
from byol_explore.trackers import Progress, Tracker
from byol_explore.types import PyTree

SOLVED = 0.95  # success over a full window of episodes


class Summary(NamedTuple):
    """The outcome of a run, as in summary.json."""

    run_dir: Path
    data: dict[str, Any]

    def __getitem__(self, name: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.data[name]


def train(
    config: Config, run_dir: Path | str | None = None, *, resume: bool = False, quiet: bool = False,
    callbacks: Sequence[Tracker] = (),
) -> Summary:  # fmt: skip
    """Train to `config.steps` environment steps and leave everything in the run directory.

    With `resume` a run continues from its newest whole checkpoint, bit for bit as if it had never stopped;
    environments outside jit start new episodes.
    Ctrl-C and SIGTERM save a checkpoint first. Callbacks are trackers (`trackers.py`): they hear of every rollout and
    dispatch, may add to the log and to checkpoints, and may end the run.
    """
    config = resolve_devices(checked(config))
    envs = training_envs(config)
    directory = Path(run_dir) if run_dir is not None else default_run_dir(config)
    check_run_dir(directory, config, resume=resume)
    check_extras(config)
    enable_compilation_cache()
    display = make_display(config.total_steps, quiet=quiet)
    runtime, lock = make_runtime(config, envs), DirectoryLock(directory)
    try:
        loop = TrainingLoop(config, envs, runtime, directory, display, lock, resume=resume, callbacks=callbacks)
        return loop.go()
    finally:
        runtime.close()
        lock.release()
        display.close()


def resolve_devices(config: Config) -> Config:
    """With the number of devices that a run really uses: its results depend on it, in the last bits."""
    runtime = dataclasses.replace(config.runtime, devices=len(choose_devices(config)))
    return dataclasses.replace(config, runtime=runtime)


def make_runtime(config: Config, envs: Sequence[AnyEnvironment]) -> Runtime:
    """The runtime for these environments."""
    if isinstance(envs[0], HostEnvironment):
        return Sebulba(config, envs, choose_devices(config), choose_actor_devices(config))  # pyright: ignore[reportArgumentType]
    return Anakin(config, envs, choose_devices(config))  # pyright: ignore[reportArgumentType]


def training_envs(config: Config) -> Sequence[AnyEnvironment]:
    """The tasks of a run, as its actors play them."""
    return make_envs(config.env_ids, config.env_settings, actors=config.runtime.actors)


def make_window(config: Config, envs: Sequence[AnyEnvironment]) -> EpisodeWindow:
    """What is known of episodes before the first one."""
    specs = [env.spec for env in envs]
    rules, limits = success_rules(specs, config.success_above), [spec.max_steps for spec in specs]
    return EpisodeWindow(config.env_ids, config.log.window, rules, limits, config.runtime.num_envs)


def make_trackers(config: Config, envs: Sequence[AnyEnvironment], window: EpisodeWindow) -> list[Tracker]:
    """All that watch every run."""
    trackers: list[Tracker] = [window, Payments(config), CuriosityMaps(config.env_ids, envs)]
    if len(envs) == 1:
        trackers.append(Coverage(envs[0].spec))
    if config.env == "atari:montezuma_revenge":
        trackers.append(PyramidPicture())
    return [*trackers, Evaluations(config, evaluation_envs(envs))]


def take_networks(learner: LearnerState, run_dir: Path) -> LearnerState:
    """With the networks and statistics of another run's newest checkpoint; optimizers and duals start anew."""
    load_config(run_dir)  # says so if there is no run, and asks before anything of it is used
    checkpoints = Checkpoints(run_dir / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"init_from: {run_dir} has no checkpoint to start from")
    parts = {
        name: checkpoints.restore(getattr(learner, name), part=f"learner.{name}").state
        for name in ("online", "curiosity", "acting", "statistics")
    }
    return learner._replace(**parts)


class PyramidPicture(Tracker):
    """rooms.png: Montezuma's rooms as coverage.json has them."""

    def write(self, directory: Path) -> None:
        if (path := directory / "coverage.json").exists():
            draw_pyramid(json.loads(path.read_text()), directory / "rooms.png")


class TrainingLoop:
    """One training run from its first or its restored state to its end: act, learn, tell all trackers, log, save."""

    def __init__(
        self, config: Config, envs: Sequence[AnyEnvironment], runtime: Runtime, directory: Path, display: Display,
        lock: DirectoryLock, *, resume: bool, callbacks: Sequence[Tracker] = (),
    ) -> None:  # fmt: skip
        self.config, self.directory, self.display = config, directory, display
        self.runtime = runtime
        self.window = make_window(config, envs)
        self.trackers: list[Tracker] = [*make_trackers(config, envs, self.window), *callbacks]
        self.episodes_go_on = not isinstance(envs[0], HostEnvironment)  # when a run is resumed
        self.checkpoints = Checkpoints(directory / "checkpoints")
        self.interrupts = Interrupts()
        self.progress = Progress(config, display.say, lambda: self.interrupts.received is not None)
        self.steps = 0
        self.logged = 0  # step of the last line of metrics.jsonl that was due
        self.pending: list[dict[str, np.ndarray]] = []  # metrics of the dispatches since then
        self.seconds_before = 0.0  # of earlier sessions of this run
        self.compile_seconds = 0.0
        self.other_seconds = 0.0  # of this session, that trackers took
        self.solved_at: dict[str, float] | None = None
        self.started = self.compiled = time.monotonic()
        self.state: Any = self.runtime.init(config.seed, restored=resume and bool(self.checkpoints.steps()))
        if config.init_from and not resume:
            self.state = self.state._replace(learner=take_networks(self.state.learner, Path(config.init_from)))
        lock.acquire()
        if resume:
            self._restore()
        self.start_steps = self.steps
        write_config(directory, config)
        keep_until = self.steps if self._is_done() else self.logged  # lines that were not due are written again
        self.writers: list[Writer] = make_writers(config, directory, keep_until=keep_until if resume else None)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    @property
    def learner_steps(self) -> int:
        learner, runtime = self.runtime.learner, self.config.runtime
        return self.steps // self.config.steps_per_rollout * learner.updates * (runtime.num_envs // learner.envs)

    def go(self) -> Summary:
        """Dispatch until the steps are done, somebody interrupts or a callback has seen enough."""
        log, progress = self.config.log, self.progress
        self._greet()
        with self.interrupts as interrupts:
            stopping = self._is_done()
            while not stopping:
                self.pending.append(self._dispatch())
                self.display.advance(self.steps, self._row(self.pending[-1:]))
                stopping = self._is_done() or interrupts.received is not None or progress.wants_stop
                due = progress.crossed(log.log_every)
                if due or stopping:
                    self._log()
                if due:
                    self.logged, self.pending = self.steps, []
                if stopping or progress.crossed(log.checkpoint_every):
                    self._save()
            signal = interrupts.received
        return self._finish(signal)

    def _greet(self) -> None:
        config = self.config
        encoders = dict.fromkeys(encoder_names(config.network, self.runtime.learner.spec).values())
        words = f"{' and '.join(encoders)} encoder{'s' if len(encoders) > 1 else ''}"
        self.display.say(f"training {config.env} with {config.method} in {self.directory} ({words})")
        if unknown := self.window.without_threshold():
            self.display.say(
                f"no return counts as a success in {', '.join(unknown)}: success is known only if the environment "
                "tells of it, or with --success-above"
            )

    def _is_done(self) -> bool:
        """All steps are done, or success is as high as asked for."""
        enough, success = self.config.stop_at_success, self.window.lowest_success()
        if enough > 0 and self.window.is_full() and success is not None and success >= enough:
            return True
        return self.steps >= self.config.total_steps

    def _dispatch(self) -> dict[str, np.ndarray]:
        """One call of the compiled program, and all that want to know of it; metrics are means over its updates."""
        began = time.monotonic()
        self.state, output = self.runtime.dispatch(self.state)
        if self.steps == self.start_steps:
            self.compiled = time.monotonic()
            self.compile_seconds = self.compiled - began
        self._check_finite(output)
        self.progress.before, at = self.steps, self.steps
        for steps in output.steps:
            for tracker in self.trackers:
                tracker.add(steps, at)
            at += steps.task.size
        self.steps = self.progress.steps = at
        self.progress.metrics, self.progress.actor = output.metrics, self.state.learner.acting
        began = time.monotonic()
        for tracker in self.trackers:
            tracker.after(self.progress)
        self.other_seconds += time.monotonic() - began
        return {name: np.mean(values, axis=0) for name, values in output.metrics.items()}

    def _check_finite(self, output: DispatchOutput) -> None:
        bad_updates = np.flatnonzero(~np.all(output.finite, axis=1))
        if bad_updates.size == 0:
            return
        update = int(bad_updates[0])
        quantity = self.runtime.learner.finite_names[int(np.flatnonzero(~output.finite[update])[0])]
        raise self._diverged(quantity, self.learner_steps + update + 1)

    def _diverged(self, quantity: str, learner_step: int) -> DivergenceError:
        kept = self.checkpoints.steps()
        last = f"the last good checkpoint is of step {kept[-1]:,}" if kept else "no checkpoint had been written yet"
        for writer in self.writers:
            writer.close()
        return DivergenceError(
            f"training diverged at learner step {learner_step:,}: the {quantity} became NaN or infinite first; "
            f"{last} in {self.directory}"
        )

    def _row(self, pending: list[dict[str, np.ndarray]]) -> dict[str, Any]:
        """A line of metrics.jsonl: what trackers say, losses, speed."""
        means = {name: np.mean([metrics[name] for metrics in pending], axis=0).tolist() for name in pending[0]}
        running = max(time.monotonic() - self.compiled - self.other_seconds, 1e-9)
        later_steps = self.steps - self.start_steps - self.config.steps_per_dispatch
        row = {
            "steps": self.steps,
            "learner_steps": self.learner_steps,
            **self._summary(),
            **means,
            "error_growth": error_growth(means["prediction_error"]),
            "steps_per_second": max(later_steps, 0) / running,
            "elapsed": self.seconds,
        }
        success = row["success_rate"]
        if self.solved_at is None and self.window.is_full() and success is not None and success >= SOLVED:
            self.solved_at = {"steps": self.steps, "seconds": self.seconds}
            self.display.say(f"solved: success {success:.3f} over the last {self.config.log.window} "
                             f"episodes after {self.steps:,} steps, {self.seconds:.0f} s")  # fmt: skip
        return row

    def _summary(self) -> dict[str, Any]:
        """What all trackers say."""
        return {name: value for tracker in self.trackers for name, value in tracker.summary().items()}

    def _log(self) -> None:
        row = self._row(self.pending)
        for writer in self.writers:
            writer.write(row)
        for tracker in self.trackers:
            tracker.log(row)
        self.display.log(row)

    def _save(self) -> None:
        if bad := first_not_finite(self.state.learner):  # the last update's outcome, which no loss has seen yet
            raise self._diverged(bad, self.learner_steps)
        meta = {
            "seconds": self.seconds,
            "trackers": {tracker.name: tracker.to_meta() for tracker in self.trackers if tracker.name},
            "solved_at": self.solved_at,
            "logged": self.logged,
            "pending": [{name: value.tolist() for name, value in metrics.items()} for metrics in self.pending],
        }
        self.checkpoints.save(self.steps, self.state, meta, self.window.score())
        for tracker in self.trackers:
            tracker.write(self.directory)

    def _restore(self) -> None:
        if not self.checkpoints.steps():
            self.display.say("no checkpoint had been written yet: starting from the beginning")
            return
        restored = self.checkpoints.restore(self.state)
        for name in restored.damaged:
            self.display.say(f"skipped a damaged checkpoint: {name}")
        self.state, meta = restored.state, restored.meta
        self.steps = self.progress.steps = meta["step"]
        self.seconds_before, self.solved_at, self.logged = meta["seconds"], meta["solved_at"], meta["logged"]
        for tracker in self.trackers:
            if tracker.name in meta["trackers"]:
                tracker.load_meta(meta["trackers"][tracker.name])
        if not self.episodes_go_on:
            self.window.begin_anew()
        self.pending = [
            {name: np.asarray(value, np.float32) for name, value in metrics.items()} for metrics in meta["pending"]
        ]
        self.display.say(f"continuing from step {self.steps:,}")

    def _finish(self, signal: int | None) -> Summary:
        for writer in self.writers:
            writer.close()
        seconds = self.seconds
        data = {
            "env": self.config.env,
            "method": self.config.method,
            "ablation": self.config.ablation,
            "algorithm": self.config.algorithm,
            "regime": self.config.regime,
            "seed": self.config.seed,
            "steps": self.steps,
            "seconds": seconds,
            "compile_seconds": self.compile_seconds,
            "steps_per_second": self.steps / max(seconds, 1e-9),
            **self._summary(),
            "solved_at": self.solved_at,
            "interrupted": signal is not None,
        }
        write_atomically(self.directory / "summary.json", json.dumps(data, indent=2) + "\n")
        draw_curves(self.directory)
        if signal is not None:
            self.display.say(f"interrupted: saved at step {self.steps:,}; continue with --resume")
            raise Interrupts.Stopped(signal)
        return Summary(self.directory, data)


def first_not_finite(tree: PyTree) -> str | None:
    """The name of the first array that has a NaN or an infinity in it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.all(np.isfinite(leaf)):
            return jax.tree_util.keystr(path, simple=True, separator=".")
    return None
