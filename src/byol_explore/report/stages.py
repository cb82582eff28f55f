"""How far episodes get: the share of them that reaches each stage of a task, over training and at its end."""

import numpy as np

from byol_explore.report.load import Run, Runs
from byol_explore.report.metrics_table import STEPS, metric
from byol_explore.report.model import Block, Cell, Plot, Section, Table, Text
from byol_explore.report.series import Series, known, make_curves
from byol_explore.report.words import listed, slug

MOST_PLOTS = 24


def stages(runs: Runs) -> list[Section]:
    """A plot for each task and variant, as far as there is room, and a table; none where no task has stages."""
    everywhere = [(variant, task) for task in runs.tasks for variant in runs.variants]
    pairs = [(variant, task) for variant, task in everywhere if _names(runs.of(variant, task), task)]
    if not pairs:
        return []
    pairs.sort(key=lambda pair: pair[0] != runs.main)  # which comes first, on every task
    plots = [_plot(runs, variant, task) for variant, task in pairs[:MOST_PLOTS]]
    words = ["Shares of training episodes that reached each stage of their task. The agent is told nothing of stages."]
    if left_out := pairs[MOST_PLOTS:]:
        words.append(f"Only in the table: {listed([f'{variant} on {task}' for variant, task in left_out])}.")
    blocks: list[Block] = [Text(words), *plots, _table(runs)]
    return [Section("stages", "How far episodes get", blocks)]


def _names(runs: list[Run], task: str) -> list[str]:
    """The stages of a task, in their order."""
    return list(dict.fromkeys(stage for run in runs for stage in run.log.stages[task]))


def _series(runs: list[Run], task: str, stage: str) -> list[Series]:
    columns = [(run, run.log.stages[task].get(stage)) for run in runs]
    return [series for run, values in columns if values is not None for series in known(run, values)]


def _plot(runs: Runs, variant: str, task: str) -> Plot:
    """One curve for all stages that are always reached together; the same curves for all variants of a task."""
    everybody, facts = _on(runs, task), metric("stages")
    lines, never = _told_apart(everybody, task)
    group = runs.of(variant, task)
    curves = make_curves({", ".join(names): _series(group, task, names[0]) for names in lines})
    title, name = f"{variant} on {task}", slug("stages", variant, task)
    note = f"Higher: {facts.higher}." + (f" Never reached: {listed(never)}." if never else "")
    return Plot(name, title, STEPS.unit, facts.unit, curves, facts.range, note=note)


def _told_apart(runs: list[Run], task: str) -> tuple[list[list[str]], list[str]]:
    """Stages in groups whose shares are the same in every line, and those that nobody ever reached, unless all are."""
    groups: dict[tuple[bytes, ...], list[str]] = {}
    for stage in _names(runs, task):
        shares = [np.asarray(run.log.stages[task].get(stage, ())) for run in runs]
        groups.setdefault(tuple(each.tobytes() for each in shares), []).append(stage)
    lines = list(groups.values())
    never = [names for names in lines if not any(np.any(s.values > 0.0) for s in _series(runs, task, names[0]))]
    if len(never) == len(lines):
        return lines, []
    return [names for names in lines if names not in never], [stage for names in never for stage in names]


def _table(runs: Runs) -> Table:
    names = list(dict.fromkeys(stage for task in runs.tasks for stage in _names(_on(runs, task), task)))
    rows: list[list[Cell]] = []
    for task in runs.tasks:
        for variant in runs.variants:
            last = [_at_the_end(runs.of(variant, task), task, stage) for stage in names]
            if any(share is not None for share in last):
                rows.append([task, variant, *last])
    note = "Means over seeds of the last log line; empty where a task does not have the stage."
    return Table("stages", "Stages at the end", ["task", "variant", *names], rows, note)


def _on(runs: Runs, task: str) -> list[Run]:
    return [run for variant in runs.variants for run in runs.of(variant, task)]


def _at_the_end(runs: list[Run], task: str, stage: str) -> float | None:
    last = [float(series.values[-1]) for series in _series(runs, task, stage)]
    return float(np.mean(last)) if last else None
