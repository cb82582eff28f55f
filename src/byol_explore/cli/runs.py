"""`byol-explore evaluate`, `film` and `doctor`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from byol_explore.cli.parsing import parse
from byol_explore.errors import UserError
from byol_explore.utils.formatting import escape_unprintable, plural
from byol_explore.utils.interrupts import exit_on_sigint

if TYPE_CHECKING:
    from byol_explore.doctor.evidence import Finding

Row = tuple[str, str, dict[str, Any]]  # task, way of acting, results


@dataclass(frozen=True)
class EvaluateCommand:
    """Play episodes with a trained agent, by sampling as in training and greedily, and report success and return."""

    run: tyro.conf.Positional[Path]
    """A run directory."""
    episodes: int | None = None
    """Episodes per task and per way of acting; by default 200, or as in the paper 10 for Atari and Gymnasium."""
    checkpoint: str = "last"
    """last, best, or the step of a checkpoint."""
    seed: int = 0
    """Seed of the episodes."""
    success_threshold: float | None = None
    """An episode with a return above this is a success; by default as in training."""
    protocol: str | None = None
    """Evaluation protocol, if the environments have several. Atari games: paper (up to 30 no-ops, no sticky actions,
    108,000 frames) or training; by default as the run's setting `evaluation` says."""
    video: Path | None = None
    """Also write a film of sampled episodes here: a .gif, .webp or .mp4."""
    json: bool = False
    """Print JSON instead of a table."""


