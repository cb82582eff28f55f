"""The training loop: dispatch, call the callbacks, log, save, restore."""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.agent.state import with_hyperparams
from byol_explore.config.config import Config, to_dict
from byol_explore.curiosity.method import prediction_error_growth
from byol_explore.errors import DivergenceError, EnvironmentFailure
from byol_explore.networks import native_resnet
from byol_explore.networks.encoders import select_encoders
from byol_explore.ops.arrays import first_nonfinite
from byol_explore.runtime.base import Runtime, local_copy
from byol_explore.storage.checkpoint import Checkpoints, Restored, read_networks
from byol_explore.storage.metrics import LOG_NAME, rows_until
from byol_explore.storage.run_directory import move_aside, write_config, write_versions
from byol_explore.training.callbacks import Callback, Progress
from byol_explore.training.episode_window import EpisodeWindow
from byol_explore.training.output import Bar, Display, Writer, make_writers, training_bar
from byol_explore.utils.files import write_json_object
from byol_explore.utils.interrupts import SignalGuard

PAPER_ENCODERS = {"atari", "hard-eight"}  # those with a residual network
SOLVED_SUCCESS = 0.95  # success rate over a full episode window from which a task counts as solved


@dataclass(frozen=True)
class RunSummary:
    """Outcome of a run; `summary["success_rate"]` reads an entry of summary.json."""

    run_dir: Path
    data: dict[str, Any]  # contents of summary.json

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


