"""`byol-explore evaluate`: episodes with a trained agent."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from byol_explore.cli.parsing import parse
from byol_explore.interrupts import leaving_at_once


@dataclass(frozen=True)
class EvaluateCommand:
    """Play episodes with a trained agent, greedily and by sampling, and report success and return."""

    run: tyro.conf.Positional[Path]
    """A run directory."""
    episodes: int | None = None
    """Episodes per task and per way of acting; by default 200, or as in the paper 10 for Atari and Gymnasium."""
    checkpoint: str = "last"
    """last, best, or the step of a checkpoint."""
    seed: int = 0
    """Of the episodes."""
    success_above: float | None = None
    """An episode with a return above this is a success; by default as in training."""
    rules: str | None = None
    """Where the environments have rules for evaluations. Of Atari games: paper (up to 30 no-ops, no sticky actions,
    108,000 frames) or training; by default as the run's setting `evaluation` says."""
    gif: Path | None = None
    """Also write a film of sampled episodes here."""
    json: bool = False
    """Print JSON instead of a table."""


def run(arguments: Sequence[str]) -> None:
    command = parse("evaluate", EvaluateCommand, arguments)
    with leaving_at_once():
        from byol_explore.playing.episodes import evaluate

    errors = Console(stderr=True)
    with errors.status("playing") as status:  # only on a terminal
        report = evaluate(
            command.run, episodes=command.episodes, checkpoint=command.checkpoint, seed=command.seed,
            success_above=command.success_above, rules=command.rules, gif=command.gif,
            progress=lambda what, ended: status.update(f"{what}: {ended} episodes ended"),
        )  # fmt: skip
    for name in report["damaged_checkpoints"]:
        print(f"skipped a damaged checkpoint: {name}", file=sys.stderr)
    if command.json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(_table(report))


def _table(report: dict[str, Any]) -> Table:
    """A row per task and way of acting."""
    table = Table(
        title=f"{report['run']} after {report['checkpoint_steps']:,} steps, {report['episodes']} episodes",
        caption=_rules(report["rules"]) if "rules" in report else None,
    )
    scored = any("human_normalized" in result for modes in report["tasks"].values() for result in modes.values())
    for column in ("task", "acting", "success (95%)", "return (95%)", "length", *(["human %"] if scored else [])):
        table.add_column(column)
    for task, modes in report["tasks"].items():
        for mode, result in modes.items():
            table.add_row(task, mode, _interval(result["success_rate"]), _interval(result["return"]),
                          f"{result['length_mean']:.1f}", *_percent(result.get("human_normalized")))  # fmt: skip
    return table


def _rules(rules: dict[str, Any]) -> str:
    """By which rules was played, as the environments call them."""
    shown = {name: f"{value:,}" if isinstance(value, int | float) else value for name, value in rules.items()}
    return "rules: " + ", ".join(f"{name} {value}" for name, value in shown.items())


def _interval(interval: dict[str, float] | None) -> str:
    if interval is None:
        return "not defined"
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _percent(value: float | None) -> list[str]:
    return [] if value is None else [f"{value:.1f}"]
