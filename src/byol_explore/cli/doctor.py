"""`byol-explore doctor`: is a run's curiosity healthy?"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from byol_explore.cli.parsing import parse

if TYPE_CHECKING:
    from byol_explore.doctor.findings import Finding

DESCRIPTION = """Say whether a run's curiosity is healthy, check by check, and what to do where it is not.

Looks at the run's metrics, and acts for one rollout with its newest checkpoint. Nothing is written.
The exit code is 1 when something is bad, else 0; 2 for a wrong argument. docs/doctor.md explains every check.
"""
COLORS = {"bad": "bold red", "warning": "yellow", "unknown": "cyan", "ok": "green", "not used": "dim"}


@dataclass(frozen=True)
class DoctorCommand:
    run: tyro.conf.Positional[Path]
    """A run directory."""
    json: bool = False
    """Print JSON instead of a table: a list of check, verdict, figure, detail and advice, the worst first."""


def run(arguments: Sequence[str]) -> int:
    command = parse("doctor", DoctorCommand, arguments, description=DESCRIPTION)
    from byol_explore.doctor.checks import examine
    from byol_explore.doctor.evidence import gather

    with Console(stderr=True).status("looking"):  # only on a terminal
        evidence = gather(command.run)
    for name in evidence.damaged:
        print(f"skipped a damaged checkpoint: {name}", file=sys.stderr)
    findings = examine(evidence)
    if command.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        steps = None if evidence.probe is None else evidence.probe.steps
        Console().print(_table(command.run, steps, findings))
        print(closing(findings))
    return int(any(finding.verdict == "bad" for finding in findings))


def _table(directory: Path, steps: int | None, findings: "list[Finding]") -> Table:
    """A row per check; what to do stands below what was seen."""
    title = str(directory) if steps is None else f"{directory} after {steps:,} steps"
    table = Table(title=escape(title))
    for column in ("check", "verdict", "figure", "what was seen, and what to do"):
        table.add_column(column, justify="right" if column == "figure" else "left")
    for item in findings:
        color, figure = COLORS[item.verdict], "" if item.figure is None else f"{item.figure:.3g}"
        text = escape(item.detail) + (f"\n[bold]{escape(item.advice)}[/]" if item.advice else "")
        table.add_row(item.check, f"[{color}]{item.verdict}[/]", figure, text)
    return table


def closing(findings: "list[Finding]") -> str:
    """The diagnosis in one sentence."""
    count = Counter(finding.verdict for finding in findings)
    names = {verdict: ", ".join(f.check for f in findings if f.verdict == verdict) for verdict in count}
    if count["bad"]:
        also = f"; look at {names['warning']} too" if count["warning"] else ""
        return f"Not healthy: {names['bad']}{also}."
    if count["warning"]:
        return f"Nothing is broken, but look at {names['warning']}."
    if not count["ok"]:
        return "Nothing could be checked yet."
    unsure = f", as far as can be seen; unknown: {names['unknown']}" if count["unknown"] else ""
    return f"Healthy{unsure}."
