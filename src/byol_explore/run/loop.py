"""The loop of a run: dispatch, tell all trackers, log, save."""

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.curiosity.vitals import error_growth
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.errors import DivergenceError, EnvironmentFailure
from byol_explore.files import write_atomically
from byol_explore.interrupts import Interrupts
from byol_explore.learner_state import turned
from byol_explore.networks.choosing import encoder_names
from byol_explore.report.curves import draw_curves
from byol_explore.report.logs import PLAIN
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.console import Display
from byol_explore.run.directory import write_config, write_versions
from byol_explore.run.finite import first_not_finite
from byol_explore.run.init_from import take_networks
from byol_explore.run.metrics import Writer, lines_until, make_writers
from byol_explore.run.replacing import check_replaceable, remove_run
from byol_explore.run.trackers import Progress, Tracker
from byol_explore.run.watching import make_trackers, make_window
from byol_explore.runtime.base import DispatchOutput, Runtime, at_hand
from byol_explore.settings.config import Config

SOLVED = 0.95  # success over a full window of episodes


class Summary(NamedTuple):
    """The outcome of a run, as in summary.json."""

    run_dir: Path
    data: dict[str, Any]

    def __getitem__(self, name: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.data[name]


class TrainingLoop:
    """One training run from its first or its restored state to its end: act, learn, tell all trackers, log, save."""

    def __init__(
        self, config: Config, envs: Sequence[AnyEnvironment], runtime: Runtime, directory: Path, display: Display,
        *, resume: bool, replace: bool = False, callbacks: Sequence[Tracker] = (),
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
        self.saved = 0  # step of the newest checkpoint
        self.logged = 0  # step of the last line of metrics.jsonl that was due
        self.lines = 0  # that were due until then
        self.pending: list[dict[str, np.ndarray]] = []  # metrics of the dispatches since then
        self.seconds_before = 0.0  # of earlier sessions of this run
        self.compile_seconds = 0.0
        self.other_seconds = 0.0  # of this session, that trackers took
        self.dials: dict[str, float] = {}  # as they stood in the last dispatch
        self.solved_at: dict[str, float] | None = None
        self.started = self.compiled = time.monotonic()
        self.state: Any = self.runtime.fresh(config.seed, restored=resume and bool(self.checkpoints.steps()))
        if config.init_from and not resume:
            self.state = self.state._replace(learner=take_networks(self.state.learner, Path(config.init_from)))
        if resume:
            self._restore()
        self.state = self.runtime.place(self.state)
        self._read_dials()
        self.start_steps = self.steps
        if replace:  # now that nothing more keeps the new run from beginning
            check_replaceable(directory, config)
            remove_run(directory)
        write_config(directory, config)
        write_versions(directory, self.steps)
        keep_until = self.steps if self._is_done() else self.logged  # lines that were not due are written again
        self.writers: list[Writer] = make_writers(config, directory, keep_until=keep_until if resume else None)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    @property
    def learner_steps(self) -> int:
        learner, runtime = self.runtime.learner, self.config.runtime
        return self.steps * learner.updates * (runtime.num_envs // learner.envs) // self.config.steps_per_rollout

    def go(self) -> Summary:
        """Dispatch until the steps are done, somebody interrupts or a callback has seen enough."""
        self._greet()
        with self.interrupts, contextlib.closing(self.runtime):
            try:
                self._dispatch_all()
            except EnvironmentFailure as failure:
                raise self._failed(failure) from failure
        return self._finish(self.interrupts.received)

    def _dispatch_all(self) -> None:
        log, progress = self.config.log, self.progress
        stopping = self._is_done()
        while not stopping:
            self._dispatch()
            self.display.advance(self.steps, self._row(self.pending[-1:]))
            stopping = self._is_done() or self.interrupts.received is not None or progress.wants_stop
            due = progress.crossed(log.log_every)
            if due or stopping:
                self._log()
            if due:
                self.logged, self.lines, self.pending = self.steps, self.lines + 1, []
            if stopping or progress.crossed(log.checkpoint_every):
                self._save()

    def _greet(self) -> None:
        config = self.config
        encoders = dict.fromkeys(encoder_names(config.network, self.runtime.learner.spec).values())
        words = f"{' and '.join(encoders)} encoder{'s' if len(encoders) > 1 else ''}"
        self.display.say(f"training {config.env} with {config.method} in {self.directory} ({words})")
        if config.total_steps != config.steps:
            whole = f"{config.steps_per_dispatch:,} steps each"
            self.display.say(f"steps {config.steps:,} become {config.total_steps:,}: whole rounds of {whole}")
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

    def _dispatch(self) -> None:
        """One call of the compiled program, and all that want to know of it; metrics are means over its updates."""
        began, self.dials = time.monotonic(), self.progress.dials
        self.state, output = self.runtime.dispatch(self.state)
        if self.steps == self.start_steps:
            self.compiled = time.monotonic()
            self.compile_seconds = self.compiled - began
        for remark in output.remarks:
            self.display.say(remark)
        self.interrupts.received = self.interrupts.received or output.signal
        self._check_finite(output)
        self.pending.append({name: np.mean(values, axis=0) for name, values in output.metrics.items()})
        self.progress.before, at = self.steps, self.steps
        for steps in output.steps:
            for tracker in self.trackers:
                tracker.add(steps, at)
            at += steps.task.size
        self.steps = self.progress.steps = at
        self.progress.metrics, self.progress.actor = output.metrics, at_hand(self.state.learner.acting)
        self.progress.counts = output.counts
        began = time.monotonic()
        for tracker in self.trackers:
            tracker.after(self.progress)
        self._turn_dials()
        self.other_seconds += time.monotonic() - began

    def _turn_dials(self) -> None:
        """As callbacks have asked for."""
        if wanted := self.progress.turned:
            learner = self.state.learner
            self.state = self.state._replace(learner=learner._replace(dials=turned(learner.dials, wanted)))
            self.progress.turned = {}
            self._read_dials()

    def _read_dials(self) -> None:
        self.progress.dials = {name: float(dial) for name, dial in self.state.learner.dials._asdict().items()}

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

    def _failed(self, failure: EnvironmentFailure) -> EnvironmentFailure:
        """The end of a run whose environments failed: the learner is well, and what it has learned is saved."""
        if self.steps != self.saved:
            self._save()
        for writer in self.writers:
            writer.close()
        kept = f"what was learned until step {self.steps:,} is saved: continue with --resume"
        return EnvironmentFailure(f"{failure}; {kept if self.steps else 'nothing had been learned yet'}")

    def _row(self, pending: list[dict[str, np.ndarray]]) -> dict[str, Any]:
        """A line of metrics.jsonl: what trackers say, losses, speed."""
        means = {name: np.mean([metrics[name] for metrics in pending], axis=0).tolist() for name in pending[0]}
        running = max(time.monotonic() - self.compiled - self.other_seconds, 1e-9)
        later_steps = self.steps - self.start_steps - self.config.steps_per_dispatch
        row = {
            "steps": self.steps,
            "learner_steps": self.learner_steps,
            **self._summary(),
            **self.dials,
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
            "lines": self.lines,
            "pending": [{name: value.tolist() for name, value in metrics.items()} for metrics in self.pending],
        }
        self.checkpoints.save(self.steps, self.runtime.gathered(self.state), meta, self.window.score())
        self.saved = self.steps
        for tracker in self.trackers:
            tracker.write(self.directory)

    def _restore(self) -> None:
        if not self.checkpoints.steps():
            self.display.say("no checkpoint had been written yet: starting from the beginning")
            return
        restored = self.checkpoints.restore(self.state)
        for name in restored.damaged:
            self.display.say(f"skipped a damaged checkpoint: {name}; it is kept as damaged_{name.split()[0]}")
        self.state, meta = restored.state, restored.meta
        self.checkpoints.set_aside(after=meta["step"])
        self.steps = self.progress.steps = self.saved = meta["step"]
        self.seconds_before, self.solved_at = meta["seconds"], meta["solved_at"]
        self.logged, self.lines = meta["logged"], meta["lines"]
        for tracker in self.trackers:
            if tracker.name in meta["trackers"]:
                tracker.load_meta(meta["trackers"][tracker.name])
        if not self.episodes_go_on:
            self.window.begin_anew()
        self.pending = [
            {name: np.asarray(value, np.float32) for name, value in metrics.items()} for metrics in meta["pending"]
        ]
        self.display.say(f"continuing from step {self.steps:,}")
        if lost := self.lines - len(lines_until(self.directory / PLAIN, self.logged)):
            self.display.say(f"{lost} of {self.lines} lines of {PLAIN} until step {self.logged:,} are lost")

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
