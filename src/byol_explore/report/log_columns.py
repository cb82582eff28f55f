"""The log of a run as columns of numbers."""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.evaluation.paper import REFERENCES, SCORED_BY_EVALUATION
from byol_explore.report.logs import number, rows_of
from byol_explore.report.metrics_table import read_by_report
from byol_explore.report.run_config import MOST_LETTERS, logged_tasks, split_tasks
from byol_explore.report.words import brief

MOST_HORIZONS = 1_000
MOST_STAGES = 50


class Log(NamedTuple):
    """What is kept of a log of R lines; NaN where a line does not say."""

    columns: dict[str, np.ndarray]  # [R] by name
    scores: dict[str, np.ndarray]  # [R] by task; returns where nobody has a score
    returns: dict[str, np.ndarray]  # [R] by task: of training episodes
    best_evaluation: dict[str, np.ndarray]  # [R] by task: the highest so far
    stages: dict[str, dict[str, np.ndarray]]  # [R] by task and stage: the share of training episodes that reached it
    prediction_error: np.ndarray  # [R, K], K = 0 for methods that have none

    @property
    def tasks(self) -> list[str]:
        return list(self.scores)

    def emptied(self) -> "Log":
        """The same without a line."""
        return Log(*map(_emptied, self))


def _emptied(part: Any) -> Any:
    return {name: _emptied(each) for name, each in part.items()} if isinstance(part, dict) else part[:0]


@lru_cache(maxsize=512)
def read_log(path: Path, env: str, stamp: tuple[int, int]) -> Log:
    """Line by line, so that only what is kept stays in memory; in the order of steps, the last line of each.

    A file that has not changed since (its stamp: time and size) is not read again.
    """
    tasks, kept = split_tasks(env), read_by_report()
    steps: list[float] = []
    lines: list[list[float]] = []
    reached: list[dict[tuple[str, str], float]] = []
    errors: list[list[float]] = []
    for row in rows_of(path):
        tasks = tasks if steps else logged_tasks(row) or tasks
        steps.append(row["steps"])
        parts = {task: _of_task(row, task, several=len(tasks) > 1) for task in tasks}
        scores = [each for task, part in parts.items() for each in _task_numbers(task, *part)]
        lines.append([*(number(row.get(name)) for name in kept), *scores])
        reached.append({(task, stage): share for task, part in parts.items() for stage, share in _shares(part[0])})
        horizon = row.get("prediction_error")
        errors.append([number(value) for value in horizon[:MOST_HORIZONS]] if isinstance(horizon, list) else [])
    order = _in_order(steps)
    width = len(kept) + 3 * len(tasks)
    table = np.asarray(lines, np.float64).reshape(len(lines), width)[order].T
    per_task = table[len(kept) :]
    longest = max(map(len, errors), default=0)
    by_horizon = np.asarray([row + [math.nan] * (longest - len(row)) for row in errors]).reshape(len(lines), longest)
    return Log(
        columns=dict(zip(kept, table, strict=False)),
        scores=dict(zip(tasks, per_task[0::3], strict=True)),
        returns=dict(zip(tasks, per_task[1::3], strict=True)),
        best_evaluation=dict(zip(tasks, per_task[2::3], strict=True)),
        stages=_stages(tasks, reached, order),
        prediction_error=by_horizon[order],
    )


def _stages(
    tasks: list[str], reached: list[dict[tuple[str, str], float]], order: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Columns of what lines say of stages."""
    found: dict[str, dict[str, np.ndarray]] = {task: {} for task in tasks}
    for task, stage in dict.fromkeys(pair for line in reached for pair in line):
        if len(found[task]) < MOST_STAGES:
            column = np.asarray([line.get((task, stage), math.nan) for line in reached], np.float64)
            found[task][stage] = column[order]
    return found


def _in_order(steps: list[float]) -> np.ndarray:
    """Places of lines by their steps, which go back where a log is damaged; of those with the same step the last."""
    _, last = np.unique(np.asarray(steps, np.float64)[::-1], return_index=True)
    return len(steps) - 1 - last


def _of_task(row: dict[str, Any], task: str, *, several: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a line of metrics says of a task's episodes of training, and of its evaluation."""
    if several:
        return _entry(_entry(row, "tasks"), task), _entry(_entry(row, "evaluation"), task)
    return row, {"return": row.get("evaluation_return"), "best": row.get("evaluation_best")}


def _task_numbers(task: str, episodes: dict[str, Any], evaluation: dict[str, Any]) -> tuple[float, float, float]:
    """A task's score, return and best evaluation.

    Where humans have a score, the score is a return: of an evaluation alone in games, which have rules for it, and of
    training episodes in other tasks. Elsewhere it is the share of successes in percent.
    """
    value, evaluated, best = (
        number(each) for each in (episodes.get("return_mean"), evaluation.get("return"), evaluation.get("best"))
    )
    if task not in REFERENCES:
        return 100.0 * number(episodes.get("success_rate")), value, best
    return (evaluated if task in SCORED_BY_EVALUATION else value), value, best


def _shares(episodes: dict[str, Any]) -> list[tuple[str, float]]:
    """Stages by names that can be shown."""
    return [(brief(stage, MOST_LETTERS), number(share)) for stage, share in _entry(episodes, "stages").items()]


def _entry(table: dict[str, Any], name: str) -> dict[str, Any]:
    """A table inside a table; empty where there is none."""
    entry = table.get(name)
    return entry if isinstance(entry, dict) else {}
