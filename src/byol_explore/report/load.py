"""Runs as the report needs them: every run directory below some directories, read once, as columns of numbers."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.errors import UserError
from byol_explore.evaluation.paper import REFERENCES
from byol_explore.registries import METHODS
from byol_explore.report.logs import log_of, rows_of
from byol_explore.report.metrics_table import read_by_report
from byol_explore.report.words import listed
from byol_explore.settings.config import flatten
from byol_explore.settings.presets import ABLATIONS

_SEED = re.compile(r"-seed\d+$")


class Log(NamedTuple):
    """What is kept of a log of R lines; NaN where a line does not say."""

    columns: dict[str, np.ndarray]  # [R] by name
    scores: dict[str, np.ndarray]  # [R] by task; returns where nothing says what a success is
    returns: dict[str, np.ndarray]  # [R] by task: of training episodes
    best_evaluation: dict[str, np.ndarray]  # [R] by task: the highest so far
    prediction_error: np.ndarray  # [R, K], K = 0 for methods that have none


class Run(NamedTuple):
    directory: Path
    root: Path  # the directory that was given, at or above it
    variant: str
    env: str  # its tasks, with commas
    seed: int
    config: dict[str, Any]  # with dots in the names: "curiosity.horizon"
    summary: dict[str, Any]  # empty while it trains
    log: Log

    @property
    def tasks(self) -> list[str]:
        return split_tasks(self.env)

    @property
    def steps(self) -> np.ndarray:
        return self.log.columns["steps"]

    @property
    def last_step(self) -> int:
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def task_words(self) -> str:
        """Its tasks in few words."""
        return listed(self.tasks, most=2)

    @property
    def is_finished(self) -> bool:
        """It has a summary, and has not gone on since."""
        ended = bool(self.summary) and not self.summary.get("interrupted", False)
        return ended and self.summary.get("steps", 0) >= self.last_step

    @property
    def stopped_at_success(self) -> bool:
        """Whether it ended early because nothing was left to learn."""
        asked = float(self.config.get("stop_at_success", 0.0)) > 0.0
        return asked and self.is_finished and self.last_step < int(self.config.get("steps", 0))


class Runs(NamedTuple):
    """All runs of a report."""

    runs: list[Run]  # by variant, tasks and seed
    variants: list[str]  # the main one first
    tasks: list[str]
    roots: list[Path]
    unreadable: list[str]  # directories whose configuration cannot be read, with the reason
    by_return: frozenset[str]  # tasks whose scores are returns, because nobody has defined a success

    @property
    def normalized(self) -> list[str]:
        """Tasks whose scores can be compared with each other: something says what 0 and 100 percent are."""
        return [task for task in self.tasks if task not in self.by_return]

    @property
    def main(self) -> str:
        return self.variants[0]

    def of(self, variant: str, task: str | None = None) -> list[Run]:
        """Runs of a variant, on a task; by seed."""
        return [run for run in self.runs if run.variant == variant and (task is None or task in run.tasks)]

    def method(self, variant: str) -> str:
        return str(self.of(variant)[0].config.get("method"))

    def groups(self) -> list[tuple[str, list[str]]]:
        """Variants that are shown together: as in the paper baselines and ablations, or all if there is one kind."""
        ours = {name for name in self.variants if self.method(name) == self.method(self.main)}
        baselines = [name for name in self.variants if name == self.main or name not in ours]
        ablations = [name for name in self.variants if name == self.main or name in ours]
        if min(len(baselines), len(ablations)) == 1:
            return [("", self.variants)]
        return [("baselines", baselines), ("ablations", ablations)]


def load_runs(directories: Sequence[Path]) -> Runs:
    """Every run at or below the directories; a UserError for one that holds none."""
    roots, unreadable = [Path(directory) for directory in directories], []
    if not roots:
        raise UserError("no directory was given: name at least one that holds runs")
    found: dict[Path, Run] = {}
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is not a directory: name one that holds runs")
        paths = list(run_directories(root))
        if not paths:
            raise UserError(f"{root} holds no run: neither it nor anything below it has config.json and metrics.jsonl")
        for path in paths:
            if path.resolve() in found:
                continue
            try:
                found[path.resolve()] = _load_run(path, root)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                unreadable.append(f"{path.relative_to(root.parent)}: {error}")
    if not found:
        raise UserError(f"no run can be read: {unreadable[0]}")
    by_return = _without_success(list(found.values()))
    runs = _told_apart([_scored_by_return(run, by_return) for run in found.values()])
    variants = _in_order(runs)
    runs.sort(key=lambda run: (variants.index(run.variant), run.env, run.seed))
    return Runs(runs, variants, _all_tasks(runs), roots, unreadable, by_return)


def split_tasks(env: str) -> list[str]:
    return [name.strip() for name in env.split(",")]


def run_directories(root: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Directories with config.json and a log, without looking into a run's own or round in circles."""
    if root.resolve() in above:
        return
    if (root / "config.json").is_file() and log_of(root) is not None:
        yield root
        return
    for path in sorted(root.iterdir(), key=lambda path: _natural(path.name)):
        if path.is_dir() and not path.name.startswith("."):
            yield from run_directories(path, above | {root.resolve()})


def _load_run(directory: Path, root: Path) -> Run:
    settings = flatten(json.loads((directory / "config.json").read_text()))
    config: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    env, seed = str(config["env"]), int(config["seed"])
    metrics = log_of(directory)
    if metrics is None:
        raise ValueError("its log has gone")
    status = metrics.stat()
    log = _read_log(metrics, env, (status.st_mtime_ns, status.st_size))
    return Run(directory, root, _variant(directory, config), env, seed, config, _summary(directory), log)


