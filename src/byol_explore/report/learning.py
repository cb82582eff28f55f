"""Learning curves: every task, and all tasks together; baselines and ablations side by side as in the paper."""

import numpy as np

from byol_explore.evaluation.scores import clipped
from byol_explore.report.load import Run, Runs
from byol_explore.report.metrics_table import STEPS, metric
from byol_explore.report.model import Block, Curve, Plot, Section, Text
from byol_explore.report.outcomes import has_human, is_evaluated, meaning_of_scores, reference
from byol_explore.report.series import Series, common_grid, known, make_curve, make_curves, task_scores
from byol_explore.report.words import slug


def learning(runs: Runs) -> Section:
    """A plot of all tasks and one of each, for each group of variants."""
    blocks: list[Block] = [Text([_explanation(runs)])]
    for group, variants in runs.groups():
        plots = [*_overall(runs, group, variants), *_per_task(runs, group, variants)]
        if group and plots:
            blocks.append(Text([f"{group.capitalize()}: {', '.join(variants)}."]))
        blocks += plots
    return Section("learning", "Learning curves", blocks)


def _explanation(runs: Runs) -> str:
    several = any(len({run.seed for run in runs.of(variant)}) > 1 for variant in runs.variants)
    band = " in a band from the lowest to the highest" if several else ""
    return f"Curves are means over seeds{band}. {meaning_of_scores(runs)}."


def _overall(runs: Runs, group: str, variants: list[str]) -> list[Plot]:
    if len(runs.normalized) <= 1:
        return []
    grid = common_grid([one for name in variants for run in runs.of(name) for one in _all_scores(run)])
    curves = [curve for name in variants if (curve := _overall_curve(runs, name, grid)) is not None]
    if not curves:
        return []
    title = _titled(f"Mean over {len(runs.normalized)} tasks of the clipped normalised score (CHNS)", group)
    return [Plot(slug("overall", group), title, STEPS.unit, "normalised score (%)", curves, (0.0, 100.0))]


def _overall_curve(runs: Runs, variant: str, grid: np.ndarray) -> Curve | None:
    """Of the seeds that have all tasks, where they have them all: a mean over fewer is not comparable."""
    by_seed: dict[int, dict[str, Series]] = {}
    for run in runs.of(variant):
        for task in set(run.tasks) - runs.by_return:
            for series in task_scores([run], task):
                by_seed.setdefault(run.seed, {})[task] = series
    whole = [scores for scores in by_seed.values() if len(scores) == len(runs.normalized)]
    if not whole:
        return None
    means = [np.mean([_percent(task, one.at(grid)) for task, one in scores.items()], axis=0) for scores in whole]
    return make_curve(variant, grid, np.stack(means)) if np.isfinite(means).any() else None


def _percent(task: str, scores: np.ndarray) -> np.ndarray:
    """Normalised and clipped."""
    random, human = reference(task)
    return np.clip(100.0 * (scores - random) / (human - random), clipped(-np.inf), clipped(np.inf))


def _per_task(runs: Runs, group: str, variants: list[str]) -> list[Plot]:
    plots = []
    for task in runs.tasks:
        curves = make_curves({name: task_scores(runs.of(name, task), task) for name in variants})
        label, reach = _axis(runs, task)
        if curves:
            plots.append(Plot(slug("score", task, group), _titled(task, group), STEPS.unit, label, curves, reach))
        if _returns_say_more(runs, task):
            returns = {name: _returns(runs.of(name, task), task) for name in variants}
            facts = metric("return_mean")
            title = _titled(f"{task}, {facts.title.lower()}", group)
            plots.append(Plot(slug("return", task, group), title, STEPS.unit, facts.unit, make_curves(returns)))
    return plots


def _axis(runs: Runs, task: str) -> tuple[str, tuple[float, float] | None]:
    """Label and range of a task's scores."""
    if task in runs.by_return or (has_human(task) and not is_evaluated(task)):
        scored = metric("return_mean")
    else:
        scored = metric("evaluation_return") if is_evaluated(task) else metric("success_rate").percent()
    return scored.unit, scored.range


def _titled(title: str, group: str) -> str:
    return f"{title}: {group}" if group else title


def _returns_say_more(runs: Runs, task: str) -> bool:
    """Where nobody has succeeded yet, or scores are those of a few evaluations, returns are shown too."""
    if task in runs.by_return:
        return False
    if has_human(task):
        return is_evaluated(task)
    logs = [run.log for run in runs.runs if task in run.tasks]
    never = all(np.nanmax(log.scores[task], initial=0.0) == 0.0 for log in logs)
    return never and any(np.nanmax(np.abs(log.returns[task]), initial=0.0) > 0.0 for log in logs)


def _returns(runs: list[Run], task: str) -> list[Series]:
    return [series for run in runs for series in known(run, run.log.returns[task])]


def _all_scores(run: Run) -> list[Series]:
    return [series for task in run.tasks for series in task_scores([run], task)]