class TrainingLoop:
    """One training run: act, learn, call the callbacks, log and save until its steps are done.

    Args:
      config: configuration of the run.
      runtime: acting and learning.
      directory: the run directory, locked and checked.
      display: shows progress and messages.
      window: episode window; decides on success, early stop and the best checkpoint.
      resume: continue from the newest intact checkpoint.
      restores_envs: checkpoints hold the states of the environments; otherwise resuming starts new episodes.
      replace: move the run in `directory` aside before the first file is written.
      callbacks: called after the window, in this order.
    """

    # A resumed run equals an uninterrupted one, bit for bit:
    # - Checkpoints are written between dispatches. `state` holds all that a dispatch reads: parameters, optimizer,
    #   statistics, recurrent state, environments and random keys. It is saved and restored without rounding.
    # - Whatever else later lines of the log depend on is saved beside it: the states of callbacks, the metrics of
    #   dispatches since the last line that was due, and the time at which the run was solved.
    # - Lines of metrics.jsonl after `logged` are dropped before the first dispatch; the resumed run writes them again.

    def __init__(
        self, config: Config, runtime: Runtime, directory: Path, display: Display, window: EpisodeWindow,
        *, resume: bool, restores_envs: bool, replace: bool = False, callbacks: Sequence[Callback] = (),
    ) -> None:  # fmt: skip
        self.config, self.runtime, self.directory = config, runtime, directory
        self.display, self.window = display, window
        self.callbacks = [window, *callbacks]
        self.restores_envs = restores_envs
        self.checkpoints = Checkpoints(directory / "checkpoints")
        self.interrupts = SignalGuard()
        self.progress = Progress(config, display.message, lambda: self.interrupts.signal_number is not None)
        self.steps = 0
        self.logged = 0  # step of the last line of metrics.jsonl that was due; the line of an interruption is not due
        self.lines = 0  # lines that were due until then
        self.pending: list[dict[str, np.ndarray]] = []  # metrics of the dispatches since then
        self.seconds_before = 0.0  # of earlier sessions of this run
        self.compile_seconds = 0.0
        self.other_seconds = 0.0  # spent in callbacks in this session
        self.hyperparams: dict[str, float] = {}  # values in the last dispatch
        self.solved_at: dict[str, float] | None = None
        self.started = self.compiled = time.monotonic()
        # Files are read first: a run that they prevent must not be announced.
        networks, restored = self._read_files(resume=resume)
        self._announce()  # before anything is compiled, which takes seconds
        self.display.update([Bar("training", 0.0, "compiling")])
        self.state: Any = self.runtime.init_on_host(config.seed, restored=restored is not None)
        self.state = self.state._replace(learner=self.state.learner._replace(**networks))
        if restored is not None:
            self._restore(restored)
        elif resume:
            self.display.message("no checkpoint had been written yet: starting from the beginning")
        self.state = self.runtime.shard(self.state)
        self._read_hyperparams()
        self.start_steps = self.steps
        if replace:  # only now: a run that cannot begin must not move the old one
            display.message(f"the run that was in {directory} is now in {move_aside(directory)}")
        write_config(directory, config)
        write_versions(directory, self.steps)
        # A finished run keeps its last line even if it was not due: no dispatch will write it again.
        keep_until = self.steps if self._is_done() else self.logged
        self.writers: list[Writer] = make_writers(config, directory, keep_until=keep_until if resume else None)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    @property
    def learner_steps(self) -> int:
        learner = self.runtime.learner
        updates = learner.updates_per_rollout * (self.config.runtime.num_envs // learner.envs_per_rollout)
        return self.steps * updates // self.config.steps_per_round

    def run(self) -> RunSummary:
        """Train until the steps are done, the success rate is reached, or a signal or callback stops the run.

        Returns:
          RunSummary with the contents of summary.json.
        """
        with self.interrupts, contextlib.closing(self.runtime):
            try:
                self._dispatch_all()
            except EnvironmentFailure as failure:
                raise self._save_after(failure) from failure
            finally:
                for writer in self.writers:
                    writer.close()
        return self._finish(self.interrupts.signal_number)

    def _dispatch_all(self) -> None:
        log, progress = self.config.log, self.progress
        stopping = self._is_done()
        while not stopping:
            self._dispatch()
            self.display.update([self._bar(self._metrics_row(self.pending[-1:]))])
            stopping = self._is_done() or self.interrupts.signal_number is not None or progress.wants_stop
            due = progress.passed_multiple(log.log_every)
            if due or stopping:
                self._log()
            if due:
                self.logged, self.lines, self.pending = self.steps, self.lines + 1, []
            if stopping or progress.passed_multiple(log.checkpoint_every):
                self._save()

    def _read_files(self, *, resume: bool) -> tuple[dict[str, Any], Restored | None]:
        """Read the networks of `init_from`, and the newest intact checkpoint if the run is resumed and has one."""
        if resume:
            return {}, self.checkpoints.restore(self.runtime.state_shapes()) if self.checkpoints.steps() else None
        init_from = self.config.init_from
        return read_networks(self.runtime.state_shapes().learner, Path(init_from)) if init_from else {}, None

    def _announce(self) -> None:
        config = self.config
        encoders = dict.fromkeys(select_encoders(config.network, self.runtime.learner.spec).values())
        names = f"{' and '.join(encoders)} encoder{'s' if len(encoders) > 1 else ''}"
        self.display.message(f"training {config.env} with {config.method} in {self.directory} ({names})")
        if not PAPER_ENCODERS.isdisjoint(encoders) and (kernel := native_resnet.announcement()):
            self.display.message(kernel)
        if config.total_steps != config.steps:
            whole = f"{config.steps_per_dispatch:,} steps each"
            self.display.message(f"steps {config.steps:,} become {config.total_steps:,}: whole dispatches of {whole}")
        if unknown := self.window.tasks_without_threshold():
            self.display.message(
                f"no return counts as a success in {', '.join(unknown)}: success is known only if the environment "
                "tells of it, or with --success-threshold"
            )

    def _is_done(self) -> bool:
        """Return True if all steps are done or the success rate has reached `stop_at_success_rate`."""
        enough, success = self.config.stop_at_success_rate, self.window.min_success()
        if enough > 0 and self.window.is_full() and success is not None and success >= enough:
            return True
        return self.steps >= self.config.total_steps

    def _dispatch(self) -> None:
        """Run one dispatch, check that it is finite, and call the callbacks."""
        began, self.hyperparams = time.monotonic(), self.progress.hyperparams
        self.state, output = self.runtime.dispatch(self.state)
        if self.steps == self.start_steps:
            self.compiled = time.monotonic()
            self.compile_seconds = self.compiled - began
        for warning in output.warnings:
            self.display.message(warning)
        self.interrupts.signal_number = self.interrupts.signal_number or output.signal
        if failure := output.finite.first_failure():
            update, quantity = failure
            raise self._divergence_error(quantity, self.learner_steps + update + 1)
        self.pending.append(mean_metrics(output.metrics))
        self.progress.before, at = self.steps, self.steps
        for steps in output.rollouts:
            for callback in self.callbacks:
                callback.on_rollout(steps, at)
            at += steps.task_ids.size
        self.steps = self.progress.steps = at
        self.progress.metrics, self.progress.actor = output.metrics, local_copy(self.state.learner.target_actor)
        self.progress.counts = output.actor_counters
        began = time.monotonic()
        for callback in self.callbacks:
            callback.on_dispatch(self.progress)
        self._apply_hyperparams()
        self.other_seconds += time.monotonic() - began

    def _apply_hyperparams(self) -> None:
        """Apply the changes that callbacks made; part of the state, so a resumed run continues with them."""
        if changes := self.progress.changes:
            learner = self.state.learner
            self.state = self.state._replace(
                learner=learner._replace(hyperparams=with_hyperparams(learner.hyperparams, changes))
            )
            self.progress.changes = {}
            self._read_hyperparams()

    def _read_hyperparams(self) -> None:
        self.progress.hyperparams = {
            name: float(value) for name, value in self.state.learner.hyperparams._asdict().items()
        }

    def _divergence_error(self, quantity: str, learner_step: int) -> DivergenceError:
        kept = self.checkpoints.steps()
        last = f"the last good checkpoint is of step {kept[-1]:,}" if kept else "no checkpoint had been written yet"
        return DivergenceError(
            f"training diverged at learner step {learner_step:,}: the {quantity} became NaN or infinite first; "
            f"{last} in {self.directory}"
        )

    def _save_after(self, failure: EnvironmentFailure) -> EnvironmentFailure:
        """Save after a failure of the environments, which leaves the learner intact. Returns the error to raise."""
        if self.steps > max(self.checkpoints.steps(), default=0):
            self._save()
        kept = f"what was learned until step {self.steps:,} is saved: continue with --resume"
        return EnvironmentFailure(f"{failure}; {kept if self.steps else 'nothing had been learned yet'}")

    def _metrics_row(self, pending: list[dict[str, np.ndarray]]) -> dict[str, Any]:
        """Return a line of metrics.jsonl from the metrics of some dispatches and of the callbacks."""
        stacked = {name: np.stack([metrics[name] for metrics in pending]) for name in pending[0]}
        means = {name: value.tolist() for name, value in mean_metrics(stacked).items()}
        rewards = means["intrinsic_reward_per_task"]
        means["intrinsic_reward_per_task"] = [None if math.isnan(value) else value for value in rewards]  # JSON: no NaN
        running = max(time.monotonic() - self.compiled - self.other_seconds, 1e-9)
        later_steps = self.steps - self.start_steps - self.config.steps_per_dispatch
        row = {
            "steps": self.steps,
            "learner_steps": self.learner_steps,
            **self._callback_metrics(),
            **self.hyperparams,
            **means,
            "prediction_error_growth": prediction_error_growth(means["prediction_error"]),
            "steps_per_second": max(later_steps, 0) / running,
            "elapsed_seconds": self.seconds,
        }
        success = row["success_rate"]
        if self.solved_at is None and self.window.is_full() and success is not None and success >= SOLVED_SUCCESS:
            self.solved_at = {"steps": self.steps, "seconds": self.seconds}
            self.display.message(f"solved: success {success:.3f} over the last {self.config.log.episode_window} "
                             f"episodes after {self.steps:,} steps, {self.seconds:.0f} s")  # fmt: skip
        return row

    def _callback_metrics(self) -> dict[str, Any]:
        return {name: value for callback in self.callbacks for name, value in callback.metrics().items()}

    def _log(self) -> None:
        row = self._metrics_row(self.pending)
        for writer in self.writers:
            writer.write(row)
        for callback in self.callbacks:
            callback.on_log(row)
        self.display.log([self._bar(row)])

    def _bar(self, row: dict[str, Any]) -> Bar:
        return training_bar(self.steps, self.config.total_steps, row)

    def _save(self) -> None:
        # No loss was computed yet from the outcome of the last update: check the parameters themselves.
        if bad := first_nonfinite(self.state.learner):
            raise self._divergence_error(bad, self.learner_steps)
        meta = {
            "config": to_dict(self.config),
            "seconds": self.seconds,
            "callbacks": {callback.name: callback.state_dict() for callback in self.callbacks if callback.name},
            "solved_at": self.solved_at,
            "logged": self.logged,
            "lines": self.lines,
            "pending": [{name: value.tolist() for name, value in metrics.items()} for metrics in self.pending],
        }
        self.checkpoints.save(self.steps, self.runtime.gather(self.state), meta, self.window.score())
        for callback in self.callbacks:
            callback.on_checkpoint(self.directory)

    def _restore(self, restored: Restored) -> None:
        for name in restored.skipped:
            self.display.message(f"skipped a damaged checkpoint: {name}; it is kept as damaged_{name.split()[0]}")
        self.state, meta = restored.state, restored.meta
        self.checkpoints.quarantine(after=meta["step"])  # else they would be taken for the newest next time
        for name in self.checkpoints.without_score():
            self.display.message(f"{name}: it cannot be the best one")
        self.steps = self.progress.steps = meta["step"]
        self.seconds_before, self.solved_at = meta["seconds"], meta["solved_at"]
        self.logged, self.lines = meta["logged"], meta["lines"]
        for callback in self.callbacks:
            if callback.name in meta["callbacks"]:
                callback.load_state_dict(meta["callbacks"][callback.name])
        if not self.restores_envs:
            self.window.reset_running()
        # float32, as they were before JSON: means over dispatches are then equal in every bit.
        self.pending = [
            {name: np.asarray(value, np.float32) for name, value in metrics.items()} for metrics in meta["pending"]
        ]
        self.display.message(f"continuing from step {self.steps:,}")
        rows, damage = rows_until(self.directory / LOG_NAME, self.logged)
        if damage:
            self.display.message(damage)
        if (lost := self.lines - len(rows)) > 0:
            self.display.message(f"{lost} of {self.lines} lines of {LOG_NAME} until step {self.logged:,} are lost")

    def _finish(self, signal: int | None) -> RunSummary:
        from byol_explore.report.figures import draw_curves  # with matplotlib, which takes a second

        config, seconds = self.config, self.seconds
        data = {
            **{name: getattr(config, name) for name in ("env", "method", "ablation", "algorithm", "regime", "seed")},
            "steps": self.steps,
            "seconds": seconds,
            "compile_seconds": self.compile_seconds,
            "steps_per_second": self.steps / max(seconds, 1e-9),
            **self._callback_metrics(),
            "solved_at": self.solved_at,
            "interrupted": signal is not None,
        }
        write_json_object(self.directory / "summary.json", data)
        draw_curves(self.directory)
        if signal is not None:
            self.display.message(f"interrupted: saved at step {self.steps:,}; continue with --resume")
            raise SignalGuard.StoppedBySignal(signal)
        return RunSummary(self.directory, data)


def mean_metrics(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Average metrics [n, ...] over learner steps or dispatches.

    Rewards per task are weighted by the transitions of the task; without a transition the mean is NaN.
    """
    means = {name: np.mean(values, axis=0) for name, values in metrics.items()}
    reward, count = metrics["intrinsic_reward_per_task"], metrics["transitions_per_task"]
    with np.errstate(invalid="ignore"):
        total = np.sum(np.where(count > 0, reward, 0.0) * count, axis=0) / np.sum(count, axis=0)
    return means | {"intrinsic_reward_per_task": total.astype(np.float32)}
