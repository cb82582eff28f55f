"""Training: a run directory from a configuration. `train(config)` is all that the command line does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.interrupts import Interrupts
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.console import make_display
from byol_explore.run.directory import check_run_dir, default_run_dir, load_config
from byol_explore.run.failures import FAILURE, with_traceback
from byol_explore.run.locking import DirectoryLock
from byol_explore.run.loop import Summary, TrainingLoop
from byol_explore.run.metrics import check_extras
from byol_explore.run.replacing import check_replaceable
from byol_explore.run.trackers import Tracker
from byol_explore.runtime.choosing import learning_devices, make_runtime, resolve_devices, training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.runtime.leading import Follower, dismissing, introduce
from byol_explore.runtime.processes import Processes, joined
from byol_explore.settings.config import Config
from byol_explore.settings.presets import checked


def train(
    config: Config, run_dir: Path | str | None = None, *, resume: bool = False, force: bool = False,
    quiet: bool = False, callbacks: Sequence[Tracker] = (),
) -> Summary:  # fmt: skip
    """Train to `config.steps` environment steps and leave everything in the run directory.

    With `resume` a run continues from its newest whole checkpoint, bit for bit as if it had never stopped;
    environments outside jit start new episodes. With `force` a run that is there already is removed as soon as the
    new one can begin.
    Ctrl-C, SIGTERM, the end of a terminal and an environment that fails save a checkpoint first. Callbacks are
    trackers (`trackers.py`): they hear of every rollout and dispatch, may add to the log and to checkpoints, and may
    end the run.
    Of several processes (`config.distributed`) each calls this with the same configuration, and the first alone has
    the run directory and hears callbacks; all of them return its summary.
    """
    config = checked(config)
    if force and resume:
        raise UserError("resume continues the run that is there and force removes it: choose one of them")
    with joined(config.distributed) as processes:
        config = resolve_devices(introduce(processes, config, resume=resume), resume=resume)
        directory = Path(run_dir) if run_dir is not None else default_run_dir(config)
        if processes.index > 0:
            return Summary(directory, _follow(config, processes))
        with dismissing(processes) as outcome:
            summary = _lead(config, directory, processes, resume=resume, force=force, quiet=quiet, callbacks=callbacks)
            outcome["summary"] = summary.data
        return summary


def _follow(config: Config, processes: Processes) -> dict[str, Any]:
    """Learn as process 0 says, once it has found that the run can begin; the summary of the run."""
    processes.everybody(None)
    enable_compilation_cache()
    runtime = make_runtime(config, training_envs(config), processes)
    end = Follower(config, runtime, processes).go()
    if end["exit_code"]:
        raise Interrupts.Stopped(end["exit_code"] - 128)
    return end["summary"]


def _lead(
    config: Config, directory: Path, processes: Processes, *, resume: bool, force: bool, quiet: bool,
    callbacks: Sequence[Tracker],
) -> Summary:  # fmt: skip
    """Train in the directory, which is nobody else's."""
    check_extras(config)
    with DirectoryLock(directory):  # before it is looked at, so that nobody else begins there in between
        replace = force and any(directory.iterdir())
        if replace:
            check_replaceable(directory, config)
        else:
            check_run_dir(directory, config, resume=resume)
            _check_steps(directory, config)
        processes.everybody(None)
        enable_compilation_cache()
        try:
            return _train(config, directory, processes, resume, replace, quiet, callbacks)
        except EnvironmentFailure as failure:
            raise with_traceback(failure, directory) from failure


def _check_steps(directory: Path, config: Config) -> None:
    """A UserError if a run has more steps than it is now to have: it cannot become shorter, and nothing is changed."""
    done = max(Checkpoints(directory / "checkpoints").steps(), default=0)
    if done > config.total_steps and config.steps < load_config(directory).steps:
        raise UserError(
            f"steps is {config.steps:,}, but {directory} has {done:,} already: leave it out, or ask for more"
        )


def _train(
    config: Config, directory: Path, processes: Processes, resume: bool, replace: bool, quiet: bool,
    callbacks: Sequence[Tracker],
) -> Summary:  # fmt: skip
    envs = training_envs(config)
    display, runtime = make_display(config.total_steps, quiet=quiet), make_runtime(config, envs, processes)
    try:
        if (count := len(learning_devices(config, envs))) != (began := config.runtime.devices):
            display.say(
                f"on {count} device{'s' if count > 1 else ''} now, after {began}: results are equal to rounding"
            )
        loop = TrainingLoop(
            config, envs, runtime, directory, display, resume=resume, replace=replace, callbacks=callbacks
        )
        (directory / FAILURE).unlink(missing_ok=True)
        return loop.go()
    finally:
        runtime.close()
        display.close()
