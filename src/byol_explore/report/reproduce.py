"""How to get the same runs again, and where their files are."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from byol_explore.errors import UserError
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Cell, Section, Table, Text
from byol_explore.report.series import plain
from byol_explore.report.study_file import study_facts
from byol_explore.report.words import shown_path
from byol_explore.settings.config import Config, flatten, to_dict
from byol_explore.settings.presets import ABLATIONS, PRESETS
from byol_explore.settings.words import options

_NAMED = ("preset", "env", "method", "ablation", "regime", "seed")  # options that come first
_DEFAULTS = flatten(to_dict(Config()))


def reproduce(runs: Runs) -> Section:
    """Commands and a table of all runs."""
    studies = {root: facts for root in runs.roots if (facts := study_facts(root)) is not None}
    paragraphs = []
    for root, facts in studies.items():
        paragraphs += [f"The study {facts.name!r} is run, or gone on with, by", f"    {_study_command(root)}"]
    commands = _train_commands([run for run in runs.runs if run.root not in studies])
    if commands:
        paragraphs += ["Every variant by itself, once for each seed:", *(f"    {command}" for command in commands)]
    paragraphs.append(
        "A run directory holds config.json (all settings), metrics.jsonl (a line per log step, from which everything "
        "here is made; metrics.jsonl.gz in a thin copy) and summary.json; the tables and figures of this report are in "
        "the folders tables and figures beside it."
    )
    return Section("reproduce", "Reproduce", [Text(paragraphs), _run_table(runs)])


def _study_command(root: Path) -> str:
    shown = shlex.quote(shown_path(root, root))
    return f"byol-explore study {shown}/study.toml --dir {shown}"


def _train_commands(runs: list[Run]) -> list[str]:
    """One for each variant and its tasks, with all its seeds."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        seeds.setdefault(train_command(run.config), []).append(str(run.seed))
    return [
        f"for seed in {' '.join(group)}; do {command} --seed $seed; done"
        if len(group) > 1
        else f"{command} --seed {group[0]}"
        for command, group in seeds.items()
    ]


def train_command(config: dict[str, Any]) -> str:
    """With the options that differ from the preset; the seed is left to the caller."""
    usual = _usual(config)
    words = ["byol-explore", "train"]
    for name in [*_NAMED, *(name for name in config if name not in _NAMED)]:
        value = config.get(name)
        if name == "seed" or name not in config or value == usual.get(name):
            continue
        if name != "runtime.devices" or value != 1:  # one device is what a machine without accelerators takes
            words += options({name: value})
    return shlex.join(words)


def _usual(config: dict[str, Any]) -> dict[str, Any]:
    """What `train` starts from, given preset and ablation; these and the method are named where they are not its own.

    Nothing that a run names is imported: of a preset that is none of this package's, every setting is named.
    """
    preset, ablation = (config.get(name, _DEFAULTS[name]) for name in ("preset", "ablation"))
    named = {name: _DEFAULTS[name] for name in ("preset", "method", "ablation")}
    if preset not in PRESETS.names() or ablation not in ABLATIONS:
        return named
    try:
        base = ABLATIONS[ablation].apply(PRESETS.get(preset).config)
    except UserError:  # of an installed package that cannot be imported
        return named
    return {**flatten(to_dict(base)), **named}


def _run_table(runs: Runs) -> Table:
    columns = ["variant", "tasks", "seed", "steps", "hours", "state", "directory"]
    rows = [_cells(run) for run in runs.runs]
    return Table("runs", "All runs", columns, rows)


def _cells(run: Run) -> list[Cell]:
    where = shown_path(run.directory, run.root)
    return [run.variant, run.task_words, run.seed, run.last_step, _hours(run), _state(run), where]


def _hours(run: Run) -> Cell:
    elapsed = run.log.columns["elapsed"]
    return plain(np.nanmax(elapsed) / 3600) if np.isfinite(elapsed).any() else None


def _state(run: Run) -> str:
    if not len(run.steps):
        return "no log line yet"
    if run.stopped_at_success:
        return "stopped at success"
    if run.is_finished:
        return "done"
    return "interrupted" if run.summary else "not finished"
