"""The first section: what was compared, and how it ended."""

import numpy as np

from byol_explore.evaluation.aggregate import (
    PERCENTILES,
    Estimate,
    aggregate,
    iqm,
    probability_of_improvement,
    stratified_interval,
)
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Bars, Cell, Section, Table, Text
from byol_explore.report.outcomes import (
    Outcomes,
    final_matrix,
    has_human,
    is_solved,
    meaning_of_scores,
    reference,
    tasks_of,
)
from byol_explore.report.words import amount, count, duration, listed

_UNKNOWN = Estimate(np.nan, None, None)


def headline(runs: Runs, found: Outcomes) -> Section:
    """Words, the table of the paper's statistics and interquartile means."""
    words = [_compared(runs), *_incomplete(runs, found), *_state(runs)]
    if not found:
        return Section(
            "headline", "Headline", [Text([_compared(runs), "No score has been logged yet.", *_state(runs)])]
        )
    estimates = {variant: _iqm(found, variant) for variant in runs.variants}
    table = _table(runs, found, estimates)
    return Section("headline", "Headline", [Text([*_winner(runs, table), *words]), table, _bars(estimates)])


def _compared(runs: Runs) -> str:
    envs = list(dict.fromkeys(run.env for run in runs.runs))
    if len(runs.tasks) == 1:
        how = f"on {runs.tasks[0]}"
    elif len(envs) == 1:
        how = f"on {len(runs.tasks)} tasks learned by one agent at once ({listed(runs.tasks)})"
    else:
        how = f"on {len(runs.tasks)} tasks ({listed(runs.tasks)})"
    seeds = [len({run.seed for run in runs.of(variant)}) for variant in runs.variants]
    each = count(seeds[0], "seed") if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    seconds = sum(_last(run, "elapsed") for run in runs.runs)
    return (
        f"{count(len(runs.variants), 'variant')} ({listed(runs.variants)}) {how}, {each} each; "
        f"up to {amount(max(run.last_step for run in runs.runs))} environment steps a run, "
        f"{count(len(runs.runs), 'run')} and {duration(seconds)} of training in all."
    )


def _incomplete(runs: Runs, found: Outcomes) -> list[str]:
    known = {variant: len(tasks_of(found, variant)) for variant in runs.variants}
    some = [f"{variant} ({tasks} of {len(runs.tasks)})" for variant, tasks in known.items() if tasks < len(runs.tasks)]
    if not some:
        return []
    return [f"Without a score on some tasks, so not to be compared as a whole: {listed(some)}."]


def _state(runs: Runs) -> list[str]:
    """What is not there, in words."""
    silent = [_name(run) for run in runs.runs if not len(run.steps)]
    training = [
        f"{_name(run)} ({amount(run.last_step)} of {amount(run.config.get('steps', 0))} steps)"
        for run in runs.runs
        if len(run.steps) and not run.is_finished
    ]
    early = [run for run in runs.runs if run.stopped_at_success]
    single = [variant for variant in runs.variants if len({run.seed for run in runs.of(variant)}) == 1]
    said = []
    if silent:
        said.append(f"Without a log line yet: {listed(silent)}.")
    if training:
        said.append(f"Not finished: {listed(training)}.")
    if early:
        said.append(f"{count(len(early), 'run')} stopped early at success; the last score is kept from there on.")
    if single:
        said.append(f"With one seed only, so without bands and intervals: {listed(single)}.")
    for reason in runs.unreadable:
        said.append(f"Left out, because it cannot be read: {reason}.")
    return said


def _table(runs: Runs, found: Outcomes, estimates: dict[str, Estimate]) -> Table:
    """Of a single task there are no percentiles, and of a single variant there is nothing to be better than."""
    counted = "superhuman" if all(map(has_human, runs.tasks)) else "solved"
    columns = ["variant", "tasks", "seeds", "CHNS", counted, "mean", "median", *(f"{part}%" for part in PERCENTILES)]
    columns += ["IQM", "IQM low", "IQM high", f"P(better than {runs.main})"]
    dropped = set(columns[6:-4]) if len(runs.tasks) == 1 else set()
    if len(runs.variants) == 1:
        dropped.add(columns[-1])
    kept = [index for index, column in enumerate(columns) if column not in dropped]
    rows = [_row(runs, found, variant, estimates[variant]) for variant in runs.variants]
    return Table(
        name="headline",
        title="Normalised scores over all tasks",
        columns=[columns[index] for index in kept],
        rows=[[row[index] for index in kept] for row in rows],
        note=_note(runs),
    )