def _summary(directory: Path) -> dict[str, Any]:
    try:
        summary = json.loads((directory / "summary.json").read_text())
    except (OSError, ValueError):
        return {}
    known = isinstance(summary, dict) and isinstance(summary.get("steps", 0), int)
    return summary if known else {}


def _variant(directory: Path, config: dict[str, Any]) -> str:
    """The directory's name without its seed; a directory named otherwise is called after its configuration."""
    if _SEED.search(directory.name):
        return _SEED.sub("", directory.name)
    parts = [config["method"]]
    if config["ablation"] != "none":
        parts.append(config["ablation"])
    if config["regime"] != "mixed":
        parts.append(config["regime"])
    return "-".join(parts)


@lru_cache(maxsize=512)
def _read_log(path: Path, env: str, stamp: tuple[int, int]) -> Log:
    """Line by line, so that only what is kept stays in memory; lines without a step are left out.

    A file that has not changed since (its stamp: time and size) is not read again.
    """
    tasks, kept = split_tasks(env), read_by_report()
    lines: list[list[float]] = []
    errors: list[list[float]] = []
    for row in rows_of(path):
        if not math.isfinite(_number(row.get("steps"))):
            continue
        scores = [number for task in tasks for number in _task_numbers(row, task, several=len(tasks) > 1)]
        lines.append([*(_number(row.get(name)) for name in kept), *scores])
        horizon = row.get("prediction_error")
        errors.append([_number(value) for value in horizon] if isinstance(horizon, list) else [])
    width = len(kept) + 3 * len(tasks)
    table = np.asarray(lines, np.float64).reshape(len(lines), width).T
    per_task = table[len(kept) :]
    longest = max(map(len, errors), default=0)
    by_horizon = np.asarray([row + [math.nan] * (longest - len(row)) for row in errors]).reshape(len(lines), longest)
    return Log(
        columns=dict(zip(kept, table, strict=False)),
        scores=dict(zip(tasks, per_task[0::3], strict=True)),
        returns=dict(zip(tasks, per_task[1::3], strict=True)),
        best_evaluation=dict(zip(tasks, per_task[2::3], strict=True)),
        prediction_error=by_horizon,
    )


def _task_numbers(row: dict[str, Any], task: str, *, several: bool) -> tuple[float, float, float]:
    """A task's score, return and best evaluation in a line of metrics.

    Where humans have a score, the score is the return of evaluation, or of training as long as there is none;
    elsewhere it is the share of successes in percent.
    """
    episodes, evaluation = row, {"return": row.get("evaluation_return"), "best": row.get("evaluation_best")}
    if several:
        episodes = (row.get("tasks") or {}).get(task) or {}
        evaluation = (row.get("evaluation") or {}).get(task) or {}
    value, evaluated, best = (
        _number(each) for each in (episodes.get("return_mean"), evaluation.get("return"), evaluation.get("best"))
    )
    if task not in REFERENCES:
        return 100.0 * _number(episodes.get("success_rate")), value, best
    return (value if math.isnan(evaluated) else evaluated), value, best


def _without_success(runs: list[Run]) -> frozenset[str]:
    """Tasks that have returns but in no run a score."""
    logged = [(task, run.log.scores[task], run.log.returns[task]) for run in runs for task in run.tasks]
    scored = {task for task, scores, _ in logged if np.isfinite(scores).any()}
    return frozenset(task for task, _, returns in logged if np.isfinite(returns).any()) - scored


def _scored_by_return(run: Run, tasks: frozenset[str]) -> Run:
    scores = {task: run.log.returns[task] if task in tasks else scores for task, scores in run.log.scores.items()}
    return run._replace(log=run.log._replace(scores=scores))


def _number(value: Any) -> float:
    if isinstance(value, float):  # nearly always, and asked millions of times
        return value
    return float(value) if isinstance(value, int) else math.nan


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs that share variant, task and seed, or a task among different others, are named after where they are."""
    names: tuple[Callable[[Run], str], ...] = (
        lambda run: run.variant,
        lambda run: f"{run.variant} in {run.root.name}",
        lambda run: str(_SEED.sub("", run.directory.relative_to(run.root.parent).as_posix())),
        lambda run: str(run.directory),
    )
    for name in names:
        alike: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in runs:
            for task in run.tasks:
                alike[run.variant, task].append(run)
        clashing = {
            variant
            for (variant, _), group in alike.items()
            if len({run.seed for run in group}) < len(group) or len({run.env for run in group}) > 1
        }
        runs = [run._replace(variant=name(run)) if run.variant in clashing else run for run in runs]
    return runs


def _in_order(runs: list[Run]) -> list[str]:
    """Main variant, methods, ablations as the paper lists them, and others by name."""
    first, methods = {run.variant: run for run in reversed(runs)}, METHODS.names()

    def place(name: str) -> tuple[Any, ...]:
        run = first[name]
        method, ablation = run.config.get("method"), run.config.get("ablation")
        plain = ablation == "none"
        return (
            name != methods[0],
            not (plain and method == methods[0]),
            not plain,
            methods.index(method) if method in methods else len(methods),
            list(ABLATIONS).index(ablation) if ablation in ABLATIONS else len(ABLATIONS),
            _natural(name),
        )

    return sorted(first, key=place)


def _all_tasks(runs: list[Run]) -> list[str]:
    return list(dict.fromkeys(task for run in runs for task in run.tasks))


def _natural(text: str) -> list[tuple[int, int, str]]:
    """So that rooms-10 comes after rooms-9."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", text)]
