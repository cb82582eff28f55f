"""Many scores in a few numbers: the statistics of the paper's tables, and comparisons with few seeds.

The paper takes each task's best score over training, normalises it with a human's, and tells of all tasks by means
and percentiles: `aggregate`. With a handful of seeds such numbers move a lot from one set of seeds to another.
Agarwal et al. (2021, "Deep reinforcement learning at the edge of the statistical precipice") therefore look at all
scores [S, N] (seeds, tasks) at once, and say how far their summary could be off: `stratified_interval`.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from byol_explore.errors import UserError, unknown
from byol_explore.evaluation.scores import clipped, human_normalized

PERCENTILES = (40, 30, 20, 10, 5)
STATISTICS = (
    "mean CHNS",
    "superhuman tasks",
    "mean HNS",
    "median HNS",
    *(f"{percentile}% percentile HNS" for percentile in PERCENTILES),
)

Statistic = Callable[..., np.ndarray]  # of one or two arrays of scores [..., S, N], a number for each of their batch


class Estimate(NamedTuple):
    """A statistic with its 95% confidence interval; None where a single seed says nothing about the next one."""

    value: float
    low: float | None
    high: float | None


def aggregate(scores: Mapping[str, float], references: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The paper's statistics of raw scores by task, in its order; `references` are (random, human) by task.

    HNS is the human-normalised score in percent, CHNS the same clipped to 0..100.
    """
    if not scores:
        raise UserError("there are no scores to aggregate")
    for task, score in scores.items():
        if task not in references:
            raise unknown("task", task, list(references))
        if not math.isfinite(score):
            raise UserError(f"the score of {task!r} is {score}: it must be a finite number")
    percents = [human_normalized(score, references[task]) for task, score in scores.items()]
    tail = np.percentile(percents, (50, *PERCENTILES), method="linear")
    superhuman = sum(percent > 100.0 for percent in percents)
    head = [np.mean([clipped(percent) for percent in percents]), superhuman, np.mean(percents)]
    return dict(zip(STATISTICS, map(float, [*head, *tail]), strict=True))


def mean_score(scores: np.ndarray) -> np.ndarray:
    """Mean over seeds and tasks [..., S, N]."""
    return np.mean(scores, axis=(-2, -1))


def median_score(scores: np.ndarray) -> np.ndarray:
    """Median over tasks of the means over seeds [..., S, N]."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def iqm(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean: of all scores [..., S, N] together, without the lowest and the highest quarter."""
    ordered = np.sort(np.reshape(scores, (*np.shape(scores)[:-2], -1)), axis=-1)
    count = ordered.shape[-1]
    return np.mean(ordered[..., count // 4 : count - count // 4], axis=-1)


def optimality_gap(scores: np.ndarray, goal: float = 100.0) -> np.ndarray:
    """How much scores [..., S, N] fall short of the goal, on average; above it they make up for nothing."""
    return goal - np.mean(np.minimum(scores, goal), axis=(-2, -1))


def probability_of_improvement(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of a seed of ours [..., S, N] and one of the others [..., R, N]: how probably is ours better, on a random task?

    Between 0 and 1; equal scores count as half.
    """
    difference = np.sign(ours[..., :, None, :] - others[..., None, :, :])  # [..., S, R, N]
    return np.mean((1.0 + difference) / 2.0, axis=(-3, -2, -1))


def stratified_interval(statistic: Statistic, *scores: np.ndarray, resamples: int = 2000, seed: int = 0) -> Estimate:
    """A statistic of scores [S, N], with a percentile bootstrap that draws seeds anew within each task.

    `stratified_interval(iqm, ours)`, `stratified_interval(probability_of_improvement, ours, others)`: tasks are the
    same and stay as they are; seeds of different tasks and of different methods have nothing to do with each other.
    """
    matrices = [_checked(matrix) for matrix in scores]
    if len({matrix.shape[1] for matrix in matrices}) > 1:
        raise UserError(f"scores have the shapes {[matrix.shape for matrix in matrices]}: their tasks must be the same")
    value = float(statistic(*matrices))
    if any(len(matrix) == 1 for matrix in matrices):
        return Estimate(value, None, None)
    generator = np.random.default_rng(seed)
    drawn = statistic(*(_resample(matrix, resamples, generator) for matrix in matrices))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def _resample(scores: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """As many seeds [B, S, N] as there are, drawn with replacement for each task by itself."""
    seeds, tasks = scores.shape
    drawn = generator.integers(0, seeds, (resamples, seeds, tasks))
    return scores[drawn, np.arange(tasks)]


def _checked(scores: np.ndarray) -> np.ndarray:
    """Scores as numbers [S, N]; a NaN would be sorted to the end and cut off with the highest quarter, unseen."""
    matrix = np.asarray(scores, float)
    if matrix.ndim != 2 or matrix.size == 0:
        raise UserError(f"scores have the shape {matrix.shape}: they must be [seeds, tasks], with at least one of each")
    if not np.all(np.isfinite(matrix)):
        raise UserError("scores hold a NaN or an infinity: leave out tasks that not every seed has a score for")
    return matrix
