"""Runs as the report needs them: every run directory below some directories, read once, as columns of numbers."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.errors import UserError
from byol_explore.registries import METHODS
from byol_explore.report.finding import folders, natural
from byol_explore.report.log_columns import Log, read_log
from byol_explore.report.logs import PLAIN, log_of
from byol_explore.report.metrics_table import SUCCESS
from byol_explore.report.own_files import DAMAGE, read_object
from byol_explore.report.run_config import read_config
from byol_explore.report.words import brief, listed, printable, shown_path, why
from byol_explore.settings.presets import ABLATIONS

_SEED = re.compile(r"-seed\d+$")


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
        """As its log names them, or its configuration as long as there is no log."""
        return self.log.tasks

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
        """Whether it ended early because nothing was left to learn, and not because somebody stopped it."""
        enough, success = float(self.config.get("stop_at_success", 0.0)), self.log.columns[SUCCESS.name]
        early = self.is_finished and 0 < self.last_step < int(self.config.get("steps", 0))
        return early and enough > 0.0 and bool(success[-1] >= enough)


class Runs(NamedTuple):
    """All runs of a report."""

    runs: list[Run]  # by variant, tasks and seed
    variants: list[str]  # the main one first
    tasks: list[str]
    roots: list[Path]
    unreadable: list[str]  # directories whose configuration cannot be read, with the reason
    by_return: frozenset[str]  # tasks whose scores are returns: no success is defined, or nothing was evaluated

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

    def regime(self, variant: str) -> str:
        """Without a curiosity every regime is the same."""
        return "mixed" if self.method(variant) == "none" else str(self.of(variant)[0].config.get("regime"))

    def groups(self) -> list[tuple[str, list[str]]]:
        """Variants that are shown together, the main one in every group; all of them if there is one kind.

        As in the paper there are baselines and ablations; and there are those whose rewards are of another regime.
        """
        others: dict[str, list[str]] = {"baselines": [], "ablations": [], "regimes": []}
        for variant in self.variants[1:]:
            if self.regime(variant) != self.regime(self.main):
                others["regimes"].append(variant)
            else:
                others["ablations" if self.method(variant) == self.method(self.main) else "baselines"].append(variant)
        groups = [(kind, [self.main, *variants]) for kind, variants in others.items() if variants]
        return groups if len(groups) > 1 else [("", self.variants)]


def load_runs(directories: str | Path | Iterable[str | Path]) -> Runs:
    """Every run at or below a directory, or several; a UserError for one that holds none.

    What cannot be read is named in the result and left out.
    """
    roots = [Path(directories)] if isinstance(directories, str | Path) else [Path(each) for each in directories]
    if not roots:
        raise UserError("no directory was given: name at least one that holds runs")
    found: dict[Path, Run] = {}
    unreadable: list[str] = []
    for root in roots:
        _load_below(root, found, unreadable)
    if not found:
        raise UserError(f"no run can be read: {unreadable[0]}")
    loaded = _named_alike(list(found.values()))
    by_return = _without_score(loaded)
    runs = _told_apart([_scored_by_return(run, by_return) for run in loaded])
    variants = _in_order(runs)
    runs.sort(key=lambda run: (variants.index(run.variant), run.env, run.seed))
    return Runs(runs, variants, _all_tasks(runs), roots, list(dict.fromkeys(unreadable)), by_return)


def _load_below(root: Path, found: dict[Path, Run], unreadable: list[str]) -> None:
    """Add the runs at or below a directory to those that were found already, by their real paths."""
    if not root.is_dir():
        raise UserError(f"{printable(root)} is not a directory: name one that holds runs")
    below = list(folders(root))
    if not any(folder.is_run or folder.why_unreadable for folder in below):
        raise UserError(
            f"{printable(root)} holds no run: neither it nor anything below it has config.json and metrics.jsonl"
        )
    for path, is_run, unread in below:
        if unread:
            unreadable.append(_reason(path, root, unread))
        elif is_run and path.resolve() not in found:
            try:
                found[path.resolve()] = _load_run(path, root)
            except DAMAGE as error:
                unreadable.append(_reason(path, root, why(error)))


def _reason(path: Path, root: Path, words: str) -> str:
    return f"{shown_path(path, root)}: {brief(words)}"


def _load_run(directory: Path, root: Path) -> Run:
    config = read_config(directory)
    metrics = log_of(directory)
    if metrics is None:
        raise ValueError(f"{PLAIN} is no file in this directory")
    status = metrics.stat()
    log = read_log(metrics, config["env"], (status.st_mtime_ns, status.st_size))
    variant = _variant(directory, config)
    return Run(directory, root, variant, config["env"], config["seed"], config, _summary(directory), log)


def _summary(directory: Path) -> dict[str, Any]:
    """Empty where there is none, or none that says its steps."""
    try:
        summary = read_object(directory, "summary.json")
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary.get("steps", 0), int) else {}


def _variant(directory: Path, config: dict[str, Any]) -> str:
    """The directory's name without its seed; a directory named otherwise is called after its configuration."""
    if _SEED.search(directory.name):
        return printable(_SEED.sub("", directory.name))
    changes = (("ablation", "none"), ("regime", "mixed"))
    return "-".join([config["method"], *(config[name] for name, usual in changes if config.get(name, usual) != usual)])


def _named_alike(runs: list[Run]) -> list[Run]:
    """A run without a log line has the tasks of others in the same environments: it does not know them yet."""
    logs = {run.env: run.log for run in runs if len(run.steps)}
    return [run if len(run.steps) or run.env not in logs else run._replace(log=logs[run.env].emptied()) for run in runs]


def _without_score(runs: list[Run]) -> frozenset[str]:
    """Tasks that have returns but in no run a score."""
    logged = [(task, run.log.scores[task], run.log.returns[task]) for run in runs for task in run.tasks]
    scored = {task for task, scores, _ in logged if np.isfinite(scores).any()}
    return frozenset(task for task, _, returns in logged if np.isfinite(returns).any()) - scored


def _scored_by_return(run: Run, tasks: frozenset[str]) -> Run:
    scores = {task: run.log.returns[task] if task in tasks else scores for task, scores in run.log.scores.items()}
    return run._replace(log=run.log._replace(scores=scores))


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs that share variant, task and seed, or a task among different others, are named after where they are."""
    names: tuple[Callable[[Run], str], ...] = (
        lambda run: run.variant,
        lambda run: f"{run.variant} in {printable(run.root.name)}",
        lambda run: printable(_SEED.sub("", run.directory.relative_to(run.root.parent).as_posix())),
        lambda run: printable(run.directory),
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
            natural(name),
        )

    return sorted(first, key=place)


def _all_tasks(runs: list[Run]) -> list[str]:
    return list(dict.fromkeys(task for run in runs for task in run.tasks))
