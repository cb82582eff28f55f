"""train(): lock the run directory, check it, add the default callbacks, lead or follow."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byol_explore.config.config import Config
from byol_explore.config.presets import validate_config
from byol_explore.envs.interface import AnyEnvironment, HostEnvironment, list_tasks
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.evaluation.rollouts import evaluation_envs, success_rules
from byol_explore.runtime.distributed import ProcessGroup, join_process_group
from byol_explore.runtime.leader import Follower, agree_on_config, dismiss_followers
from byol_explore.runtime.make import learner_devices, make_runtime, make_training_envs, resolve_devices
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.run_directory import (
    FAILURE,
    check_movable,
    check_run_dir,
    default_run_dir,
    load_config,
    save_traceback,
)
from byol_explore.training.callbacks import ActorFaults, Callback, EvaluationCallback, RewardActivity
from byol_explore.training.coverage import RoomCoverage, VisitMaps
from byol_explore.training.episode_window import EpisodeWindow
from byol_explore.training.loop import RunSummary, TrainingLoop
from byol_explore.training.output import check_extras, make_display
from byol_explore.utils.files import DirectoryLock
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.packages import enable_compilation_cache


def train(
    config: Config, run_dir: Path | str | None = None, *, resume: bool = False, force: bool = False,
    quiet: bool = False, accept_config: bool = False, callbacks: Sequence[Callback] = (),
) -> RunSummary:  # fmt: skip
    """Train for `config.steps` environment steps; config, metrics, checkpoints and summary go to the run directory.

    Ctrl-C, SIGTERM, a closed terminal and a failed environment all save a checkpoint before the run ends. With several
    processes (`config.distributed`) each calls `train` with the same configuration. Process 0 alone writes the run
    directory and calls the callbacks.

    Args:
      config: the settings; invalid ones raise UserError.
      run_dir: the run directory; None names it runs/<environment>/<method>-seed<seed>.
      resume: continue from the newest intact checkpoint, with the results of a run that was never interrupted.
        Environments outside jit start new episodes.
      force: move a run that is in `run_dir` to <run_dir>.old-<time> once the new one can begin.
      quiet: print no progress.
      accept_config: resume although config.json was changed or damaged since training wrote it.
      callbacks: called after every rollout and dispatch; they may add metrics, save state and stop the run.

    Returns:
      RunSummary with the run directory and the contents of summary.json, in every process.
    """
    if not (resume and config.distributed.process_id > 0):  # else the settings are those of process 0's run
        config = validate_config(config)
    if accept_config and not resume:
        raise UserError("accept_config needs resume: it accepts the changed configuration of the run that is there")
    if force and resume:
        raise UserError("resume continues the run that is there and force replaces it: choose one of them")
    with join_process_group(config.distributed) as processes:
        config = resolve_devices(agree_on_config(processes, config, resume=resume), resume=resume)
        directory = Path(run_dir) if run_dir is not None else default_run_dir(config)
        if processes.index > 0:
            return RunSummary(directory, _follow(config, processes))
        with dismiss_followers(processes) as outcome:
            summary = _lead(
                config, directory, processes, resume=resume, force=force, quiet=quiet, accept_config=accept_config,
                callbacks=callbacks,
            )  # fmt: skip
            outcome["summary"] = summary.data
        return summary


def _follow(config: Config, processes: ProcessGroup) -> dict[str, Any]:
    """Follow process 0, once it has checked the run directory. Returns the data of the run's summary."""
    processes.all_gather_objects(None)
    enable_compilation_cache()
    runtime = make_runtime(config, make_training_envs(config), processes)
    end = Follower(config, runtime, processes).run()
    if end["exit_code"]:
        raise SignalGuard.StoppedBySignal(end["exit_code"] - 128)
    return end["summary"]


def _lead(
    config: Config, directory: Path, processes: ProcessGroup, *, resume: bool, force: bool, quiet: bool,
    accept_config: bool, callbacks: Sequence[Callback],
) -> RunSummary:  # fmt: skip
    """Lock and check the run directory, then train in it."""
    check_extras(config)
    with DirectoryLock(directory):  # before the checks, so that no second run starts between them and the first file
        replace = force and any(directory.iterdir())
        if replace:
            check_movable(directory, config)
        else:
            check_run_dir(directory, config, resume=resume, accept_changes=accept_config)
            _check_steps(directory, config, accept_changes=accept_config)
        processes.all_gather_objects(None)  # followers wait for this in _follow: a refused run starts in no process
        enable_compilation_cache()
        try:
            return _train(config, directory, processes, resume, replace, quiet, callbacks)
        except EnvironmentFailure as failure:
            raise save_traceback(failure, directory) from failure


def _check_steps(directory: Path, config: Config, *, accept_changes: bool) -> None:
    """Raise UserError if the run already has more steps than `config.steps`, before any file is changed."""
    done = max(Checkpoints(directory / "checkpoints").steps(), default=0)
    if done > config.total_steps and config.steps < load_config(directory, accept_changes=accept_changes).steps:
        raise UserError(
            f"steps is {config.steps:,}, but {directory} has {done:,} already: leave it out, or ask for more"
        )


def _train(
    config: Config, directory: Path, processes: ProcessGroup, resume: bool, replace: bool, quiet: bool,
    callbacks: Sequence[Callback],
) -> RunSummary:  # fmt: skip
    envs = make_training_envs(config)
    with (
        contextlib.closing(make_display(quiet=quiet)) as display,
        contextlib.closing(make_runtime(config, envs, processes)) as runtime,
    ):
        if (count := len(learner_devices(config))) != (began := config.runtime.num_devices):
            devices = f"{count} device{'s' if count > 1 else ''}"
            display.message(f"on {devices} now, after {began}: results are equal to rounding")
        loop = TrainingLoop(
            config, runtime, directory, display, make_episode_window(config, envs), resume=resume, replace=replace,
            restores_envs=not isinstance(envs[0], HostEnvironment),  # whose state no checkpoint can hold
            callbacks=[*default_callbacks(config, envs), *callbacks],
        )  # fmt: skip
        (directory / FAILURE).unlink(missing_ok=True)
        return loop.run()


def make_episode_window(config: Config, envs: Sequence[AnyEnvironment]) -> EpisodeWindow:
    """Return an empty window with the names, success rules, step limits and stages of all tasks."""
    tasks = list_tasks(config.env_ids, envs)
    specs = [task.spec for task in tasks]
    return EpisodeWindow(
        [task.name for task in tasks], config.log.episode_window, success_rules(specs, config.success_threshold),
        [spec.max_steps for spec in specs], config.runtime.num_envs, [task.stages for task in tasks],
    )  # fmt: skip


def default_callbacks(config: Config, envs: Sequence[AnyEnvironment]) -> list[Callback]:
    """Return the callbacks that every run has beside its episode window."""
    tasks = list_tasks(config.env_ids, envs)
    maps = VisitMaps([task.name for task in tasks], [task.env for task in tasks])
    rooms = [RoomCoverage(envs[0].spec)] if len(envs) == 1 else []
    return [RewardActivity(config), maps, ActorFaults(), *rooms, EvaluationCallback(config, evaluation_envs(envs))]
