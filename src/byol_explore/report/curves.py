"""Sections of the report with learning, curiosity and stage curves."""

import numpy as np

from byol_explore.evaluation.scores import REFERENCES, SCORED_BY_EVALUATION
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Cell, Curve, Plot, Section, Table, Text
from byol_explore.report.read_runs import MAX_ENV_GROUPS, MAX_STAGE_PLOTS
from byol_explore.report.scores import (
    Series,
    common_grid,
    last_mean,
    make_curve,
    make_curves,
    reference_scores,
    run_series,
    score_kind,
    score_notes,
    section_plots,
    task_scores,
)
from byol_explore.storage.metrics import STEPS, metric
from byol_explore.utils.formatting import join_list, slug


def learning(runs: Runs) -> Section:
    """Plot scores over training, for each group of variants: the mean over tasks and each task."""
    words = "Curves are means over seeds, in a band from the lowest to the highest where there are several seeds."
    blocks: list[Block] = [Text([words, score_notes(runs)])]
    for group, variants in runs.groups():
        plots = [*_overall(runs, group, variants), *_per_task(runs, group, variants)]
        if group and plots:
            blocks.append(Text([f"{group.capitalize()}: {', '.join(variants)}."]))
        blocks += plots
    return Section("learning", "Learning curves", blocks)


def _overall(runs: Runs, group: str, variants: list[str]) -> list[Plot]:
    if len(runs.normalized) <= 1:
        return []
    series = [
        one for name in variants for run in runs.select(name) for task in run.tasks for one in task_scores([run], task)
    ]
    grid = common_grid(series)
    curves = [curve for name in variants if (curve := _overall_curve(runs, name, grid)) is not None]
    if not curves:
        return []
    title = _title(f"Mean over {len(runs.normalized)} tasks of the clipped normalised score (CHNS)", group)
    return [Plot(slug("overall", group), title, STEPS.unit, "normalised score (%)", curves, (0.0, 100.0))]


def _overall_curve(runs: Runs, variant: str, grid: np.ndarray) -> Curve | None:
    """Average over tasks, for seeds and steps with a score on all tasks: a mean over fewer is not comparable."""
    by_seed: dict[int, dict[str, Series]] = {}
    for run in runs.select(variant):
        for task in run.tasks:
            series = task_scores([run], task)
            if series and task not in runs.scored_by_return:
                by_seed.setdefault(run.seed, {})[task] = series[0]
    complete = [scores for scores in by_seed.values() if len(scores) == len(runs.normalized)]
    means = [np.mean([_percent(task, one.at(grid)) for task, one in scores.items()], axis=0) for scores in complete]
    return make_curve(variant, grid, np.stack(means)) if np.isfinite(means).any() else None


def _percent(task: str, scores: np.ndarray) -> np.ndarray:
    """Normalise and clip scores."""
    random, human = reference_scores(task)
    return np.clip(100.0 * (scores - random) / (human - random), 0.0, 100.0)


def _per_task(runs: Runs, group: str, variants: list[str]) -> list[Plot]:
    plots = []
    for task in runs.tasks:
        curves = make_curves({name: task_scores(runs.select(name, task), task) for name in variants})
        if curves:
            scored = score_kind(runs, task).metric
            plots.append(
                Plot(slug("score", task, group), _title(task, group), STEPS.unit, scored.unit, curves, scored.range)
            )
        if _needs_returns(runs, task):
            shown = metric("return_mean")
            curves = make_curves({name: _returns(runs.select(name, task), task) for name in variants})
            title = _title(f"{task}, {shown.title.lower()}", group)
            plots.append(Plot(slug("return", task, group), title, STEPS.unit, shown.unit, curves))
    return plots


def _title(title: str, group: str) -> str:
    return f"{title}: {group}" if group else title


def _needs_returns(runs: Runs, task: str) -> bool:
    """Return True if returns tell more than scores: no success yet, or scores of a few evaluations only."""
    if task in runs.scored_by_return:
        return False
    if task in REFERENCES:
        return task in SCORED_BY_EVALUATION
    logs = [run.log for run in runs.select(task=task)]
    without_success = all(np.nanmax(log.scores[task], initial=0.0) == 0.0 for log in logs)
    return without_success and any(np.nanmax(np.abs(log.returns[task]), initial=0.0) > 0.0 for log in logs)


def _returns(runs: list[Run], task: str) -> list[Series]:
    return run_series(runs, lambda log: log.returns[task])


def curiosity(runs: Runs) -> Section:
    """Plot the metrics of curiosity over training, and prediction errors by horizon, for the first envs."""
    envs = {run.env: run.task_text for run in runs.runs}
    blocks: list[Block] = []
    for env, tasks in [*envs.items()][:MAX_ENV_GROUPS]:
        blocks += _env_plots(runs, env, tasks if len(envs) > 1 else "")
    if not blocks:
        return Section("curiosity", "Curiosity", [Text(["No variant has logged a curiosity yet."])])
    if left_out := [*envs.values()][MAX_ENV_GROUPS:]:
        blocks.append(Text([f"Not shown, to keep this short: {join_list(left_out)}."]))
    words = (
        "Raw uncertainties are in each method's own units: compare their course, not their height. "
        "Normalised rewards are uncertainties divided by their running standard deviation; where rewards are "
        "prioritised, those below their running mean are clipped to zero."
    )
    return Section("curiosity", "Curiosity", [Text([words]), *blocks])