def _note(runs: Runs) -> str:
    """How to read the columns."""
    superhuman = all(map(has_human, runs.tasks))
    said = [
        meaning_of_scores(runs.tasks),
        "CHNS is the mean over tasks of scores clipped to 0 and 100; it and the columns up to IQM are the paper's "
        "statistics (percentiles over tasks) of each task's best mean over seeds in training",
        "Superhuman tasks are those above 100"
        if superhuman
        else "Solved tasks are those with success in at least 95% of the episodes, or with more than a human's score",
        "IQM is the interquartile mean of all seeds' final scores, with a 95% interval (bootstrap over seeds within "
        "each task)",
    ]
    if len(runs.variants) > 1:
        said.append(f"P is how probably a final score is above one of {runs.main}; equal ones count as half")
    return ". ".join(said) + "."


def _row(runs: Runs, found: Outcomes, variant: str, estimate: Estimate) -> list[Cell]:
    tasks = tasks_of(found, variant)
    seeds = len({run.seed for run in runs.of(variant)})
    start: list[Cell] = [variant, len(tasks), seeds]
    if not tasks:
        return [*start, *[None] * (5 + len(PERCENTILES) + 3)]
    best = {task: found[variant, task].best_mean for task in tasks}
    mean_clipped, _, *rest = aggregate(best, {task: reference(task) for task in tasks}).values()
    solved = sum(is_solved(task, score) for task, score in best.items())
    value = None if np.isnan(estimate.value) else estimate.value
    better = None if variant == runs.main else _improvement(found, variant, runs.main)
    return [*start, mean_clipped, solved, *rest, value, estimate.low, estimate.high, better]


def _iqm(found: Outcomes, variant: str) -> Estimate:
    matrix = final_matrix(found, variant, tasks_of(found, variant))
    return _UNKNOWN if matrix is None else stratified_interval(iqm, matrix)


def _improvement(found: Outcomes, variant: str, main: str) -> float | None:
    """Over the main variant, on the tasks that both have."""
    tasks = [task for task in tasks_of(found, variant) if (main, task) in found]
    ours, others = final_matrix(found, variant, tasks), final_matrix(found, main, tasks)
    return None if ours is None or others is None else float(probability_of_improvement(ours, others))


def _bars(estimates: dict[str, Estimate]) -> Bars:
    values = [None if np.isnan(estimate.value) else estimate.value for estimate in estimates.values()]
    return Bars(
        name="iqm",
        title="Interquartile mean of final scores, with 95% intervals",
        x_label="normalised score (%)",
        variants=list(estimates),
        values=values,
        low=[estimate.low for estimate in estimates.values()],
        high=[estimate.high for estimate in estimates.values()],
    )


def _winner(runs: Runs, table: Table) -> list[str]:
    """The table in a sentence, about the variants that have all tasks."""
    tasks, place = table.columns.index("tasks"), table.columns.index("CHNS")
    whole = [row for row in table.rows if row[tasks] == len(runs.tasks)]
    scored = [(score, str(row[0])) for row in whole if isinstance(score := row[place], float)]
    if not scored:
        return []
    scored.sort(key=lambda pair: -pair[0])
    (best, first), others = scored[0], [f"{variant} with {score:.1f}" for score, variant in scored[1:]]
    if not others:
        return [f"{first} has a clipped mean score (CHNS) of {best:.1f} of 100."]
    last = f"; the lowest is {others[-1]}" if len(others) > 1 else ""
    return [f"{first} has the highest clipped mean score (CHNS), {best:.1f} of 100, before {others[0]}{last}."]


def _name(run: Run) -> str:
    return f"{run.variant} on {run.world}, seed {run.seed}"


def _last(run: Run, name: str) -> float:
    values = run.log.columns[name]
    values = values[np.isfinite(values)]
    return float(values[-1]) if values.size else 0.0
