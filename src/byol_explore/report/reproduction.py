"""Sections of the report that reproduce its runs: searched settings, settings that differ, commands, all runs."""

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
from byol_explore.storage.metrics import to_float
from byol_explore.storage.run_directory import SEARCH
from byol_explore.utils.files import DAMAGE_ERRORS, read_json_object
from byol_explore.utils.formatting import display_path, escape_unprintable, join_list, truncate

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


_SEARCH_NOTE = (
    "Every variant has the same number of trials over the same ranges. Trials rank by solved runs on the seeds that "
    "choose, then by the mean steps until runs are solved (an unsolved one counts with all steps), then by the last "
    "success and return. Trial 0 is untuned. The best of many trials looks better on the seeds that chose it than on "
    "others: compare variants by the reported columns, whose intervals are of 95% (bootstrap over seeds)."
)
_MAX_TRIAL_ROWS = 1_000


def search_sections(runs: Runs) -> list[Section]:
    """Show the searches whose studies are among the directories; a damaged search.json is left out."""
    sections = []
    for root in runs.roots:
        try:
            sections.append(_search_section(read_json_object(root, SEARCH)))
        except DAMAGE_ERRORS:
            continue
    return sections


def _search_section(data: dict[str, Any]) -> Section:
    variants = {escape_unprintable(truncate(name)): each for name, each in data["variants"].items()}
    seeds, reported = (", ".join(str(int(seed)) for seed in data[key]) for key in ("seeds", "report_seeds"))
    columns = ["variant", "trials", "chosen trial", "solved", "steps", "untuned solved", "untuned steps",
               "reported solved", "reported steps", "low", "high", "reported success (%)"]  # fmt: skip
    rows = [_choice_row(name, each) for name, each in variants.items()]
    title = f"Settings chosen on the seeds {seeds}, reported on the seeds {reported}"
    trials = [_trial_row(name, trial) for name, each in variants.items() for trial in each["trials"]]
    listing = [line for each in variants.values() for line in str(each["toml"]).splitlines()]
    blocks: list[Block] = [
        Table("search", title, columns, rows, _SEARCH_NOTE),
        Table(
            "trials",
            "All trials",
            ["variant", "trial", "chosen", "settings", "runs", "solved", "steps", "success (%)", "return"],
            trials[:_MAX_TRIAL_ROWS],
            f"Means over the runs of a trial. {len(trials):,} trials, of which at most {_MAX_TRIAL_ROWS:,} are shown.",
        ),
    ]
    if listing:
        blocks.append(
            Text(["The chosen settings, for a study file:", *(f"    {escape_unprintable(line)}" for line in listing)])
        )
    return Section("search", "Search of settings", blocks)


def _choice_row(name: str, variant: dict[str, Any]) -> list[Cell]:
    trials, number, reported = variant["trials"], variant["chosen"], variant["reported"] or {}
    best = trials[number] if number is not None else {"score": None}
    steps, success = reported.get("steps") or {}, reported.get("success") or {}
    return [
        name,
        len(trials),
        None if number is None else int(number),
        *_solved_and_steps(best["score"]),
        *_solved_and_steps(trials[0]["score"]),
        _solved(reported),
        *(_number(steps.get(end)) for end in ("mean", "low", "high")),
        _percent(success.get("mean")),
    ]


def _trial_row(name: str, trial: dict[str, Any]) -> list[Cell]:
    score = trial["score"] or {}
    settings = ", ".join(f"{key} = {format_setting(_as_tuple(value))}" for key, value in trial["settings"].items())
    return [
        name,
        int(trial["trial"]),
        "yes" if trial["chosen"] else "",
        escape_unprintable(settings) or "untuned",
        _number(score.get("runs")),
        _number(score.get("solved")),
        _number(score.get("steps")),
        _percent(score.get("success")),
        _number(score.get("episode_return")),
    ]


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _solved_and_steps(score: dict[str, Any] | None) -> list[Cell]:
    return [_solved(score or {}), _number((score or {}).get("steps"))]


def _solved(score: dict[str, Any]) -> Cell:
    return f"{int(score['solved'])} of {int(score['runs'])}" if score else None


def _number(value: Any) -> float | None:
    return none_if_nan(to_float(value))


def _percent(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else 100.0 * number
