"""`byol-explore evaluate`: episodes with a trained agent."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from byol_explore.cli.parsing import parse
from byol_explore.interrupts import leaving_at_once
from byol_explore.report.words import count, printable


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
    """Of the episodes."""
    success_above: float | None = None
    """An episode with a return above this is a success; by default as in training."""
    rules: str | None = None
    """Where the environments have rules for evaluations. Of Atari games: paper (up to 30 no-ops, no sticky actions,
    108,000 frames) or training; by default as the run's setting `evaluation` says."""
    gif: Path | None = None
    """Also write a film of sampled episodes here: a .gif, .webp or .mp4."""
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
        _print(report)


def _print(report: dict[str, Any]) -> None:
    steps, episodes = report["checkpoint_steps"], count(report["episodes"], "episode")
    print(f"{printable(report['run'])} after {steps:,} steps, {episodes}, means [95% intervals]")
    Console().print(_table(_rows(report)))
    if stages := _stages(report):
        Console().print(stages)
    if "rules" in report:
        print(_rules(report["rules"]))
    if "gif" in report:
        print(f"film: {printable(report['gif'])}")


def _rows(report: dict[str, Any]) -> dict[str, Any]:
    """All tasks by name, and then all of them together if there are several."""
    tasks = report["tasks"]
    return {**tasks, f"all {len(tasks)} tasks": report["over_tasks"]} if "over_tasks" in report else tasks


def _table(tasks: dict[str, Any]) -> Table:
    """A row per task and way of acting; numbers are short enough for a terminal of 80 columns."""
    table = _empty_table()
    scored = any("human_normalized" in result for modes in tasks.values() for result in modes.values())
    for column in ("acting", "success", "return", "length", *(["human %"] if scored else [])):
        table.add_column(column, no_wrap=True)
    for task, modes in tasks.items():
        for mode, result in modes.items():
            table.add_row(Text(task), mode, _interval(result["success_rate"]), _interval(result["return"]),
                          _short(result["length_mean"]), *_percent(result.get("human_normalized")))  # fmt: skip
    return table


def _stages(report: dict[str, Any]) -> Table | None:
    """The share of episodes that reached each stage, but for those that none did; nothing where no task has stages."""
    results = [(task, mode, result) for task, modes in _rows(report).items() for mode, result in modes.items()]
    if not any(result.get("stages") for _, _, result in results):
        return None
    table = _empty_table("stages reached")
    for column in ("acting", "share of the episodes"):
        table.add_column(column)
    for task, mode, result in results:
        reached = [f"{stage} {share:.3f}" for stage, share in result.get("stages", {}).items() if share]
        table.add_row(Text(task), mode, Text(", ".join(reached) or "none"))
    return table


def _empty_table(title: str = "") -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, title=title or None)
    table.title_justify, table.title_style = "left", ""
    table.add_column("task", overflow="fold")
    return table


def _rules(rules: dict[str, Any]) -> str:
    """By which rules was played, as the environments call them."""
    shown = {name: f"{value:,}" if isinstance(value, int | float) else value for name, value in rules.items()}
    return "rules: " + ", ".join(f"{name} {value}" for name, value in shown.items())


def _interval(interval: dict[str, float] | None) -> str:
    """Mean and ends of an interval, in brackets that are no markup; where no success is defined it is unknown."""
    if interval is None:
        return "unknown"
    size = max(map(abs, interval.values()))
    mean, low, high = (_short(interval[name], size) for name in ("mean", "low", "high"))
    return f"{mean} \\[{low}, {high}]"


def _short(value: float, size: float | None = None) -> str:
    """Three digits or more, with as many decimals as a number of this size needs for that."""
    size = abs(value) if size is None else size
    return f"{value:,.{2 if size < 10 else 1 if size < 100 else 0}f}"


def _percent(value: float | None) -> list[str]:
    return [] if value is None else [f"{value:.1f}"]
