"""Human-normalised scores, statistics over tasks and seeds with intervals, and the paper's result tables.

The paper takes each task's best score over training, normalises it with a human's score, and reports means and
percentiles over tasks: `paper_statistics_of`. With few seeds such numbers vary a lot between sets of seeds. Agarwal et
al. (2021, "Deep reinforcement learning at the edge of the statistical precipice") therefore aggregate all scores [S, N]
(seeds, tasks) at once and add an interval: `stratified_interval`.

`paper_scores` and `paper_statistics` read the paper's tables with our names of tasks and variants. The files in
data/paper are copies of the printed tables; its README.md names the table of each.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from byol_explore.envs.families import HARD_GAMES, LEVELS, PREFIX
from byol_explore.envs.hard_eight.tasks import SCORES
from byol_explore.errors import UserError, unknown_name

PERCENTILES = (40, 30, 20, 10, 5)
STATISTICS = (
    "mean CHNS",
    "superhuman tasks",
    "mean HNS",
    "median HNS",
    *(f"{percentile}% percentile HNS" for percentile in PERCENTILES),
)

Statistic = Callable[..., np.ndarray]  # one or two arrays of scores [..., S, N] -> [...]


class Interval(NamedTuple):
    """A statistic with its 95% confidence interval; None with a single seed, which has no spread."""

    mean: float
    low: float | None
    high: float | None


def paper_statistics_of(scores: Mapping[str, float], references: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Compute the statistics of the paper's tables, in their order.

    Args:
      scores: raw score by task.
      references: (random, human) scores by task.
    Returns:
      Values by name in `STATISTICS`. HNS is the human-normalised score in percent, CHNS the same clipped to 0..100.
    """
    if not scores:
        raise UserError("there are no scores to aggregate")
    for task, score in scores.items():
        if task not in references:
            raise unknown_name("task", task, list(references))
        if not math.isfinite(score):
            raise UserError(f"the score of {task!r} is {score}: it must be a finite number")
    percents = [human_normalized(score, references[task]) for task, score in scores.items()]
    tail = np.percentile(percents, (50, *PERCENTILES), method="linear")
    superhuman = sum(percent > 100.0 for percent in percents)
    head = [np.mean([clipped(percent) for percent in percents]), superhuman, np.mean(percents)]
    return dict(zip(STATISTICS, map(float, [*head, *tail]), strict=True))


def mean_score(scores: np.ndarray) -> np.ndarray:
    """Return the mean [...] over seeds and tasks of scores [..., S, N]."""
    return np.mean(scores, axis=(-2, -1))


def median_score(scores: np.ndarray) -> np.ndarray:
    """Return the median over tasks [...] of the means over seeds of scores [..., S, N]."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def iqm(scores: np.ndarray) -> np.ndarray:
    """Return the interquartile mean [...]: the mean of scores [..., S, N] without the lowest and highest quarter."""
    ordered = np.sort(np.reshape(scores, (*np.shape(scores)[:-2], -1)), axis=-1)
    count = ordered.shape[-1]
    return np.mean(ordered[..., count // 4 : count - count // 4], axis=-1)


def optimality_gap(scores: np.ndarray, goal: float = 100.0) -> np.ndarray:
    """Return the mean shortfall [...] of scores [..., S, N] from the goal; scores above it count as equal to it."""
    return goal - np.mean(np.minimum(scores, goal), axis=(-2, -1))


def probability_of_improvement(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the probability [...] that our score is higher, for random seeds and a random task; ties count as half.

    Args:
      ours: [..., S, N] our scores.
      others: [..., R, N] the scores of the other variant.
    """
    difference = np.sign(ours[..., :, None, :] - others[..., None, :, :])  # [..., S, R, N]
    return np.mean((1.0 + difference) / 2.0, axis=(-3, -2, -1))


