"""The log of a run as columns of numbers."""

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.evaluation.paper import REFERENCES
from byol_explore.report.logs import number, rows_of
from byol_explore.report.metrics_table import read_by_report
from byol_explore.report.run_config import split_tasks

MOST_HORIZONS = 1_000


class Log(NamedTuple):
    """What is kept of a log of R lines; NaN where a line does not say."""

    columns: dict[str, np.ndarray]  # [R] by name
    scores: dict[str, np.ndarray]  # [R] by task; returns where nothing says what a success is
    returns: dict[str, np.ndarray]  # [R] by task: of training episodes
    best_evaluation: dict[str, np.ndarray]  # [R] by task: the highest so far
    prediction_error: np.ndarray  # [R, K], K = 0 for methods that have none


@lru_cache(maxsize=512)
def read_log(path: Path, env: str, stamp: tuple[int, int]) -> Log:
    """Line by line, so that only what is kept stays in memory; in the order of steps, the last line of each.

    A file that has not changed since (its stamp: time and size) is not read again.
    """
    tasks, kept = split_tasks(env), read_by_report()
    steps: list[float] = []
    lines: list[list[float]] = []
    errors: list[list[float]] = []
    for row in rows_of(path):
        steps.append(row["steps"])
        scores = [each for task in tasks for each in _task_numbers(row, task, several=len(tasks) > 1)]
        lines.append([*(number(row.get(name)) for name in kept), *scores])
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
        prediction_error=by_horizon[order],
    )


def _in_order(steps: list[float]) -> np.ndarray:
    """Places of lines by their steps, which go back where a log is damaged; of those with the same step the last."""
    _, last = np.unique(np.asarray(steps, np.float64)[::-1], return_index=True)
    return len(steps) - 1 - last


def _task_numbers(row: dict[str, Any], task: str, *, several: bool) -> tuple[float, float, float]:
    """A task's score, return and best evaluation in a line of metrics.

    Where humans have a score, the score is the return of evaluation, or of training as long as there is none;
    elsewhere it is the share of successes in percent.
    """
    episodes, evaluation = row, {"return": row.get("evaluation_return"), "best": row.get("evaluation_best")}
    if several:
        episodes = _entry(_entry(row, "tasks"), task)
        evaluation = _entry(_entry(row, "evaluation"), task)
    value, evaluated, best = (
        number(each) for each in (episodes.get("return_mean"), evaluation.get("return"), evaluation.get("best"))
    )
    if task not in REFERENCES:
        return 100.0 * number(episodes.get("success_rate")), value, best
    return (value if math.isnan(evaluated) else evaluated), value, best


def _entry(table: dict[str, Any], name: str) -> dict[str, Any]:
    """A table inside a table; empty where there is none."""
    entry = table.get(name)
    return entry if isinstance(entry, dict) else {}
