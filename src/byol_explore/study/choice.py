"""Scores of the trials of a search, the choice of the best, and its files: search.json, search.csv and chosen.toml.

A run is solved at the first line of its log with a success of `search.success_rate` in every task, once all
episode windows are full. Trials rank by

1. the number of solved runs, more first;
2. the mean steps until runs are solved, where an unsolved run counts with all its steps;
3. the mean of the last successes, then of the last returns; an unknown one is below all known ones;
4. their number, lower first.

A run that diverged is unsolved and has no success and no return. The choice is made once all runs of all trials of a
variant have ended. It depends on these runs alone, so that a study that continues after a crash chooses the same.
"""

import csv
import io
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byol_explore.errors import DivergenceError
from byol_explore.evaluation.scores import Interval, mean_score, stratified_interval
from byol_explore.storage.metrics import find_log, read_metrics, to_float
from byol_explore.storage.run_directory import SEARCH, TRIALS, is_finished
from byol_explore.study.file import Study, Variant
from byol_explore.study.plan import PlannedRun, plan_runs, plan_trials
from byol_explore.study.progress import read_failures
from byol_explore.utils.files import DAMAGE_ERRORS, atomic_write, read_json_object

_LOWEST = -math.inf


class RunScore(NamedTuple):
    """The outcome of a run that has ended."""

    solved_at: int | None  # steps
    steps: int  # until it was solved, or all of the plan
    success: float  # the last one; minus infinity if unknown
    episode_return: float  # the same


class TrialScore(NamedTuple):
    """The outcome of all runs of a trial."""

    runs: int
    solved: int
    steps: float  # means
    success: float
    episode_return: float

    @property
    def rank(self) -> tuple[float, ...]:
        """Return the key that sorts better trials first."""
        return -self.solved, self.steps, -self.success, -self.episode_return


def read_score(run: PlannedRun, directory: Path, success_rate: float, diverged: Collection[str]) -> RunScore | None:
    """Return the score of a run: the lowest if it diverged; None if it has not ended or cannot be read."""
    place, total = run.directory(directory), run.config.total_steps
    try:
        summary = read_json_object(place, "summary.json")
        if is_finished(summary, run.config.steps, run.config.stop_at_success_rate) and (log := find_log(place)):
            solved_at = _solved_at(read_metrics(log), success_rate, run.config.log.episode_window)
            known = [to_float(summary.get(name)) for name in ("success_rate", "return_mean")]
            success, episode_return = (_LOWEST if math.isnan(value) else value for value in known)
            return RunScore(solved_at, total if solved_at is None else solved_at, success, episode_return)
    except DAMAGE_ERRORS:
        pass
    return RunScore(None, total, _LOWEST, _LOWEST) if run.name in diverged else None


def _solved_at(rows: Sequence[Mapping[str, Any]], success_rate: float, window: int) -> int | None:
    for row in rows:
        tasks = row.get("tasks")
        entries = list(tasks.values()) if isinstance(tasks, dict) else [row]
        rates = [to_float(entry.get("success_rate")) if isinstance(entry, dict) else math.nan for entry in entries]
        is_full = to_float(row.get("num_episodes")) >= window * len(entries)
        if is_full and all(rate >= success_rate for rate in rates):
            return int(row["steps"])
    return None


def score_trial(scores: Sequence[RunScore]) -> TrialScore:
    """Combine the scores of a trial's runs."""
    means = (float(np.mean([getattr(score, name) for score in scores])) for name in RunScore._fields[1:])
    return TrialScore(len(scores), sum(score.solved_at is not None for score in scores), *means)


def choose(trials: Sequence[TrialScore | None]) -> int | None:
    """Return the number of the best trial; None until all trials have a score."""
    if any(trial is None for trial in trials):
        return None
    return min(range(len(trials)), key=lambda number: (trials[number].rank, number))  # pyright: ignore[reportOptionalMemberAccess]


def is_final_failure(name: str, exit_code: int | None) -> bool:
    """Return True for a trial that diverged: it is not tried again, because it would diverge again."""
    return name.startswith(f"{TRIALS}/") and exit_code == DivergenceError.exit_code


def diverged_runs(directory: Path) -> set[str]:
    """Return the trials that had diverged when study.json was written."""
    failures, _ = read_failures(directory / "study.json")
    return {name for name, failure in failures.items() if is_final_failure(name, failure["exit_code"])}