def _env_plots(runs: Runs, env: str, tasks: str) -> list[Plot]:
    groups = {variant: runs.select(variant, env=env) for variant in runs.variants}
    curious = {variant: group for variant, group in groups.items() if any(map(_is_curious, group))}
    plots = section_plots("curiosity", curious, tasks)
    curves = [curve for variant, group in curious.items() if (curve := _error_by_horizon(variant, group)) is not None]
    if curves:
        title = f"{tasks}: " if tasks else ""
        title += "Error of predictions at the end, by how far they look ahead"
        plots.append(Plot(slug("horizon", tasks), title, "steps ahead (k)", "prediction error", curves))
    return plots


def _is_curious(run: Run) -> bool:
    """Return True if an uncertainty above 0 was logged."""
    return bool(np.any(np.nan_to_num(run.log.columns["uncertainty"]) > 0))


def _error_by_horizon(variant: str, runs: list[Run]) -> Curve | None:
    """Make a curve of the last logged errors by horizon; None for a method without several horizons."""
    last = [run.log.prediction_error[-1] for run in runs if run.log.prediction_error.size]
    longest = max(map(len, last), default=0)
    if longest == 0 or (longest == 1 and not any(run.config.get("curiosity.horizon") == 1 for run in runs)):
        return None
    errors = np.stack([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in last])
    return make_curve(variant, np.arange(1.0, longest + 1), errors)


def stages(runs: Runs) -> list[Section]:
    """Plot stages for each task and variant up to a maximum, and list all in a table; empty without stages."""
    pairs = [(variant, task) for task in runs.tasks for variant in runs.variants]
    pairs = [(variant, task) for variant, task in pairs if _stage_names(runs.select(variant, task), task)]
    if not pairs:
        return []
    pairs.sort(key=lambda pair: pair[0] != runs.main)  # the main variant first, on every task
    plots = [_stage_plot(runs, variant, task) for variant, task in pairs[:MAX_STAGE_PLOTS]]
    words = ["Shares of training episodes that reached each stage of their task. The agent is told nothing of stages."]
    if left_out := pairs[MAX_STAGE_PLOTS:]:
        words.append(f"Only in the table: {join_list([f'{variant} on {task}' for variant, task in left_out])}.")
    return [Section("stages", "How far episodes get", [Text(words), *plots, _stage_table(runs)])]


def _stage_names(runs: list[Run], task: str) -> list[str]:
    return list(dict.fromkeys(stage for run in runs for stage in run.log.stages[task]))


def _stage_series(runs: list[Run], task: str, stage: str) -> list[Series]:
    return run_series(runs, lambda log: log.stages[task].get(stage, np.empty(0)))


def _stage_plot(runs: Runs, variant: str, task: str) -> Plot:
    """Plot a curve per group of stages; all variants of a task have the same groups, and so the same colours."""
    shown = metric("stages")
    groups, unreached = _group_stages(runs.select(task=task), task)
    group = runs.select(variant, task)
    curves = make_curves({", ".join(names): _stage_series(group, task, names[0]) for names in groups})
    note = f"Higher: {shown.higher_means}." + (f" Never reached: {join_list(unreached)}." if unreached else "")
    title, name = f"{variant} on {task}", slug("stages", variant, task)
    return Plot(name, title, STEPS.unit, shown.unit, curves, shown.range, note=note)


def _group_stages(runs: list[Run], task: str) -> tuple[list[list[str]], list[str]]:
    """Return groups of stages with the same shares in every line, and the stages that no run reached.

    If no stage was reached, all are groups.
    """
    groups: dict[tuple[bytes, ...], list[str]] = {}
    for stage in _stage_names(runs, task):
        shares = tuple(np.asarray(run.log.stages[task].get(stage, ())).tobytes() for run in runs)
        groups.setdefault(shares, []).append(stage)
    reached = [
        names for names in groups.values() if any(np.any(s.values > 0.0) for s in _stage_series(runs, task, names[0]))
    ]
    if not reached:
        return list(groups.values()), []
    return reached, [stage for names in groups.values() if names not in reached for stage in names]


def _stage_table(runs: Runs) -> Table:
    names = list(dict.fromkeys(stage for task in runs.tasks for stage in _stage_names(runs.select(task=task), task)))
    rows: list[list[Cell]] = []
    for task in runs.tasks:
        for variant in runs.variants:
            last = [last_mean(_stage_series(runs.select(variant, task), task, stage)) for stage in names]
            if any(share is not None for share in last):
                rows.append([task, variant, *last])
    note = "Means over seeds of the last log line; empty where a task does not have the stage."
    return Table("stages", "Stages at the end", ["task", "variant", *names], rows, note)
