"""What differs between the compared runs: settings, and nothing else."""

from typing import Any

from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Cell, Section, Table, Text
from byol_explore.report.words import listed

IGNORED = ("seed", "env")  # seeds and tasks are what a comparison averages over
_MISSING = "(not there)"  # in runs of another version


def differences(runs: Runs) -> Section:
    """A table of settings that are not the same in all variants."""
    rows = _rows(runs)
    if not rows:
        same = "All runs have the same settings, but for seeds, tasks and logging."
        return Section("differences", "What differs", [Text([same])])
    note = "Seeds, tasks and logging (log.*) are left out; all other settings are the same in all runs."
    blocks: list[Block] = [Table("settings", "Settings that differ", ["setting", *runs.variants], rows, note)]
    mixed = [variant for variant in runs.variants if _differ_within(runs.of(variant))]
    if mixed:
        blocks.append(Text([f"Runs of one variant that do not all have the same settings: {listed(mixed)}."]))
    return Section("differences", "What differs", blocks)


def _rows(runs: Runs) -> list[list[Cell]]:
    names = dict.fromkeys(name for run in runs.runs for name in run.config)
    rows: list[list[Cell]] = []
    for name in filter(_matters, names):
        values = [_values(runs.of(variant), name) for variant in runs.variants]
        if len({value for group in values for value in group}) > 1:
            rows.append([name, *(" or ".join(group) for group in values)])
    return rows


def _matters(name: str) -> bool:
    return name not in IGNORED and not name.startswith("log.")


def _values(runs: list[Run], name: str) -> list[str]:
    """Different ones, in the order of the runs."""
    return list(dict.fromkeys(shown_setting(run.config.get(name, _MISSING)) for run in runs))


def _differ_within(runs: list[Run]) -> bool:
    return any(len(_values(runs, name)) > 1 for name in runs[0].config if _matters(name))


def shown_setting(value: Any) -> str:
    """As one writes it on the command line."""
    if isinstance(value, tuple):
        return " ".join(map(shown_setting, value))
    return str(value)
