"""`byol-explore study`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from byol_explore.cli.parsing import parse, print_table
from byol_explore.errors import UserError
from byol_explore.study.file import Study, builtin_studies, read_study
from byol_explore.study.plan import check_environments, command_line
from byol_explore.utils.formatting import escape_unprintable
from byol_explore.utils.interrupts import SignalGuard
from byol_explore.utils.packages import require_extra

if TYPE_CHECKING:
    from byol_explore.study.launchers import Launcher
    from byol_explore.study.progress import RunState


DESCRIPTION = """Run all runs of a study that are missing: several methods, tasks and seeds from one file. For example:

  byol-explore study --list                               the studies that come with the package
  byol-explore study laptop --parallel 2                  into studies/laptop; the same again continues it
  byol-explore study laptop --filter rnd --seeds 1        a part of it
  byol-explore study laptop --dry-run                     what would be run
  byol-explore study mine.toml --study-dir studies/mine   one of your own
  byol-explore study methods --parallel 2                 chooses settings by trials: search.csv, chosen.toml
  byol-explore study laptop --launcher ray --address 10.0.0.1:6379 --cpus 2 --parallel 8      on a Ray cluster
"""


@dataclass(frozen=True)
class StudyCommand:
    """Run all runs of a study that are missing."""

    study: tyro.conf.Positional[str] = ""
    """The name of a study that comes with the package, or the path of a TOML file."""
    study_dir: Path | None = None
    """Where the study is kept; default studies/<name>. Runs that are done are not run again."""
    parallel: int = 1
    """Runs at a time, each in a process with its share of the CPU cores."""
    launcher: Literal["local", "ray"] = "local"
    """Where they run: in processes on this machine, or on the hosts of a Ray cluster (extra: ray), which must all see
    the study's directory."""
    address: str = ""
    """host:port of the Ray cluster; without one, Ray is started on this machine and ended with the study."""
    cpus: float = 1
    """With Ray, CPU cores that each run takes."""
    gpus: float = 0
    """With Ray, GPUs that each run takes."""
    seeds: int | None = None
    """Number of seeds, 0, 1, ..., that replace the study's; variants with seeds of their own keep their first ones."""
    retries: int = 0
    """Number of times that a failed run is tried again, after all others."""
    filter: str = ""
    """Run only runs whose names, such as rooms-6/rnd-seed0, contain this text."""
    list: bool = False
    """Show the studies that come with the package."""
    dry_run: bool = False
    """Print the commands that would be run."""


def run_study_command(arguments: Sequence[str]) -> int:
    command: StudyCommand = parse("study", StudyCommand, arguments, description=DESCRIPTION)
    if command.list:
        rows = [(name, study.description, study.needs) for name, study in builtin_studies().items()]
        print_table("studies", ("name", "what it is", "needs"), rows)
        return 0
    if not command.study:
        raise UserError(f"name a study: {', '.join(builtin_studies())}, or the path of a TOML file")
    study = read_study(command.study)
    directory = command.study_dir or Path("studies") / study.name
    return _run_missing(command, study, directory)


def _run_missing(command: StudyCommand, study: Study, directory: Path) -> int:
    from byol_explore.study.choice import diverged_runs, write_search_results
    from byol_explore.study.progress import read_run_state
    from byol_explore.study.runner import check_study_dir, plan_missing, run_study
    from byol_explore.training.output import make_display

    launch, runs = _launcher(command), plan_missing(study, directory, seeds=command.seeds, only=command.filter)
    check_study_dir(directory, study)
    diverged = diverged_runs(directory)
    missing = [run for run in runs if run.name not in diverged and read_run_state(run, directory).state != "done"]
    if not missing:
        write_search_results(study, directory)  # the process may have ended before it wrote them
        print(_complete_message(len(runs), directory))
        return 0
    import jax

    jax.config.update("jax_platforms", "cpu")  # this process leaves accelerators to the runs
    check_environments(study, missing)
    if command.dry_run:
        for run in missing:
            print(escape_unprintable(command_line(run.train_arguments(directory))))
        if study.search is not None:
            seeds = ", ".join(map(str, study.search.report_seeds))
            print(f"# when all trials of a variant have ended: its chosen settings on seeds {seeds}")
        return 0
    place = escape_unprintable(directory)
    print(f"{study.name}: {len(missing)} of {len(runs)} runs are missing; {command.parallel} at a time in {place}")
    try:
        states = run_study(
            study, directory, parallel=command.parallel, seeds=command.seeds, only=command.filter,
            retries=command.retries, display=make_display(), launch=launch,
        )  # fmt: skip
    except (SignalGuard.StoppedBySignal, KeyboardInterrupt):
        print(f"stopped; continue with: {_continue_command(command, directory)}")
        raise
    return _report_end(command, states, directory)


def _report_end(command: StudyCommand, states: "dict[str, RunState]", directory: Path) -> int:
    """Print the runs that failed, or that all are done; return the exit code."""
    from byol_explore.study.choice import is_final_failure
    from byol_explore.study.runner import describe_exit

    failed = {name: state for name, state in states.items() if state.state == "failed"}
    for name in [name for name, state in failed.items() if is_final_failure(name, state.exit_code)]:
        print(f"diverged, which counts as unsolved: {name}: {failed.pop(name).message}")
    for name, state in failed.items():
        print(f"failed: {name} ({describe_exit(state.exit_code)}): {state.message}")
    if failed:
        print(
            f"{len(failed)} of {len(states)} runs failed; try them again with: {_continue_command(command, directory)}"
        )
        return 1
    print(_complete_message(len(states), directory))
    return 0


def _complete_message(runs: int, directory: Path) -> str:
    return f"complete: {runs} of {runs} runs are done; see {escape_unprintable(directory)}"


def _launcher(command: StudyCommand) -> Callable[[int], "Launcher"]:
    """Return what makes the launcher; raise a UserError for options that do not fit."""
    from byol_explore.study.launchers import LocalProcesses, check_parallel, check_resources

    check_parallel(command.parallel)
    if command.launcher == "local":
        for name in ("address", "cpus", "gpus"):
            if (value := getattr(command, name)) != getattr(StudyCommand, name):
                shown = repr(value) if name == "address" else f"{value:g}"
                raise UserError(f"--{name} is {shown}: only --launcher ray has one")
        return LocalProcesses
    check_resources(command.cpus, command.gpus)
    with require_extra("--launcher ray"):
        from byol_explore.study.ray_launcher import RayLauncher
    return partial(RayLauncher, address=command.address, cpus=command.cpus, gpus=command.gpus)


def _continue_command(command: StudyCommand, directory: Path) -> str:
    """Return the command that continues the study."""
    arguments = ["study", command.study, "--study-dir", str(directory), "--parallel", str(command.parallel)]
    for name in ("retries", "launcher", "cpus", "gpus", "address", "seeds", "filter"):
        value = getattr(command, name)
        if value != getattr(StudyCommand, name):
            arguments += [f"--{name}", str(value)]
    return escape_unprintable(command_line(arguments))
