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
from byol_explore.report.series import plain
from byol_explore.report.study_file import study_facts
from byol_explore.report.words import amount, count, duration, listed

_OVER_TASKS = ["median", *(f"{part}%" for part in PERCENTILES)]
_UNKNOWN = Estimate(np.nan, None, None)


def headline(runs: Runs, found: Outcomes) -> Section:
    """Words, the table of the paper's statistics and interquartile means."""
    compared = [*_descriptions(runs), _compared(runs)]
    if not found:
        return Section("headline", "Headline", [Text([*compared, "No score has been logged yet.", *_state(runs)])])
    estimates = {variant: _iqm(runs, found, variant) for variant in runs.variants}
    table = _table(runs, found, estimates)
    words = [*compared, *_winner(runs, table), *_incomplete(runs, found), *_state(runs)]
    bars = [_bars(estimates)] if runs.normalized else []
    return Section("headline", "Headline", [Text(words), table, *bars])


def _descriptions(runs: Runs) -> list[str]:
    return [facts.description for root in runs.roots if (facts := study_facts(root)) and facts.description]


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
    if runs.unreadable:
        said.append(f"Left out, because it cannot be read: {listed(runs.unreadable)}.")
    return said


def _table(runs: Runs, found: Outcomes, estimates: dict[str, Estimate]) -> Table:
    """What says most comes first; columns that cannot say anything are left out."""
    columns = ["variant", "tasks", "seeds"]
    columns += ["CHNS", _counted(runs), "IQM", "IQM low", "IQM high"] if runs.normalized else []
    columns += ["P(better)"] if len(runs.variants) > 1 else []
    columns += ["mean"] if runs.normalized else []
    columns += _OVER_TASKS if len(runs.normalized) > 1 else []
    rows = [_row(runs, found, variant, estimates[variant]) for variant in runs.variants]
    return Table(
        name="headline",
        title="Normalised scores over all tasks" if runs.normalized else "All tasks together",
        columns=columns,
        rows=[[row.get(column) for column in columns] for row in rows],
        note=_note(runs),
    )


def _counted(runs: Runs) -> str:
    return "superhuman" if all(map(has_human, runs.normalized)) else "solved"


def _note(runs: Runs) -> str:
    """How to read the columns."""
    said = [meaning_of_scores(runs), *(_note_on_percents(runs) if runs.normalized else [])]
    if len(runs.variants) > 1:
        said.append(f"P(better) is how probably a final score is above one of {runs.main}; equal ones count as half")
    return ". ".join(said) + "."


def _note_on_percents(runs: Runs) -> list[str]:
    return [
        "CHNS is the mean over tasks of scores clipped to 0 and 100; it, the mean, the median and the percentiles over "
        "tasks are the paper's statistics of each task's best mean over seeds in training",
        "Superhuman tasks are those above 100"
        if _counted(runs) == "superhuman"
        else "Solved tasks are those with success in at least 95% of the episodes, or with more than a human's score",
        "IQM is the interquartile mean of all seeds' final scores, with a 95% interval (bootstrap over seeds within "
        "each task)",
    ]


def _row(runs: Runs, found: Outcomes, variant: str, estimate: Estimate) -> dict[str, Cell]:
    """By column; what is not known is not there."""
    tasks = tasks_of(found, variant)
    row: dict[str, Cell] = {
        "variant": variant,
        "tasks": len(tasks),
        "seeds": len({run.seed for run in runs.of(variant)}),
    }
    if tasks:
        row["P(better)"] = None if variant == runs.main else _improvement(found, variant, runs.main)
    best = {task: found[variant, task].best_mean for task in tasks if task not in runs.by_return}
    if not best:
        return row
    mean_clipped, _, mean, *over_tasks = aggregate(best, {task: reference(task) for task in best}).values()
    row |= {"CHNS": mean_clipped, "mean": mean, **dict(zip(_OVER_TASKS, over_tasks, strict=True))}
    row |= {"IQM": plain(estimate.value), "IQM low": estimate.low, "IQM high": estimate.high}
    row[_counted(runs)] = sum(is_solved(task, score) for task, score in best.items())
    return row


def _iqm(runs: Runs, found: Outcomes, variant: str) -> Estimate:
    matrix = final_matrix(found, variant, [task for task in tasks_of(found, variant) if task not in runs.by_return])
    return _UNKNOWN if matrix is None else stratified_interval(iqm, matrix)


def _improvement(found: Outcomes, variant: str, main: str) -> float | None:
    """Over the main variant, on the tasks that both have."""
    tasks = [task for task in tasks_of(found, variant) if (main, task) in found]
    ours, others = final_matrix(found, variant, tasks), final_matrix(found, main, tasks)
    return None if ours is None or others is None else float(probability_of_improvement(ours, others))


def _bars(estimates: dict[str, Estimate]) -> Bars:
    return Bars(
        name="iqm",
        title="Interquartile mean of final scores, with 95% intervals",
        x_label="normalised score (%)",
        variants=list(estimates),
        values=[plain(estimate.value) for estimate in estimates.values()],
        low=[estimate.low for estimate in estimates.values()],
        high=[estimate.high for estimate in estimates.values()],
    )


def _winner(runs: Runs, table: Table) -> list[str]:
    """The table in a sentence, about the variants that have all tasks."""
    if not runs.normalized:
        return []
    tasks, place = table.columns.index("tasks"), table.columns.index("CHNS")
    whole = [row for row in table.rows if row[tasks] == len(runs.tasks)]
    scored = [(score, str(row[0])) for row in whole if isinstance(score := row[place], float)]
    if not scored:
        return []
    scored.sort(key=lambda pair: -pair[0])
    best = f"{scored[0][0]:.1f}"
    first = [variant for score, variant in scored if f"{score:.1f}" == best]
    others = [f"{variant} with {score:.1f}" for score, variant in scored[len(first) :]]
    if len(scored) == 1:
        return [f"{first[0]} has a clipped mean score (CHNS) of {best} of 100."]
    if not others:
        return [f"All have the same clipped mean score (CHNS), {best} of 100: {listed(first)}."]
    have = "has" if len(first) == 1 else "have"
    last = f"; the lowest is {others[-1]}" if len(others) > 1 else ""
    return [f"{listed(first)} {have} the highest clipped mean score (CHNS), {best} of 100, before {others[0]}{last}."]


def _name(run: Run) -> str:
    return f"{run.variant} on {run.task_words}, seed {run.seed}"


def _last(run: Run, name: str) -> float:
    values = run.log.columns[name]
    values = values[np.isfinite(values)]
    return float(values[-1]) if values.size else 0.0
