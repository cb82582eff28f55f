"""Statistics of scores by hand and against slow loops; the bootstrap against all possible resamples."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import trim_mean

from byol_explore.errors import UserError
from byol_explore.evaluation.scores import (
    STATISTICS,
    Statistic,
    iqm,
    mean_score,
    median_score,
    optimality_gap,
    paper_statistics_of,
    probability_of_improvement,
    stratified_interval,
)

ONE = [mean_score, median_score, iqm, optimality_gap]


def scores(seeds: int, tasks: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(1.5, 60.0, (seeds, tasks))


# The paper's columns


def test_paper_statistics_by_hand() -> None:
    """Percentages are 200, 50, -10, 100 and 0; 100 is not superhuman."""
    references = {"a": (0.0, 10.0), "b": (10.0, 30.0), "c": (0.0, 1.0), "d": (-5.0, 5.0), "e": (3.0, 4.0)}
    result = paper_statistics_of({"a": 20.0, "b": 20.0, "c": -0.1, "d": 5.0, "e": 3.0}, references)
    assert list(result) == list(STATISTICS)
    assert [*result.values()] == pytest.approx([50.0, 1, 68.0, 50.0, 30.0, 10.0, -2.0, -6.0, -8.0])


def test_invalid_scores_of_tasks_are_user_errors() -> None:
    with pytest.raises(UserError, match="no scores"):
        paper_statistics_of({}, {"a": (0.0, 1.0)})
    with pytest.raises(UserError, match="unknown task 'b'; choose from: a"):
        paper_statistics_of({"b": 1.0}, {"a": (0.0, 1.0)})
    with pytest.raises(UserError, match="the score of 'a' is nan"):
        paper_statistics_of({"a": math.nan}, {"a": (0.0, 1.0)})


# Statistics of seeds and tasks


def test_statistics_by_hand() -> None:
    """Two seeds of three tasks, whose means are 70, 60 and 500."""
    matrix = np.asarray([[0.0, 80.0, 300.0], [140.0, 40.0, 700.0]])
    assert mean_score(matrix) == 210.0
    assert median_score(matrix) == 70.0
    assert iqm(matrix) == (40 + 80 + 140 + 300) / 4  # six scores without the lowest and the highest
    assert optimality_gap(matrix) == (100 + 20 + 60) / 6
    assert optimality_gap(matrix, goal=50.0) == (50 + 10) / 6


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (3, 3), (3, 10), (5, 7), (3, 18)])
def test_interquartile_mean_is_a_trimmed_mean(shape: tuple[int, int]) -> None:
    matrix = scores(*shape)
    assert iqm(matrix) == pytest.approx(trim_mean(matrix, 0.25, axis=None))


@pytest.mark.parametrize("statistic", ONE)
def test_statistics_accept_batches(statistic: Statistic) -> None:
    batch = np.stack([scores(3, 5, seed) for seed in range(4)])
    assert statistic(batch) == pytest.approx([float(statistic(matrix)) for matrix in batch])


def test_probability_of_improvement_against_a_loop_over_pairs() -> None:
    ours, others = np.round(scores(4, 3), -2), np.round(scores(2, 3, seed=1), -2)
    wins, ties = 0.0, 0
    for task, mine, other in itertools.product(range(3), range(4), range(2)):
        if ours[mine, task] > others[other, task]:
            wins += 1.0
        elif ours[mine, task] == others[other, task]:
            wins, ties = wins + 0.5, ties + 1
    assert ties > 0
    assert probability_of_improvement(ours, others) == pytest.approx(wins / (3 * 4 * 2))
    assert probability_of_improvement(ours, others) + probability_of_improvement(others, ours) == pytest.approx(1.0)


def test_probability_of_improvement_by_hand() -> None:
    """Slightly better on the first task, much worse on the second, equal on the third."""
    ours, others = np.asarray([[1.0, 0.0, 5.0], [2.0, 0.0, 5.0]]), np.asarray([[0.9, 1e6, 5.0]])
    assert probability_of_improvement(ours, others) == 0.5
    assert probability_of_improvement(ours[:, :2], others[:, :2]) == 0.5
    assert probability_of_improvement(ours[:, :1], others[:, :1]) == 1.0


# The bootstrap


def all_resamples(matrix: np.ndarray) -> list[np.ndarray]:
    """Return every possible resample of the seeds of each task with replacement."""
    seeds, tasks = matrix.shape
    draws = list(itertools.product(range(seeds), repeat=seeds))
    return [
        np.stack([matrix[list(draw), task] for task, draw in enumerate(choice)], axis=1)
        for choice in itertools.product(draws, repeat=tasks)
    ]


@pytest.mark.parametrize("statistic", ONE)
def test_interval_is_that_of_all_resamples(statistic: Statistic) -> None:
    """3 seeds of 2 tasks have 729 resamples; 50,000 random ones agree within half a percentile."""
    matrix = scores(3, 2)
    every = np.asarray([float(statistic(resample)) for resample in all_resamples(matrix)])
    estimate = stratified_interval(statistic, matrix, resamples=50_000)
    assert estimate.mean == float(statistic(matrix))
    assert estimate.low is not None
    assert estimate.high is not None
    for end, percent in ((estimate.low, 2.5), (estimate.high, 97.5)):
        nearby = np.percentile(every, [percent - 0.5, percent + 0.5])
        assert nearby[0] - 1e-9 <= end <= nearby[1] + 1e-9


def test_interval_of_improvement_resamples_both_variants() -> None:
    """Two seeds of one task: ours 1 and 3, theirs 2 and 2. Resamples of ours win with 0, 1/2 or 1."""
    ours, others = np.asarray([[1.0], [3.0]]), np.asarray([[2.0], [2.0]])
    assert stratified_interval(probability_of_improvement, ours, others) == (0.5, 0.0, 1.0)
    assert stratified_interval(probability_of_improvement, others, ours) == (0.5, 0.0, 1.0)


def test_seeds_are_resampled_within_each_task() -> None:
    """Resampled rows would always have the mean 0.5; resampled tasks would give the second case a spread."""
    assert stratified_interval(mean_score, np.asarray([[0.0, 1.0], [1.0, 0.0]])) == (0.5, 0.0, 1.0)
    assert stratified_interval(mean_score, np.asarray([[0.0, 90.0], [0.0, 90.0]])) == (45.0, 45.0, 45.0)


def test_both_variants_are_resampled_independently() -> None:
    """With shared draws the difference of equal scores would be 0 in every resample."""

    def difference(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
        return mean_score(ours) - mean_score(others)

    estimate = stratified_interval(difference, scores(4, 3), scores(4, 3))
    assert estimate.low is not None
    assert estimate.low < -10.0


def test_equal_seeds_give_equal_intervals() -> None:
    matrix = scores(4, 6)
    assert stratified_interval(iqm, matrix, seed=1) == stratified_interval(iqm, matrix, seed=1)
    assert stratified_interval(iqm, matrix, seed=1) != stratified_interval(iqm, matrix, seed=2)


def test_single_seed_has_no_interval() -> None:
    assert stratified_interval(mean_score, np.asarray([[2.0, 4.0]])) == (3.0, None, None)
    assert stratified_interval(probability_of_improvement, scores(3, 2) + 1e3, scores(1, 2)) == (1.0, None, None)


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ([np.zeros(3)], r"shape \(3,\)"),
        ([np.zeros((0, 3))], r"shape \(0, 3\)"),
        ([np.asarray([[1.0, math.nan]])], "NaN"),
        ([np.zeros((2, 3)), np.zeros((2, 1))], "tasks must be the same"),
    ],
)
def test_invalid_score_matrices_are_user_errors(matrices: list[np.ndarray], message: str) -> None:
    with pytest.raises(UserError, match=message):
        stratified_interval(mean_score, *matrices)
