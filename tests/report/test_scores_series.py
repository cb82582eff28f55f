"""Averages of seeds with different steps."""

import itertools

import numpy as np
import pytest

from byol_explore.report.read_runs import MAX_POINTS
from byol_explore.report.scores import (
    Series,
    common_grid,
    even_indices,
    make_curve,
    make_curves,
    mean_over_seeds,
)


def series(steps: list[float], values: list[float], *, stays: bool = False) -> Series:
    return Series(np.asarray(steps), np.asarray(values), stays)


def test_curves_average_seeds_between_their_first_and_last_step() -> None:
    [curve] = make_curves({"rnd": [series([0, 10, 20], [0, 1, 2]), series([10, 30], [3, 7])]})
    assert curve.x == [0, 10, 20, 30]
    assert curve.mean == [0, 2, 3.5, 7], "between its steps a seed is interpolated, outside it has no say"
    assert curve.low == [0, 1, 2, 7]
    assert curve.high == [0, 3, 5, 7]


def test_run_that_stopped_at_success_keeps_its_score() -> None:
    [curve] = make_curves({"rnd": [series([10, 20], [0, 100], stays=True), series([10, 30], [0, 50])]})
    assert curve.mean == [0, 62.5, 75]


def test_single_seed_has_no_band_and_no_seeds_no_curve() -> None:
    curves = make_curves({"rnd": [series([1, 2], [5, 6])], "icm": []})
    assert [(curve.variant, curve.mean, curve.low) for curve in curves] == [("rnd", [5, 6], [None, None])]


def test_steps_without_values_are_unknown() -> None:
    curve = make_curve("rnd", np.arange(2.0), np.asarray([[np.nan, 1.0], [np.nan, 3.0]]))
    assert (curve.mean, curve.low, curve.high) == ([None, 2.0], [None, 1.0], [None, 3.0])
    np.testing.assert_array_equal(mean_over_seeds(np.asarray([[np.nan, 1.0], [np.nan, 3.0]])), [np.nan, 2.0])


def test_long_curves_keep_some_of_the_logged_steps() -> None:
    steps = np.arange(1.0, 1001.0) ** 2
    grid = common_grid([Series(steps, steps)])
    assert len(grid) == MAX_POINTS
    assert set(grid) <= set(steps)
    assert (grid[0], grid[-1]) == (steps[0], steps[-1])
    assert len(common_grid([Series(steps, steps)], max_points=None)) == 1000


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 1000])
def test_even_indices_include_first_and_last(count: int) -> None:
    kept = even_indices(count, 200).tolist()
    assert len(kept) == min(count, 200)
    assert kept[:1] + kept[-1:] == ([0, count - 1] if count else [])
    gaps = {after - before for before, after in itertools.pairwise(kept)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert 0 not in gaps
