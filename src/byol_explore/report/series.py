"""What runs logged, on common steps: seeds have other lengths and other log steps, and are averaged all the same."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from byol_explore.report.load import Run
from byol_explore.report.metrics_table import STEPS, Metric
from byol_explore.report.model import Curve, Plot
from byol_explore.report.words import slug

POINTS = 200  # of a curve; what is known in more is thinned


class Series(NamedTuple):
    """The known values of one run."""

    steps: np.ndarray  # [R]
    values: np.ndarray  # [R]
    stays: bool = False  # at its last value after the end: it stopped because nothing was left to learn

    def at(self, grid: np.ndarray) -> np.ndarray:
        """Values between its first and its last step, NaN outside."""
        last = self.values[-1] if self.stays else np.nan
        return np.interp(grid, self.steps, self.values, left=np.nan, right=last)


def known(run: Run, values: np.ndarray, *, stays: bool = False) -> list[Series]:
    """The series of a run; none where nothing is known."""
    finite = np.isfinite(values)
    return [Series(run.steps[finite], values[finite], stays)] if finite.any() else []


def column(runs: Sequence[Run], name: str) -> list[Series]:
    return [series for run in runs for series in known(run, run.log.columns[name])]


def task_scores(runs: Sequence[Run], task: str) -> list[Series]:
    """Scores on a task; a run that stopped at success keeps its last one."""
    return [series for run in runs for series in known(run, run.log.scores[task], stays=run.stopped_at_success)]


def common_grid(series: Sequence[Series], most: int | None = POINTS) -> np.ndarray:
    """All steps at which anything was logged, or evenly many of them."""
    steps = np.unique(np.concatenate([one.steps for one in series])) if series else np.zeros(0)
    if most is None or len(steps) <= most:
        return steps
    return steps[evenly(len(steps), most)]


def evenly(count: int, most: int) -> np.ndarray:
    """Places of at most so many out of `count`, evenly spaced, the first and the last among them."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def on_grid(series: Sequence[Series], grid: np.ndarray) -> np.ndarray:
    """[S, X], NaN where a seed has nothing."""
    return np.stack([one.at(grid) for one in series]) if series else np.zeros((0, len(grid)))


def make_curve(variant: str, grid: np.ndarray, values: np.ndarray) -> Curve:
    """Mean and band of seeds [S, X]; of a single seed there is no band."""
    nothing: list[float | None] = [None] * len(grid)
    mean = _listed(mean_over_seeds(values))
    if len(values) < 2:
        return Curve(variant, grid.tolist(), mean, nothing, nothing)
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)  # of the seeds that have something
    return Curve(variant, grid.tolist(), mean, _listed(low), _listed(high))


def make_curves(series: dict[str, list[Series]]) -> list[Curve]:
    """A curve for each variant that has anything, all on the same steps."""
    grid = common_grid([one for group in series.values() for one in group])
    return [make_curve(variant, grid, on_grid(group, grid)) for variant, group in series.items() if group]


def plot_metric(metric: Metric, runs: dict[str, list[Run]], tasks: str) -> list[Plot]:
    """A metric of each variant's runs on the same tasks, which are named if asked for; none where nobody logged it."""
    curves = make_curves({variant: column(group, metric.name) for variant, group in runs.items()})
    title = f"{tasks}: {metric.title[0].lower()}{metric.title[1:]}" if tasks else metric.title
    note = f"Higher: {metric.higher}." if metric.higher else ""
    name, scale = slug(metric.name, tasks), metric.logarithmic
    return [Plot(name, title, STEPS.unit, metric.unit, curves, metric.range, scale, note)] if curves else []


def mean_over_seeds(values: np.ndarray) -> np.ndarray:
    """[X] of [S, X], NaN only where no seed has anything."""
    present = np.isfinite(values)
    return np.where(present, values, 0.0).sum(axis=0) / np.where(present.any(axis=0), present.sum(axis=0), np.nan)


def plain(value: float) -> float | None:
    """None for NaN."""
    return float(value) if math.isfinite(value) else None


def _listed(values: np.ndarray) -> list[float | None]:
    """None where nothing is known."""
    return [plain(value) for value in values.tolist()]
