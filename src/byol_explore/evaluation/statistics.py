"""Confidence intervals for means and rates."""

import math
from typing import NamedTuple

import numpy as np

_Z = 1.959964  # 95%


class Interval(NamedTuple):
    """A mean with its 95% confidence interval."""

    mean: float
    low: float
    high: float


def rate_interval(successes: np.ndarray) -> Interval:
    """Wilson's interval for a share of successes; it is right at 0 and 1 too."""
    n, rate = len(successes), float(np.mean(successes))
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    spread = _Z / (1 + _Z**2 / n) * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    return Interval(rate, max(centre - spread, 0.0), min(centre + spread, 1.0))


def mean_interval(values: np.ndarray, *, resamples: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean."""
    generator = np.random.default_rng(seed)
    index = generator.integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(np.mean(np.asarray(values)[index], axis=1), [2.5, 97.5])
    return Interval(float(np.mean(values)), float(low), float(high))
