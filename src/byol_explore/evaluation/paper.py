"""The paper's result tables, under our names of tasks and variants.

The files in data/paper are as printed; its README.md names the table each is from.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

from byol_explore.envs.adapters.atari_games import HARD_GAMES
from byol_explore.envs.adapters.dm_hard_eight_settings import LEVELS, PREFIX
from byol_explore.envs.worlds.hard_eight.settings import SCORES
from byol_explore.errors import UserError, unknown
from byol_explore.evaluation.aggregate import STATISTICS

Numbers = dict[str, dict[str, float]]  # by variant, then by task or statistic


class PaperTable(NamedTuple):
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

OWN = {f"hard-eight:{task}": scores for task, scores in SCORES.items()}  # Hard-Eight's: humans played the original

_GAMES = {f"atari:{name}": (game.random, game.human) for name, game in HARD_GAMES.items()}

REFERENCES = (
    _GAMES | {PREFIX + task: (level.random, level.human) for task, level in LEVELS.items()} | OWN
)  # (random, human) of the paper's 18 tasks, and of our own

# Section 4: games are scored in episodes of their own, with random no-ops first. For DM-HARD-8 the paper has no such
# rules: the score is the return of the agent's episodes, which are played alike in training and outside of it.
SCORED_BY_EVALUATION = frozenset(_GAMES)

_TASKS = {name.replace("_", " "): f"atari:{name}" for name in HARD_GAMES} | {
    label: name for name, label in HARD_EIGHT.items()
}
_VARIANTS = {label: variant for variant, label in LABELS.items()}
_HUMAN = "Average Human"


def paper_scores(table: str) -> Numbers:
    """Best score over training by variant and task: {"rnd": {"atari:alien": 74717.02, ...}, ...}."""
    _check(table)
    rows = _read(table.replace("-", "_"))
    tasks = [_TASKS[row["Games"]] for row in rows]
    return {
        _VARIANTS[label]: {task: float(row[label]) for task, row in zip(tasks, rows, strict=True)}
        for label in list(rows[0])[1:]
        if label != _HUMAN
    }


def paper_statistics(table: str) -> Numbers:
    """What the paper prints of a table's scores, by variant and in the words of `aggregate`."""
    _check(table)
    if not TABLES[table].has_statistics:
        raise UserError(f"the paper prints no statistics of {table!r}; only of: {', '.join(_with_statistics())}")
    rows = _read(f"{table.replace('-', '_')}_statistics")
    return {
        _VARIANTS[label]: {name: float(row[label]) for name, row in zip(STATISTICS, rows, strict=True)}
        for label in list(rows[0])[1:]
    }


def _with_statistics() -> list[str]:
    return [name for name, table in TABLES.items() if table.has_statistics]


def _check(table: str) -> None:
    if table not in TABLES:
        raise unknown("table of the paper", table, list(TABLES))


def _read(name: str) -> list[dict[str, str]]:
    text = files("byol_explore").joinpath("data", "paper", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
