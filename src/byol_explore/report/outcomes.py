"""What variants achieved on tasks: best and final scores, and the same as matrices of normalised scores."""

from typing import NamedTuple

import numpy as np

from byol_explore.evaluation.paper import OWN, REFERENCES, SCORED_BY_EVALUATION
from byol_explore.evaluation.scores import human_normalized
from byol_explore.report.load import Runs
from byol_explore.report.series import common_grid, mean_over_seeds, on_grid, task_scores
from byol_explore.report.words import listed

SUCCESS = (0.0, 100.0)  # tasks without a human's score are scored by success in percent
SOLVED = 95.0  # percent of success


class Outcome(NamedTuple):
    """The scores of a variant on a task, as they are (not normalised)."""

    final: dict[int, float]  # by seed
    best: dict[int, float]
    final_mean: float
    best_mean: float  # the highest point of the mean over seeds


Outcomes = dict[tuple[str, str], Outcome]  # by variant and task


def outcomes(runs: Runs) -> Outcomes:
    """Of all variants and tasks that have a score."""
    pairs = ((variant, task) for variant in runs.variants for task in runs.tasks)
    return {pair: found for pair in pairs if (found := _outcome(runs, *pair)) is not None}


def _outcome(runs: Runs, variant: str, task: str) -> Outcome | None:
    by_seed = {run.seed: series for run in runs.of(variant, task) for series in task_scores([run], task)}
    if not by_seed:
        return None
    series = list(by_seed.values())
    mean = mean_over_seeds(on_grid(series, common_grid(series, most=None)))
    final = {seed: float(one.values[-1]) for seed, one in by_seed.items()}
    best = {seed: float(one.values.max()) for seed, one in by_seed.items()}
    return Outcome(final, best, float(np.mean([*final.values()])), float(np.max(mean)))


def reference(task: str) -> tuple[float, float]:
    """The scores that are 0 and 100 percent."""
    return REFERENCES.get(task, SUCCESS)


def has_human(task: str) -> bool:
    return task in REFERENCES


def is_evaluated(task: str) -> bool:
    """Whether its scores are those of evaluations alone."""
    return task in SCORED_BY_EVALUATION


def normalized(task: str, score: float) -> float:
    return human_normalized(score, reference(task))


def is_solved(task: str, score: float) -> bool:
    """Better than a human, or successful as often as training calls solved."""
    return normalized(task, score) > 100.0 if has_human(task) else score >= SOLVED


def tasks_of(found: Outcomes, variant: str) -> list[str]:
    return [task for name, task in found if name == variant]


def final_matrix(found: Outcomes, variant: str, tasks: list[str]) -> np.ndarray | None:
    """Normalised final scores [S, N] of the seeds that have all tasks; None without any."""
    per_task = [found[variant, task].final for task in tasks if (variant, task) in found]
    if len(per_task) < len(tasks) or not tasks:
        return None
    seeds = sorted(set.intersection(*(set(scores) for scores in per_task)))
    rows = [[normalized(task, found[variant, task].final[seed]) for task in tasks] for seed in seeds]
    return np.asarray(rows) if rows else None


def meaning_of_scores(runs: Runs) -> str:
    """In words, for notes."""
    said = [_meaning_of_percents(runs.normalized)] if runs.normalized else []
    undefined, unevaluated = _by_return(runs)
    if undefined:
        said.append(f"No success is defined in {listed(undefined)}: scored by return, in no mean with others")
    if unevaluated:
        said.append(
            f"Nothing was evaluated in {listed(unevaluated)}: scored by the return of training episodes, which is no "
            "score beside humans and in no mean with others"
        )
    return ". ".join(said + _of_first_person_tasks(runs))


def unit_of_scores(runs: Runs) -> str:
    """What a score that is not normalised says, in words, for notes."""
    said = ["Scores as the game counts them."] if any(map(has_human, runs.normalized)) else []
    if not all(map(has_human, runs.normalized)):
        said.append("Success in percent where humans have no score." if said else "Success in percent.")
    undefined, unevaluated = _by_return(runs)
    if undefined:
        said.append("Returns where no success is defined.")
    if unevaluated:
        said.append("Returns of training episodes where nothing was evaluated.")
    return " ".join(said + [f"{each}." for each in _of_first_person_tasks(runs)])


def _of_first_person_tasks(runs: Runs) -> list[str]:
    """What must be known of their scores, a sentence each."""
    said: list[str] = []
    if any(has_human(task) and not is_evaluated(task) for task in runs.normalized):
        said.append(
            "Scores of first-person tasks are returns of training episodes, which evaluations play by the same rules"
        )
    if any(task in OWN for task in runs.normalized):
        said.append(
            "Humans played DM-HARD-8, of which Hard-Eight is another world with the same tasks; random actions were "
            "its nine, here, also for agents with moves and turns"
        )
    said += [
        f"Doing nothing is {normalized(task, 0.0):.0f}% in {task}, where random actions lose points"
        for task in runs.normalized
        if task in OWN and reference(task)[0] < 0
    ]
    return said


def _by_return(runs: Runs) -> tuple[list[str], list[str]]:
    """Tasks that are scored by their return: those without a success, and those whose score is an evaluation's."""
    tasks = sorted(runs.by_return)
    return [task for task in tasks if not has_human(task)], [task for task in tasks if has_human(task)]


def _meaning_of_percents(tasks: list[str]) -> str:
    human = "0 is the score of random actions and 100 that of a human"
    success = "0 is nothing and 100 a success in every episode"
    if all(map(has_human, tasks)):
        return f"Normalised scores in percent: {human}"
    if not any(map(has_human, tasks)):
        return f"Normalised scores in percent: {success}"
    return f"Normalised scores in percent: {human}; for tasks without a human's score {success}"
