"""Curiosity itself: what the world model was uncertain about while training, and what reward became of it."""

import numpy as np

from byol_explore.report.load import Run, Runs
from byol_explore.report.metrics_table import plotted_in
from byol_explore.report.model import Block, Curve, Plot, Section, Text
from byol_explore.report.series import make_curve, plot_metric
from byol_explore.report.words import listed, slug

MOST_GROUPS = 3  # runs on other tasks are curious in other units; each group of tasks has its own plots


def curiosity(runs: Runs) -> Section:
    """Plots over training, and the error of predictions by how far they look ahead."""
    groups = {run.env: run.task_words for run in runs.runs}
    blocks: list[Block] = []
    for env, tasks in [*groups.items()][:MOST_GROUPS]:
        blocks += _plots(runs, env, tasks if len(groups) > 1 else "")
    if not blocks:
        return Section("curiosity", "Curiosity", [Text(["No variant has logged a curiosity yet."])])
    left_out = [*groups.values()][MOST_GROUPS:]
    if left_out:
        blocks.append(Text([f"Not shown, to keep this short: {listed(left_out)}."]))
    words = (
        "Raw uncertainties are in each method's own units: compare their course, not their height. "
        "Normalised rewards are uncertainties divided by their running standard deviation; where rewards are "
        "prioritised, those below their running mean are clipped to zero."
    )
    return Section("curiosity", "Curiosity", [Text([words]), *blocks])


def _plots(runs: Runs, env: str, tasks: str) -> list[Block]:
    where = f"{tasks}: " if tasks else ""
    groups = {variant: [run for run in runs.of(variant) if run.env == env] for variant in runs.variants}
    of = {variant: group for variant, group in groups.items() if any(_is_curious(run) for run in group)}
    blocks: list[Block] = []
    for metric in plotted_in("curiosity"):
        blocks += plot_metric(metric, of, tasks)
    curves = [curve for variant, group in of.items() if (curve := _by_horizon(variant, group)) is not None]
    if curves:
        title = f"{where}Error of predictions at the end, by how far they look ahead"
        blocks.append(Plot(slug("horizon", tasks), title, "steps ahead (k)", "prediction error", curves))
    return blocks


def _is_curious(run: Run) -> bool:
    """Whether it was ever uncertain about anything."""
    return bool(np.any(np.nan_to_num(run.log.columns["uncertainty"]) > 0))


def _by_horizon(variant: str, runs: list[Run]) -> Curve | None:
    """The last logged errors, by k, of a method that predicts further than one step."""
    last = [run.log.prediction_error[-1] for run in runs if run.log.prediction_error.size]
    if not last:
        return None
    longest = max(map(len, last))
    if longest == 1 and not any(run.config.get("curiosity.horizon") == 1 for run in runs):
        return None
    errors = np.full((len(last), longest), np.nan)
    for row, values in zip(errors, last, strict=True):
        row[: len(values)] = values
    return make_curve(variant, np.arange(1.0, longest + 1), errors)
