"""Score of a task, best and final scores, series of several seeds on common steps."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from byol_explore.evaluation.scores import HARD_EIGHT_REFERENCES, REFERENCES, SCORED_BY_EVALUATION, human_normalized
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Curve, Plot
from byol_explore.report.read_runs import MAX_POINTS, MetricColumns
from byol_explore.storage.metrics import STEPS, Metric, metric, section_metrics
from byol_explore.utils.formatting import slug

SOLVED = 95.0  # percent of success


class ScoreKind(NamedTuple):
    """How a task is scored."""

    name: str
    metric: Metric
    note: str


SUCCESS = ScoreKind(
    "success (%)",
    metric("success_rate").percent(),
    "Success is the share of successful episodes; its normalised score is the same.",
)
EVALUATION = ScoreKind(
    "evaluation",
    metric("evaluation_return"),
    "Evaluation is the mean return of fresh episodes; normalised, 0% is the score of random actions, 100% a human's.",
)
TRAINING = ScoreKind(
    "training return",
    metric("return_mean"),
    "Training return is the mean return of training episodes, which have the same rules as evaluations; "
    "normalised, 0% is the score of random actions, 100% a human's.",
)
HARD_EIGHT = ScoreKind(
    "Hard-Eight return",
    metric("return_mean"),
    "Hard-Eight return is the mean return of training episodes; normalised, 0% is the score of random choices among "
    "its nine actions, 100% that of humans on DM-HARD-8, another world with the same tasks. Where random actions lose "
    "points, doing nothing is more than 0%.",
)
RETURN = ScoreKind(
    "return",
    metric("return_mean"),
    "Return is the mean return of training episodes, where no success is defined or nothing was evaluated: "
    "it has no normalised score.",
)


def score_kind(runs: Runs, task: str) -> ScoreKind:
    if task in runs.scored_by_return:
        return RETURN
    if task in SCORED_BY_EVALUATION:
        return EVALUATION
    if task in HARD_EIGHT_REFERENCES:
        return HARD_EIGHT
    return TRAINING if task in REFERENCES else SUCCESS


def score_notes(runs: Runs) -> str:
    """Explain the kinds of scores in a report."""
    return " ".join(dict.fromkeys(score_kind(runs, task).note for task in runs.tasks))


class Scores(NamedTuple):
    """Scores of a variant on a task, not normalised."""

    final: dict[int, float]  # by seed
    best: dict[int, float]  # by seed
    final_mean: float
    best_mean: float  # highest point of the mean over seeds


Outcomes = dict[tuple[str, str], Scores]  # by variant and task


def compute_scores(runs: Runs) -> Outcomes:
    """Compute the scores of all variants and tasks that have any."""
    outcomes: Outcomes = {}
    for variant in runs.variants:
        for task in runs.tasks:
            by_seed = {run.seed: one for run in runs.select(variant, task) for one in task_scores([run], task)}
            if by_seed:
                series = list(by_seed.values())
                grid = common_grid(series, max_points=None)
                final = {seed: float(one.values[-1]) for seed, one in by_seed.items()}
                best = {seed: float(one.values.max()) for seed, one in by_seed.items()}
                best_mean = float(np.max(mean_over_seeds(on_grid(series, grid))))
                outcomes[variant, task] = Scores(final, best, float(np.mean([*final.values()])), best_mean)
    return outcomes


def reference_scores(task: str) -> tuple[float, float]:
    """Return the scores that are 0 and 100 percent."""
    return REFERENCES.get(task, (0.0, 100.0))  # without a human reference the score is success in percent


def normalized(task: str, score: float) -> float:
    return human_normalized(score, reference_scores(task))


def is_solved(task: str, score: float) -> bool:
    """Return True for a score above a human's, or without one for success in at least 95% of the episodes."""
    return normalized(task, score) > 100.0 if task in REFERENCES else score >= SOLVED


def tasks_of(outcomes: Outcomes, variant: str) -> list[str]:
    return [task for name, task in outcomes if name == variant]