class Selection:
    """The trials of a study with [search], and the chosen trial of each variant whose trials have ended."""

    def __init__(self, study: Study, directory: Path) -> None:
        assert study.search is not None
        self.study, self.directory, self.search = study, directory, study.search
        self._trials = plan_trials(study)
        self._scores: dict[str, RunScore] = {}  # of runs that have ended

    def plan(self, only: str, diverged: Collection[str]) -> list[PlannedRun]:
        """Return the trials, and the runs with chosen settings of the variants that have a choice."""
        return plan_runs(self.study, only=only, chosen=self.chosen(diverged))

    def chosen(self, diverged: Collection[str]) -> dict[str, int]:
        """Return the number of the best trial by variant, for variants whose trials all have scores."""
        choices = {name: choose(self.trial_scores(name, diverged)) for name in self._trials}
        return {name: number for name, number in choices.items() if number is not None}

    def describe(self, variant: str, trial: int) -> str:
        """Return the changed settings of a trial in words."""
        values = self.search.values_of(variant)[trial]
        return ", ".join(f"{name} = {_toml(value)}" for name, value in values.items()) or "untuned"

    def trial_scores(self, variant: str, diverged: Collection[str]) -> list[TrialScore | None]:
        return [self._score(runs, diverged) for runs in self._trials[variant]]

    def _score(self, runs: Sequence[PlannedRun], diverged: Collection[str]) -> TrialScore | None:
        scores = [self._read(run, diverged) for run in runs]
        known = [score for score in scores if score is not None]
        return score_trial(known) if len(known) == len(scores) else None

    def _read(self, run: PlannedRun, diverged: Collection[str]) -> RunScore | None:
        if run.name not in self._scores:
            score = read_score(run, self.directory, self.search.success_rate, diverged)
            if score is None:
                return None
            self._scores[run.name] = score
        return self._scores[run.name]

    def write(self, diverged: Collection[str]) -> None:
        """Write search.json, search.csv and chosen.toml, from the runs that have ended."""
        data = self.summary(diverged)
        atomic_write(self.directory / SEARCH, json.dumps(data, indent=1, allow_nan=False) + "\n")
        atomic_write(self.directory / "search.csv", _csv(data))
        tables = [each["toml"] for each in data["variants"].values() if each["toml"]]
        atomic_write(self.directory / "chosen.toml", "\n".join(tables))

    def summary(self, diverged: Collection[str]) -> dict[str, Any]:
        """Return the contents of search.json."""
        search, chosen = self.search, self.chosen(diverged)
        return {
            "study": self.study.name,
            "trials": search.trials,
            "seeds": list(search.seeds),
            "report_seeds": list(search.report_seeds),
            "tasks": list(search.tasks or self.study.tasks),
            "report_tasks": list(self.study.tasks),
            "success_rate": search.success_rate,
            "variants": {each.name: self._variant(each, chosen, diverged) for each in self.study.variants},
        }

    def _variant(self, variant: Variant, chosen: Mapping[str, int], diverged: Collection[str]) -> dict[str, Any]:
        number, values = chosen.get(variant.name), self.search.values_of(variant.name)
        scores = zip(values, self.trial_scores(variant.name, diverged), strict=True)
        trials = [
            {"trial": trial, "chosen": trial == number, "settings": each, "score": score and _plain(score._asdict())}
            for trial, (each, score) in enumerate(scores)
        ]
        return {
            "steps": self._trials[variant.name][0][0].config.total_steps,
            "chosen": number,
            "trials": trials,
            "reported": None if number is None else self._reported(variant.name, number, diverged),
            "toml": "" if number is None else variant_toml(variant, values[number]),
        }

    def _reported(self, variant: str, number: int, diverged: Collection[str]) -> dict[str, Any] | None:
        """Return the score of the runs with chosen settings, with intervals; None until all have ended."""
        runs = plan_runs(self.study, chosen={variant: number}, trials=False)
        scores = [self._read(run, diverged) for run in runs]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return None
        seeds = len(self.search.report_seeds)  # runs are ordered by seed
        parts = {name: [getattr(score, name) for score in known] for name in RunScore._fields[1:]}
        intervals = {
            name: _interval(np.reshape(values, (seeds, -1)))._asdict() if np.isfinite(values).all() else None
            for name, values in parts.items()
        }
        return {"runs": len(known), "solved": score_trial(known).solved, **intervals}


def write_search_results(study: Study, directory: Path) -> None:
    """Rewrite the search files of a study; no-op without [search]."""
    if study.search is not None:
        Selection(study, directory).write(diverged_runs(directory))


def _interval(scores: np.ndarray) -> Interval:
    return stratified_interval(mean_score, scores)


def _plain(score: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == _LOWEST else value for name, value in score.items()}


def _csv(data: Mapping[str, Any]) -> str:
    """Return a row per trial, with the score on the reporting seeds beside the chosen ones."""
    variants = data["variants"]
    names = dict.fromkeys(name for each in variants.values() for trial in each["trials"] for name in trial["settings"])
    parts, ends = RunScore._fields[1:], Interval._fields
    reported = ["reported_runs", "reported_solved", *(f"reported_{part}_{end}" for part in parts for end in ends)]
    file = io.StringIO()
    writer = csv.DictWriter(
        file, ["variant", "trials", "trial", "chosen", *names, *TrialScore._fields, *reported], lineterminator="\n"
    )
    writer.writeheader()
    for variant, each in variants.items():
        for trial in each["trials"]:
            row = {
                "variant": variant,
                "trials": data["trials"],
                "trial": trial["trial"],
                "chosen": int(trial["chosen"]),
            }
            row |= trial["settings"] | (trial["score"] or {})
            if trial["chosen"] and (result := each["reported"]):
                row |= {"reported_runs": result["runs"], "reported_solved": result["solved"]}
                row |= {f"reported_{part}_{end}": (result[part] or {}).get(end) for part in parts for end in ends}
            writer.writerow(row)
    return file.getvalue()


def variant_toml(variant: Variant, values: Mapping[str, Any]) -> str:
    """Return the table [[variants]] of a study file with the chosen settings."""
    settings = {**variant.settings, **values}
    lines = [f"name = {_toml(variant.name)}", f"method = {_toml(variant.method)}"]
    if variant.ablation != "none":
        lines.append(f"ablation = {_toml(variant.ablation)}")
    if variant.regime is not None:
        lines.append(f"regime = {_toml(variant.regime)}")
    if settings:
        entries = ", ".join(f"{name} = {_toml(value)}" for name, value in settings.items())
        lines.append(f"settings = {{ {entries} }}")
    return "\n".join(["[[variants]]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
