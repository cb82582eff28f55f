"""Load runs for a report: find the run directories, read each once, name and order their variants.

A variant is a group of runs that differ only in task and seed. Runs that cannot be read are listed with the reason and
left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.config.presets import ABLATIONS
from byol_explore.errors import UserError, unknown_name
from byol_explore.registry import METHODS
from byol_explore.report.read_runs import (
    MetricColumns,
    natural_key,
    read_columns,
    read_config_leniently,
    read_study,
    walk_folders,
)
from byol_explore.storage.metrics import LOG_NAME, find_log
from byol_explore.storage.run_directory import TRIALS, is_finished
from byol_explore.utils.files import DAMAGE_ERRORS, read_json_object
from byol_explore.utils.formatting import display_path, error_text, escape_unprintable, join_list, truncate

_SEED = re.compile(r"-seed\d+$")


class Run(NamedTuple):
    directory: Path
    root: Path  # the directory given by the user, at or above `directory`
    variant: str
    env: str  # as configured: one task, or several with commas
    seed: int
    config: dict[str, Any]  # by dotted name: "curiosity.horizon"
    summary: dict[str, Any]  # empty until training has ended
    log: MetricColumns
    damage: tuple[str, ...] = ()  # of its files, and what became of it

    @property
    def tasks(self) -> list[str]:
        """Return task names from the log; from the configuration as long as there is no log line."""
        return self.log.tasks

    @property
    def steps(self) -> np.ndarray:
        return self.log.columns["steps"]

    @property
    def last_step(self) -> int:
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def seconds(self) -> float:
        """Return the training time until the last log line; NaN without one."""
        return float(np.fmax.reduce(self.log.columns["elapsed_seconds"], initial=np.nan))

    @property
    def env_restarts(self) -> int:
        """Return how many environments were restarted after faults."""
        return int(np.fmax.reduce(self.log.columns["env_restarts"], initial=0.0))

    @property
    def task_text(self) -> str:
        return join_list(self.tasks, 2)

    @property
    def is_finished(self) -> bool:
        rate = float(self.config.get("stop_at_success_rate", 0.0))
        return is_finished(self.summary, int(self.config.get("steps", 0)), rate)

    @property
    def stopped_at_success(self) -> bool:
        """Return True if the run ended before its last step because its success rate was high enough."""
        return self.is_finished and self.summary["steps"] < int(self.config.get("steps", 0))

    @property
    def state(self) -> str:
        if not len(self.steps):
            return "no log line yet"
        if self.stopped_at_success:
            return "stopped at success"
        if self.is_finished:
            return "done"
        return "interrupted" if self.summary else "not finished"


class Runs(NamedTuple):
    """All runs of a report."""

    runs: list[Run]  # by variant, env and seed
    variants: list[str]  # the main one first
    tasks: list[str]
    roots: list[Path]
    unreadable: list[str]  # directories that cannot be read, with the reason
    damage: list[str]  # of files of runs that can be read
    scored_by_return: frozenset[str]  # tasks whose score is the training return: no success defined, or not evaluated

    @property
    def normalized(self) -> list[str]:
        """Return the tasks with comparable scores: 0 and 100 percent are defined."""
        return [task for task in self.tasks if task not in self.scored_by_return]

    @property
    def main(self) -> str:
        return self.variants[0]

    def select(self, variant: str | None = None, task: str | None = None, env: str | None = None) -> list[Run]:
        """Return the runs of a variant, on a task, with an env: those that are given."""
        return [
            run
            for run in self.runs
            if variant in (None, run.variant) and env in (None, run.env) and (task is None or task in run.tasks)
        ]

    def groups(self) -> list[tuple[str, list[str]]]:
        """Return groups of variants plotted together as (name, variants): baselines, ablations, other regimes.

        The main variant is in every group, as in the paper. One unnamed group if there is only one kind.
        """
        others: dict[str, list[str]] = {"baselines": [], "ablations": [], "regimes": []}
        main_method, main_regime = self._method_and_regime(self.main)
        for variant in self.variants[1:]:
            method, regime = self._method_and_regime(variant)
            kind = "ablations" if method == main_method else "baselines"
            others[kind if regime == main_regime else "regimes"].append(variant)
        groups = [(kind, [self.main, *variants]) for kind, variants in others.items() if variants]
        return groups if len(groups) > 1 else [("", self.variants)]

    def _method_and_regime(self, variant: str) -> tuple[Any, Any]:
        config = self.select(variant)[0].config
        # without curiosity all regimes are equal
        return config["method"], "mixed" if config["method"] == "none" else config.get("regime")


def load_runs(directories: str | Path | Iterable[str | Path], *, main: str = "") -> Runs:
    """Load every run at or below one or several directories; raise UserError if there is none.

    Args:
      directories: run or study directories, or directories above them.
      main: the variant that others are compared with; see `_main_variant` for the default.

    Returns:
      The runs, with variants in the order in which a report shows them.
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
    loaded = _share_task_names(list(found.values()))
    by_return = _tasks_without_score(loaded)
    runs = _separate_variants([_score_by_return(run, by_return) for run in loaded])
    variants = _order_variants(runs, main or _main_variant(runs, roots))
    runs.sort(key=lambda run: (variants.index(run.variant), run.env, run.seed))
    tasks = list(dict.fromkeys(task for run in runs for task in run.tasks))
    damage = [f"{display_path(run.directory, run.root)}/{each}" for run in runs for each in run.damage]
    return Runs(runs, variants, tasks, roots, list(dict.fromkeys(unreadable)), damage, by_return)