def final_matrix(outcomes: Outcomes, variant: str, tasks: list[str]) -> np.ndarray | None:
    """Return normalised final scores [S, N] of the seeds that have all `tasks`; None without any."""
    if not tasks or not all((variant, task) in outcomes for task in tasks):
        return None
    final = [outcomes[variant, task].final for task in tasks]
    seeds = sorted(set.intersection(*map(set, final)))
    rows = [[normalized(task, scores[seed]) for task, scores in zip(tasks, final, strict=True)] for seed in seeds]
    return np.asarray(rows) if rows else None


class Series(NamedTuple):
    """The finite values of one run."""

    steps: np.ndarray  # [R]
    values: np.ndarray  # [R]
    hold_last: bool = False  # the last value counts for later steps too

    def at(self, grid: np.ndarray) -> np.ndarray:
        """Interpolate between the first and the last step; NaN outside."""
        last = self.values[-1] if self.hold_last else np.nan
        return np.interp(grid, self.steps, self.values, left=np.nan, right=last)


def run_series(
    runs: Sequence[Run], column: Callable[[MetricColumns], np.ndarray], *, is_score: bool = False
) -> list[Series]:
    """Return the finite values of a column [R] of each run's log; nothing for runs that have none.

    A run that stopped at success keeps its last score: it had nothing left to learn.
    """
    series = []
    for run in runs:
        values = column(run.log)
        finite = np.isfinite(values)
        if finite.any():
            series.append(Series(run.steps[finite], values[finite], is_score and run.stopped_at_success))
    return series


def task_scores(runs: Sequence[Run], task: str) -> list[Series]:
    return run_series(runs, lambda log: log.scores[task], is_score=True)


def column(runs: Sequence[Run], name: str) -> list[Series]:
    return run_series(runs, lambda log: log.columns[name])


def last_mean(series: Sequence[Series]) -> float | None:
    """Return the mean of the last values."""
    return float(np.mean([one.values[-1] for one in series])) if series else None


def common_grid(series: Sequence[Series], max_points: int | None = MAX_POINTS) -> np.ndarray:
    """Return all steps of the series, or `max_points` of them."""
    steps = np.unique(np.concatenate([[], *(one.steps for one in series)]))
    return steps if max_points is None else steps[even_indices(len(steps), max_points)]


def even_indices(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the indices 0 to `count` - 1, evenly spaced, with the first and the last."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def on_grid(series: Sequence[Series], grid: np.ndarray) -> np.ndarray:
    """Return the values [S, X] of S series at X steps; NaN outside of a series."""
    return np.stack([one.at(grid) for one in series])


def make_curve(variant: str, grid: np.ndarray, values: np.ndarray) -> Curve:
    """Make a curve of the mean and range over seeds of values [S, X]; a single seed has no band."""
    band: list[list[float | None]] = [[None] * len(grid)] * 2
    if len(values) > 1:
        band = [nan_to_none(part) for part in (np.fmin.reduce(values), np.fmax.reduce(values))]
    return Curve(variant, grid.tolist(), nan_to_none(mean_over_seeds(values)), *band)


def make_curves(series: dict[str, list[Series]]) -> list[Curve]:
    """Make a curve for each variant that has any values, all on the same steps."""
    grid = common_grid([one for group in series.values() for one in group])
    return [make_curve(variant, grid, on_grid(group, grid)) for variant, group in series.items() if group]


def section_plots(section: str, runs: dict[str, list[Run]], tasks: str) -> list[Plot]:
    """Plot the metrics of a section of the report that were logged; with `tasks` in the titles if it is not empty."""
    plots = []
    for each in section_metrics(section):
        if curves := make_curves({variant: column(group, each.name) for variant, group in runs.items()}):
            title = f"{tasks}: {each.title[0].lower()}{each.title[1:]}" if tasks else each.title
            note = f"Higher: {each.higher_means}." if each.higher_means else ""
            name, scale = slug(each.name, tasks), each.logarithmic
            plots.append(Plot(name, title, STEPS.unit, each.unit, curves, each.range, scale, note))
    return plots


def mean_over_seeds(values: np.ndarray) -> np.ndarray:
    """Return the mean [X] of values [S, X] over the seeds that have one; NaN without any."""
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0).sum(axis=0) / np.where(finite.any(axis=0), finite.sum(axis=0), np.nan)


def none_if_nan(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def nan_to_none(values: np.ndarray) -> list[float | None]:
    return [none_if_nan(value) for value in values.tolist()]