def run_evaluate(arguments: Sequence[str]) -> None:
    command = parse("evaluate", EvaluateCommand, arguments)
    with exit_on_sigint():
        from byol_explore.evaluation.trained_agent import evaluate

    errors = Console(stderr=True)
    with errors.status("playing") as status:  # only on a terminal
        report = evaluate(
            command.run, episodes=command.episodes, checkpoint=command.checkpoint, seed=command.seed,
            success_threshold=command.success_threshold, protocol=command.protocol, video=command.video,
            progress=lambda what, ended: status.update(f"{what}: {ended} episodes ended"),
        )  # fmt: skip
    for name in report["skipped_checkpoints"]:
        print(f"skipped a damaged checkpoint: {name}", file=sys.stderr)
    if command.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    steps, episodes = report["checkpoint_steps"], plural(report["episodes"], "episode")
    print(f"{escape_unprintable(report['run'])} after {steps:,} steps, {episodes}, means [95% intervals]")
    tasks = dict(report["tasks"])
    if "all_tasks" in report:
        tasks[f"all {len(tasks)} tasks"] = report["all_tasks"]
    rows = [(task, mode, result) for task, modes in tasks.items() for mode, result in modes.items()]
    Console().print(_results_table(rows))
    if any(result.get("stages") for _, _, result in rows):
        Console().print(_stages_table(rows))
    if "protocol" in report:
        settings = {name: f"{x:,}" if isinstance(x, int | float) else x for name, x in report["protocol"].items()}
        print("protocol: " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    if "video" in report:
        print(f"film: {escape_unprintable(report['video'])}")


def _results_table(rows: list[Row]) -> Table:
    """Format results in numbers short enough for a terminal of 80 columns."""
    is_scored = any("human_normalized" in result for _, _, result in rows)
    columns = ("acting", "success", "return", "length", *(["human %"] if is_scored else []))
    table = _empty_table([Column(name, no_wrap=True) for name in columns])
    for task, mode, result in rows:
        cells = [_interval(result["success_rate"]), _interval(result["return"]), _short(result["length_mean"])]
        if (score := result.get("human_normalized")) is not None:
            cells.append(f"{score:.1f}")
        table.add_row(Text(task), mode, *cells)
    return table


def _stages_table(rows: list[Row]) -> Table:
    """Format the shares of episodes that reached each stage, without stages that none reached."""
    table = _empty_table(["acting", "share of the episodes"], title="stages reached")
    for task, mode, result in rows:
        reached = [f"{stage} {share:.3f}" for stage, share in result.get("stages", {}).items() if share]
        table.add_row(Text(task), mode, Text(", ".join(reached) or "none"))
    return table


def _empty_table(columns: Sequence[str | Column], title: str | None = None) -> Table:
    return Table(
        Column("task", overflow="fold"), *columns, title=title, title_justify="left", title_style="",
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True,
    )  # fmt: skip


def _interval(interval: dict[str, float] | None) -> str:
    """Format mean and ends of an interval; None stands for a success that is not defined."""
    if interval is None:
        return "no-data"
    size = max(map(abs, interval.values()))
    mean, low, high = (_short(interval[name], size) for name in ("mean", "low", "high"))
    return f"{mean} \\[{low}, {high}]"  # a bare bracket would be markup


def _short(value: float, size: float | None = None) -> str:
    """Format a number with the decimals that give a number of this size three digits or more."""
    size = abs(value) if size is None else size
    return f"{value:,.{2 if size < 10 else 1 if size < 100 else 0}f}"


@dataclass(frozen=True)
class FilmCommand:
    """Film an episode of each task before and after training, with the intrinsic reward under the pictures.

    The films go to <run>/films, where `byol-explore report` finds them. Older films there are replaced.
    """

    run: tyro.conf.Positional[Path]
    """A run directory."""
    quiet: bool = False
    """Print nothing but errors."""


def run_film(arguments: Sequence[str]) -> None:
    command = parse("film", FilmCommand, arguments)
    with exit_on_sigint():
        from byol_explore.evaluation.films import film

    film(command.run, say=(lambda text: None) if command.quiet else print)


DESCRIPTION = """Check whether a run's curiosity is healthy, with advice where it is not; or describe this machine.

Reads the run's metrics, and acts for one rollout with its newest checkpoint. Nothing is written.
The exit code is 1 if a check fails, else 0; 2 for a wrong argument. docs/doctor.md explains every check.
"""
COLORS = {"fail": "bold red", "warn": "yellow", "no-data": "cyan", "pass": "green", "skipped": "dim"}


@dataclass(frozen=True)
class DoctorCommand:
    run: tyro.conf.Positional[Path | None] = None
    """A run directory."""
    system: bool = False
    """Instead of a run, describe this machine: versions, devices, cores, memory, extras, where can be written, and the
    speed of a matrix product and of the default agent. The exit code is 1 if there is a problem."""
    json: bool = False
    """Print JSON instead of a table: a list of check, verdict, value, detail and advice, the worst first."""


def run_doctor(arguments: Sequence[str]) -> int:
    command = parse("doctor", DoctorCommand, arguments, description=DESCRIPTION)
    if command.system != (command.run is None):
        raise UserError("doctor takes either a run directory or --system")
    if command.run is None:
        return _print_system(as_json=command.json)
    from byol_explore.doctor.diagnose import run_checks
    from byol_explore.doctor.evidence import collect_evidence

    with Console(stderr=True).status("checking"):  # only on a terminal
        evidence = collect_evidence(command.run)
    for name in evidence.damaged:
        print(f"skipped a damaged checkpoint: {name}", file=sys.stderr)
    if evidence.log_damage:
        print(f"{command.run}/{evidence.log_damage}", file=sys.stderr)
    findings = run_checks(evidence)
    if command.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        steps = None if evidence.probe is None else evidence.probe.steps
        Console().print(_findings_table(command.run, steps, findings))
        print(summary_line(findings))
    return int(any(finding.verdict == "fail" for finding in findings))


def _print_system(*, as_json: bool) -> int:
    """Print the facts about this machine as they are found. Returns the exit code."""
    from byol_explore.doctor.diagnose import describe_system

    facts = []
    for fact in describe_system():
        facts.append(fact)
        if not as_json:
            print(
                f"{fact.name:<17} {'PROBLEM: ' if fact.is_problem else ''}{escape_unprintable(fact.value)}", flush=True
            )
    if as_json:
        print(json.dumps([fact._asdict() for fact in facts], indent=2))
    return int(any(fact.is_problem for fact in facts))


def _findings_table(directory: Path, steps: int | None, findings: "list[Finding]") -> Table:
    """Format a row per check, with the advice below the observation."""
    title = str(directory) if steps is None else f"{directory} after {steps:,} steps"
    figure_column = Column("figure", justify="right")
    table = Table("check", "verdict", figure_column, "what was seen, and what to do", title=escape(title))
    for item in findings:
        color, figure = COLORS[item.verdict], "" if item.value is None else f"{item.value:.3g}"
        text = escape(item.detail) + (f"\n[bold]{escape(item.advice)}[/]" if item.advice else "")
        table.add_row(item.check, f"[{color}]{item.verdict}[/]", figure, text)
    return table


def summary_line(findings: "list[Finding]") -> str:
    """Summarise the findings in one sentence."""
    names = {verdict: ", ".join(f.check for f in findings if f.verdict == verdict) for verdict in COLORS}
    if names["fail"]:
        return f"Not healthy: {names['fail']}" + (f"; look at {names['warn']} too." if names["warn"] else ".")
    if names["warn"]:
        return f"Nothing is broken, but look at {names['warn']}."
    if not names["pass"]:
        return "Nothing could be checked yet."
    unknown = f", as far as can be seen; unknown: {names['no-data']}" if names["no-data"] else ""
    return f"Healthy{unknown}."