def stratified_interval(statistic: Statistic, *scores: np.ndarray, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return a statistic with a percentile bootstrap interval that resamples seeds within each task.

    Tasks are fixed; seeds are independent between tasks and between methods. Examples:
    `stratified_interval(iqm, ours)`, `stratified_interval(probability_of_improvement, ours, others)`.

    Args:
      statistic: function of the arrays in `scores`.
      scores: arrays [S, N] of seeds and the same tasks.
      resamples: number of bootstrap samples.
      seed: seed of the bootstrap.
    """
    matrices = [_as_matrix(matrix) for matrix in scores]
    if len({matrix.shape[1] for matrix in matrices}) > 1:
        raise UserError(f"scores have the shapes {[matrix.shape for matrix in matrices]}: their tasks must be the same")
    if any(len(matrix) == 1 for matrix in matrices):
        return Interval(float(statistic(*matrices)), None, None)
    return _bootstrap(statistic, matrices, resamples, seed)


def mean_interval(values: np.ndarray, *, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the mean of values [E] with its percentile bootstrap interval."""
    return _bootstrap(mean_score, [np.asarray(values)[:, None]], resamples, seed)


def _bootstrap(statistic: Statistic, matrices: Sequence[np.ndarray], resamples: int, seed: int) -> Interval:
    generator = np.random.default_rng(seed)
    samples = statistic(*(_resample(matrix, resamples, generator) for matrix in matrices))
    low, high = np.percentile(samples, [2.5, 97.5])
    return Interval(float(statistic(*matrices)), float(low), float(high))


def _resample(scores: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return bootstrap samples [B, S, N]: S seeds drawn with replacement, independently for each task."""
    seeds, tasks = scores.shape
    indices = generator.integers(0, seeds, (resamples, seeds, tasks))
    return scores[indices, np.arange(tasks)]


def _as_matrix(scores: np.ndarray) -> np.ndarray:
    """Return scores [S, N] as float64; raise a UserError for other shapes and values that are not finite."""
    # Sorting would put a NaN last, and the interquartile mean would drop it in silence.
    matrix = np.asarray(scores, float)
    if matrix.ndim != 2 or matrix.size == 0:
        raise UserError(f"scores have the shape {matrix.shape}: they must be [seeds, tasks], with at least one of each")
    if not np.all(np.isfinite(matrix)):
        raise UserError("scores hold a NaN or an infinity: leave out tasks that some seed has no score for")
    return matrix


_Z = 1.959964  # 95%


def rate_interval(successes: np.ndarray) -> Interval:
    """Return the share of successes [E] with Wilson's interval, which is valid at 0 and 1 too."""
    n, rate = len(successes), float(np.mean(successes))
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    spread = _Z / (1 + _Z**2 / n) * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    return Interval(rate, max(centre - spread, 0.0), min(centre + spread, 1.0))


def human_normalized(score: float, references: tuple[float, float]) -> float:
    """Normalise a score to percent: 0 for random actions, 100 for a human; `references` are those two scores."""
    random, human = references
    return 100.0 * (score - random) / (human - random)


def clipped(percent: float) -> float:
    """Clip a percentage to 0..100, so that one superhuman task does not compensate for others."""
    return min(max(percent, 0.0), 100.0)


Numbers = dict[str, dict[str, float]]  # by variant, then by task or statistic


class PaperTable(NamedTuple):
    """A results table of the paper."""

    title: str
    regime: str
    has_statistics: bool = True


TABLES = {
    "atari-mixed-baselines": PaperTable("Ten hardest Atari games: BYOL-Explore and baselines", "mixed"),
    "atari-mixed-ablations": PaperTable("Ten hardest Atari games: BYOL-Explore and ablations", "mixed"),
    "atari-intrinsic-baselines": PaperTable("Ten hardest Atari games by curiosity alone", "intrinsic", False),
    "hard-eight-baselines": PaperTable("DM-HARD-8: BYOL-Explore and baselines", "mixed"),
    "hard-eight-ablations": PaperTable("DM-HARD-8: BYOL-Explore and ablations", "mixed"),
}

LABELS = {  # the paper's names of variants
    "byol-explore": "BYOL-Explore",
    "rnd": "RND",
    "icm": "ICM",
    "none": "RL",
    "big": "BYOL-Explore (big)",  # horizon 1, sequences of 128 steps
    "no-clipping": "No clipping",
    "fixed-targets": "Fixed targets",
    "no-sharing": "No sharing",
    "horizon-1": "Horizon=1",
}

HARD_EIGHT = {PREFIX + task: task.replace("-", " ").title() for task in LEVELS}  # the paper's names of these tasks

HARD_EIGHT_REFERENCES = {f"hard-eight:{task}": scores for task, scores in SCORES.items()}  # humans played DM-HARD-8

_GAMES = {f"atari:{name}": (game.random, game.human) for name, game in HARD_GAMES.items()}

_LEVELS = {PREFIX + task: (level.random, level.human) for task, level in LEVELS.items()}
REFERENCES = _GAMES | _LEVELS | HARD_EIGHT_REFERENCES  # (random, human) scores of the paper's 18 tasks and of our 8

# Section 4: Atari games are scored in evaluation episodes that start with random no-ops. The paper has no such protocol
# for DM-HARD-8: the score is the return of training episodes, whose rules are those of evaluation.
SCORED_BY_EVALUATION = frozenset(_GAMES)

_TASKS = {name.replace("_", " "): f"atari:{name}" for name in HARD_GAMES}
_TASKS |= {label: name for name, label in HARD_EIGHT.items()}
_VARIANTS = {label: variant for variant, label in LABELS.items()}


def paper_scores(table: str) -> Numbers:
    """Return the best score over training by variant and task: {"rnd": {"atari:alien": 74717.02, ...}, ...}."""
    rows = _read_table(table)
    return _by_variant(rows, [_TASKS[row["Games"]] for row in rows])


def paper_statistics(table: str) -> Numbers:
    """Return the printed statistics of a table, by variant and name in `STATISTICS`."""
    return _by_variant(_read_table(table, "_statistics"), STATISTICS)


def _by_variant(rows: list[dict[str, str]], keys: Sequence[str]) -> Numbers:
    """Return the columns of a table without the first one and that of humans; `keys` name the rows."""
    return {
        _VARIANTS[label]: {key: float(row[label]) for key, row in zip(keys, rows, strict=True)}
        for label in list(rows[0])[1:]
        if label != "Average Human"
    }


def _read_table(table: str, suffix: str = "") -> list[dict[str, str]]:
    if table not in TABLES:
        raise unknown_name("table of the paper", table, list(TABLES))
    if suffix and not TABLES[table].has_statistics:
        known = ", ".join(name for name, table in TABLES.items() if table.has_statistics)
        raise UserError(f"the paper prints no statistics of {table!r}; only of: {known}")
    name = f"{table.replace('-', '_')}{suffix}.csv"
    text = files("byol_explore").joinpath("data", "paper", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
