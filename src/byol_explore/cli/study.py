"""`byol-explore study`: many runs from one file."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console
from rich.table import Table

from byol_explore.cli.parsing import parse
from byol_explore.errors import UserError
from byol_explore.extras import needed_by
from byol_explore.interrupts import Interrupts
from byol_explore.report.words import printable
from byol_explore.study.file import Study, read_study, shipped_studies
from byol_explore.study.plan import PlannedRun, plan_runs, shell_line

if TYPE_CHECKING:
    from byol_explore.study.processes import Launcher

DESCRIPTION = """Run all runs of a study that are missing: several methods, tasks and seeds from one file. For example:

  byol-explore study --list                               the studies that come with the package
  byol-explore study laptop --parallel 2                  into studies/laptop; the same again continues it
  byol-explore study laptop --only rnd --seeds 1          a part of it
  byol-explore study laptop --dry-run                     what would be run
  byol-explore study mine.toml --dir studies/mine         one of your own
  byol-explore study laptop --launcher ray --address 10.0.0.1:6379 --cpus 2 --parallel 8      on a Ray cluster
"""


@dataclass(frozen=True)
class StudyCommand:
    """Run all runs of a study that are missing."""

    study: tyro.conf.Positional[str] = ""
    """The name of a study that comes with the package, or the path of a TOML file."""
    dir: Path | None = None
    """Where the study is kept; default studies/<name>. Runs that are done are not run again."""
    parallel: int = 1
    """Runs at a time, each in a process with its share of the CPU cores."""
    launcher: Literal["local", "ray"] = "local"
    """Where they run: in processes on this machine, or wherever a Ray cluster has room for them (extra: ray), if all
    of its hosts see the study's directory."""
    address: str = ""
    """host:port of the Ray cluster; without one, Ray is started on this machine and ended with the study."""
    cpus: float = 1
    """With Ray, CPU cores that each run takes."""
    gpus: float = 0
    """With Ray, GPUs that each run takes."""
    seeds: int | None = None
    """This many seeds, 0, 1, ..., instead of those of the study; variants with seeds of their own have no others."""
    retries: int = 0
    """How many times more a run is tried that fails, after all others have had their turn."""
    only: str = ""
    """Only runs with this text in their names, which look like rooms-6/rnd-seed0."""
    list: bool = False
    """Show the studies that come with the package."""
    dry_run: bool = False
    """Print the commands that would be run."""


def run(arguments: Sequence[str]) -> int:
    command: StudyCommand = parse("study", StudyCommand, arguments, description=DESCRIPTION)
    if command.list:
        _print_shipped()
        return 0
    if not command.study:
        raise UserError(f"name a study: {', '.join(shipped_studies())}, or the path of a TOML file")
    study = read_study(command.study)
    directory = command.dir or Path("studies") / study.name
    return _run_missing(command, study, directory)


def _run_missing(command: StudyCommand, study: Study, directory: Path) -> int:
    from byol_explore.study.display import make_study_display
    from byol_explore.study.runner import check_study_dir, how_it_ended, run_study
    from byol_explore.study.state import look

    launch, runs = _launcher(command), plan_runs(study, seeds=command.seeds, only=command.only)
    check_study_dir(directory, study)
    missing = [run for run in runs if look(run, directory).state != "done"]
    complete = f"complete: {len(runs)} of {len(runs)} runs are done; see {printable(directory)}"
    if not missing:
        print(complete)
        return 0
    _check(study, missing)
    if command.dry_run:
        for run in missing:
            print(printable(shell_line(run.train_arguments(directory))))
        return 0
    where = printable(directory)
    print(f"{study.name}: {len(missing)} of {len(runs)} runs are missing; {command.parallel} at a time in {where}")
    try:
        states = run_study(
            study, directory, parallel=command.parallel, seeds=command.seeds, only=command.only,
            retries=command.retries, display=make_study_display(study.name), launch=launch,
        )  # fmt: skip
    except (Interrupts.Stopped, KeyboardInterrupt):
        print(f"stopped; continue with: {_continuing(command, directory)}")
        raise
    failed = {name: state for name, state in states.items() if state.state == "failed"}
    for name, state in failed.items():
        print(f"failed: {name} ({how_it_ended(state.exit_code)}): {state.message}")
    if failed:
        print(f"{len(failed)} of {len(runs)} runs failed; try them again with: {_continuing(command, directory)}")
        return 1
    print(complete)
    return 0


def _launcher(command: StudyCommand) -> Callable[[int], "Launcher"]:
    """Where the runs go on."""
    from byol_explore.study.processes import LocalProcesses, check_parallel, check_resources

    check_parallel(command.parallel)
    if command.launcher == "local":
        for name in ("address", "cpus", "gpus"):
            if (value := getattr(command, name)) != getattr(StudyCommand, name):
                shown = repr(value) if name == "address" else f"{value:g}"
                raise UserError(f"--{name} is {shown}: only --launcher ray has one")
        return LocalProcesses
    check_resources(command.cpus, command.gpus)
    with needed_by("--launcher ray"):
        from byol_explore.study.ray_tasks import RayTasks
    return partial(RayTasks, address=command.address, cpus=command.cpus, gpus=command.gpus)


def _check(study: Study, runs: Sequence[PlannedRun]) -> None:
    """What only the environments know; this process leaves accelerators to the runs."""
    import jax

    from byol_explore.study.plan import check_tasks

    jax.config.update("jax_platforms", "cpu")
    check_tasks(study, runs)


def _continuing(command: StudyCommand, directory: Path) -> str:
    """The command that goes on where this one stopped."""
    words = ["byol-explore", "study", command.study, "--dir", str(directory), "--parallel", str(command.parallel)]
    words += ["--retries", str(command.retries)] if command.retries else []
    if command.launcher == "ray":
        words += ["--launcher", "ray", "--cpus", f"{command.cpus:g}", "--gpus", f"{command.gpus:g}"]
        words += ["--address", command.address] if command.address else []
    words += ["--seeds", str(command.seeds)] if command.seeds is not None else []
    return printable(shlex.join([*words, *(["--only", command.only] if command.only else [])]))


def _print_shipped() -> None:
    table = Table(title="studies", title_justify="left")
    table.add_column("name")
    table.add_column("what it is")
    table.add_column("needs")
    for name, study in shipped_studies().items():
        table.add_row(name, study.description, study.needs)
    Console().print(table)