def _load_below(root: Path, found: dict[Path, Run], unreadable: list[str]) -> None:
    """Add the runs at or below `root` to `found`, by their real paths, and unreadable ones to `unreadable`."""
    if not root.is_dir():
        raise UserError(f"{escape_unprintable(root)} is not a directory: name one that holds runs")
    below = list(walk_folders(root))
    if not any(folder.is_run or folder.why_unreadable for folder in below):
        trials = f"; only trials of its search have run, in its directory {TRIALS}" if (root / TRIALS).is_dir() else ""
        place = escape_unprintable(root)
        raise UserError(f"{place} holds no run: no directory in it has config.json and {LOG_NAME}{trials}")
    for path, is_run, reason in below:
        if is_run and path.resolve() not in found:
            try:
                found[path.resolve()] = _load_run(path, root)
            except DAMAGE_ERRORS as error:
                reason = error_text(error)
        if reason:
            unreadable.append(f"{display_path(path, root)}: {truncate(reason)}")


def _load_run(directory: Path, root: Path) -> Run:
    config = read_config_leniently(directory)
    metrics = find_log(directory)
    if metrics is None:
        raise ValueError(f"{LOG_NAME} is no file in this directory")
    status = metrics.stat()
    log = read_columns(metrics, config["env"], (status.st_mtime_ns, status.st_size))
    variant = _variant_name(directory, config)
    summary, damage = _summary(directory)
    damages = tuple(filter(None, (log.damage, damage)))
    return Run(directory, root, variant, config["env"], config["seed"], config, summary, log, damages)


def _summary(directory: Path) -> tuple[dict[str, Any], str]:
    """Read summary.json. Returns an empty one if it is missing or damaged, and the damage."""
    try:
        return read_json_object(directory, "summary.json"), ""
    except (OSError, ValueError) as error:
        reason = truncate(error_text(error)).removeprefix("summary.json ")
        return {}, f"summary.json {reason}; it is ignored" if (directory / "summary.json").exists() else ""


def _variant_name(directory: Path, config: dict[str, Any]) -> str:
    """Return the directory's name without "-seedN"; without this suffix a name from the configuration."""
    if _SEED.search(directory.name):
        return escape_unprintable(_SEED.sub("", directory.name))
    changes = (("ablation", "none"), ("regime", "mixed"))
    return "-".join([config["method"], *(config[name] for name, usual in changes if config.get(name, usual) != usual)])


def _share_task_names(runs: list[Run]) -> list[Run]:
    """Give runs without a log line the task names of other runs in the same env."""
    logs = {run.env: run.log for run in runs if len(run.steps)}
    return [
        run if len(run.steps) or run.env not in logs else run._replace(log=logs[run.env].without_rows()) for run in runs
    ]


def _tasks_without_score(runs: list[Run]) -> frozenset[str]:
    """Return the tasks with returns but without a score in any run."""
    logged = [(task, run.log.scores[task], run.log.returns[task]) for run in runs for task in run.tasks]
    scored = {task for task, scores, _ in logged if np.isfinite(scores).any()}
    return frozenset(task for task, _, returns in logged if np.isfinite(returns).any()) - scored


def _score_by_return(run: Run, tasks: frozenset[str]) -> Run:
    scores = {task: run.log.returns[task] if task in tasks else scores for task, scores in run.log.scores.items()}
    return run._replace(log=run.log._replace(scores=scores))


def _separate_variants(runs: list[Run]) -> list[Run]:
    """Rename variants that clash: two runs with the same task and seed, or the same task in different envs.

    The new names come from the directories, with more of the path as long as names still clash.
    """
    names: tuple[Callable[[Run], str], ...] = (
        lambda run: f"{run.variant} in {escape_unprintable(run.root.name)}",
        lambda run: escape_unprintable(_SEED.sub("", run.directory.relative_to(run.root.parent).as_posix())),
        lambda run: escape_unprintable(run.directory),
    )
    for name in names:
        by_task: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in runs:
            for task in run.tasks:
                by_task[run.variant, task].append(run)
        clashing = {
            variant
            for (variant, _), group in by_task.items()
            if len({run.seed for run in group}) < len(group) or len({run.env for run in group}) > 1
        }
        runs = [run._replace(variant=name(run)) if run.variant in clashing else run for run in runs]
    return runs


def _main_variant(runs: list[Run], roots: list[Path]) -> str:
    """Choose the variant that others are compared with.

    The first variant of the study's file that has runs; else byol-explore, without an ablation if possible; else the
    variant of the method with the most runs.
    """
    config = {run.variant: run.config for run in reversed(runs)}  # of each variant's first run
    for study in filter(None, map(read_study, roots)):
        if in_study := [name for name in study.variants if name in config]:
            return in_study[0]
    counts = Counter(run.config["method"] for run in runs)

    def rank(name: str) -> tuple[Any, ...]:
        method, plain = config[name]["method"], config[name].get("ablation") == "none"
        return method != "byol-explore", -counts[method], not plain, name != method, natural_key(name)

    return min(config, key=rank)


def _order_variants(runs: list[Run], main: str) -> list[str]:
    """Sort variants: the main one, its method without ablations, other methods, ablations in the paper's order."""
    config = {run.variant: run.config for run in reversed(runs)}
    if main not in config:
        raise unknown_name("variant", main, sorted(config, key=natural_key))
    methods = {name: index for index, name in enumerate(METHODS.names())}
    ablations = {name: index for index, name in enumerate(ABLATIONS)}

    def rank(name: str) -> tuple[Any, ...]:
        method, ablation = config[name]["method"], str(config[name].get("ablation"))
        plain, other = ablation == "none", method != config[main]["method"]
        places = methods.get(method, len(methods)), ablations.get(ablation, len(ablations))
        return name != main, not plain or other, not plain, *places, natural_key(name)

    return sorted(config, key=rank)
