"""Sections of the report that reproduce its runs: settings that differ, commands, a table of all runs."""

import shlex
from collections import defaultdict
from typing import Any

from byol_explore.config.config import Config, to_dict
from byol_explore.config.overrides import flatten, to_cli_args
from byol_explore.config.presets import ABLATIONS, PRESETS
from byol_explore.errors import UserError
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Cell, Section, Table, Text
from byol_explore.report.read_runs import read_study
from byol_explore.report.scores import none_if_nan
from byol_explore.utils.formatting import display_path, join_list

_FIRST = ("preset", "env", "method", "ablation", "regime", "seed")  # order of a command's first options
_DEFAULTS = flatten(to_dict(Config()))


def reproduce(runs: Runs) -> Section:
    """Show the commands that make the runs, and a table of all runs."""
    studies = {root: study for root in runs.roots if (study := read_study(root)) is not None}
    paragraphs = []
    for root, study in studies.items():
        shown = shlex.quote(display_path(root, root))
        command = f"byol-explore study {shown}/study.toml --study-dir {shown}"
        paragraphs += [f"Run or continue the study {study.name!r}:", f"    {command}"]
    commands = _train_commands([run for run in runs.runs if run.root not in studies])
    if commands:
        paragraphs += ["Train every variant, once per seed:", *(f"    {command}" for command in commands)]
    paragraphs.append(
        "A run directory holds config.json (all settings), metrics.jsonl (one line per log step; metrics.jsonl.gz in a "
        "published copy) and summary.json. This report is made from these files; its figures and tables are in the "
        "folders figures and tables beside it."
    )
    columns = ["variant", "tasks", "seed", "steps", "hours", "state", "directory"]
    table = Table("runs", "All runs", columns, [_run_row(run) for run in runs.runs])
    return Section("reproduce", "Reproduce", [Text(paragraphs), table])


def _run_row(run: Run) -> list[Cell]:
    where, hours = display_path(run.directory, run.root), none_if_nan(run.seconds / 3600)
    return [run.variant, run.task_text, run.seed, run.last_step, hours, run.state, where]


def _train_commands(runs: list[Run]) -> list[str]:
    """Return a command per configuration, with all its seeds."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        seeds[train_command(run.config)].append(str(run.seed))
    return [
        f"for seed in {' '.join(group)}; do {command} --seed $seed; done"
        if len(group) > 1
        else f"{command} --seed {group[0]}"
        for command, group in seeds.items()
    ]


def train_command(config: dict[str, Any]) -> str:
    """Return the command with the options that differ from the preset, without --seed."""
    start = _start_settings(config)
    names = dict.fromkeys([*_FIRST, *config])
    changes = {name: config[name] for name in names if name in config and config[name] != start.get(name)}
    changes.pop("seed", None)
    return shlex.join(["byol-explore", "train", *to_cli_args(changes)])


def _start_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that `train` starts from, given the preset and the ablation.

    A preset or ablation from outside this package is not imported: the command then names every setting.
    """
    preset, ablation = (config.get(name, _DEFAULTS[name]) for name in ("preset", "ablation"))
    defaults = {name: _DEFAULTS[name] for name in ("preset", "method", "ablation")}
    if preset not in PRESETS.names() or ablation not in ABLATIONS:
        return defaults
    try:
        base = ABLATIONS[ablation].apply(PRESETS.get(preset).config)
    except UserError:  # a preset of an installed package that cannot be imported
        return defaults
    return {**flatten(to_dict(base)), **defaults}


_IGNORED = ("seed", "env")  # variants are compared over seeds and tasks
_MISSING = "(not there)"  # a setting of another version


def settings_section(runs: Runs) -> Section:
    """Show the settings that differ between runs."""
    rows: list[list[Cell]] = []
    mixed = dict[str, None]()  # variants whose own runs differ
    for name in dict.fromkeys(name for run in runs.runs for name in run.config):
        if name not in _IGNORED and not name.startswith("log."):
            values = {variant: _values(runs.select(variant), name) for variant in runs.variants}
            if len({value for group in values.values() for value in group}) > 1:
                rows.append([name, *(" or ".join(group) for group in values.values())])
                mixed |= dict.fromkeys(variant for variant, group in values.items() if len(group) > 1)
    if not rows:
        same = "All runs have the same settings, except for seeds, tasks and logging."
        return Section("differences", "What differs", [Text([same])])
    note = "Without seeds, tasks and logging (log.*). All other settings are the same in all runs."
    blocks: list[Block] = [Table("settings", "Settings that differ", ["setting", *runs.variants], rows, note)]
    if mixed:
        variants = join_list([variant for variant in runs.variants if variant in mixed])
        blocks.append(Text([f"Variants with different settings among their runs: {variants}."]))
    return Section("differences", "What differs", blocks)


def _values(runs: list[Run], name: str) -> list[str]:
    """Return the distinct values of a setting, in the order of the runs."""
    return list(dict.fromkeys(format_setting(run.config.get(name, _MISSING)) for run in runs))


def format_setting(value: Any) -> str:
    """Format a value as on the command line."""
    return " ".join(map(format_setting, value)) if isinstance(value, tuple) else str(value)
