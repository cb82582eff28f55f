"""Sections of the report with the headline table and the tables by task."""

import numpy as np

from byol_explore.config.presets import PRESETS
from byol_explore.evaluation.scores import (
    PERCENTILES,
    REFERENCES,
    SCORED_BY_EVALUATION,
    TABLES,
    Interval,
    clipped,
    iqm,
    paper_scores,
    paper_statistics_of,
    probability_of_improvement,
    stratified_interval,
)
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Bar, Bars, Block, Cell, Section, Table, Text
from byol_explore.report.read_runs import read_study
from byol_explore.report.scores import (
    Outcomes,
    Series,
    column,
    final_matrix,
    is_solved,
    last_mean,
    none_if_nan,
    normalized,
    reference_scores,
    run_series,
    score_kind,
    score_notes,
    tasks_of,
)
from byol_explore.utils.formatting import display_path, duration, join_list, plural, short_number

_OVER_TASKS = ["median", *(f"{part}%" for part in PERCENTILES)]
_COLUMN_NOTES = {
    "CHNS": "CHNS is the mean over tasks of normalised scores clipped to 0 and 100; it, the mean, the median and the "
    "percentiles over tasks are the paper's statistics of each task's best mean over seeds in training.",
    "superhuman": "Superhuman tasks are those above 100.",
    "solved": "Solved tasks are those with success in at least 95% of the episodes, or with more than a human's score.",
    "IQM": "IQM is the interquartile mean of all seeds' final scores, with a 95% interval (bootstrap over seeds within "
    "each task) where there are several seeds.",
    "P(better)": "P(better) is how probably a final score is above one of the first variant; equal ones count as half.",
    "status": "A variant that lacks tasks cannot be compared as a whole. A run that stopped early at success keeps its "
    "last score.",
}


def headline_section(runs: Runs, outcomes: Outcomes) -> Section:
    """Describe the comparison; show the paper's statistics and interquartile means."""
    studies = [study for root in runs.roots if (study := read_study(root)) is not None]
    paragraphs = [*(study.description for study in studies if study.description), _extent(runs)]
    if runs.unreadable:
        paragraphs.append(f"Left out, because it cannot be read: {join_list(runs.unreadable)}.")
    faulty = [run for run in runs.runs if run.env_restarts]
    restarts = [f"{run.env_restarts:,} in {display_path(run.directory, run.root)}" for run in faulty]
    if restarts:
        paragraphs.append(f"Environments that were restarted after faults: {join_list(restarts)}.")
    if runs.damage:
        paragraphs.append(f"Damaged: {join_list(runs.damage)}.")
    if not outcomes:
        return Section("headline", "Headline", [Text([*paragraphs, "No score has been logged yet."])])
    intervals = {variant: _iqm(runs, outcomes, variant) for variant in runs.variants}
    blocks: list[Block] = [Text(paragraphs), _headline_table(runs, outcomes, intervals)]
    if runs.normalized:
        bars = [Bar(variant, none_if_nan(each.mean), each.low, each.high) for variant, each in intervals.items()]
        title = "Interquartile mean of final scores, with 95% intervals"
        blocks.append(Bars("iqm", title, "normalised score (%)", bars))
    return Section("headline", "Headline", blocks)


def _extent(runs: Runs) -> str:
    seconds = float(np.nansum([run.seconds for run in runs.runs]))
    return (
        f"{plural(len(runs.variants), 'variant')} on {plural(len(runs.tasks), 'task')} ({join_list(runs.tasks)}): "
        f"{plural(len(runs.runs), 'run')} of up to {short_number(max(run.last_step for run in runs.runs))} environment "
        f"steps, {duration(seconds)} of training in all."
    )


def _headline_table(runs: Runs, outcomes: Outcomes, intervals: dict[str, Interval]) -> Table:
    """Show the most important columns first, without those that are empty in all rows."""
    rows = {variant: _headline_row(runs, outcomes, variant, intervals[variant]) for variant in runs.variants}
    best = _best(rows, len(runs.tasks)) if len(runs.variants) > 1 else set[str]()
    for variant, row in rows.items():
        row["status"] = _status(runs, row, is_best=variant in best)
    columns = ["variant", "tasks", "seeds"]
    columns += ["status"] if any(row["status"] for row in rows.values()) else []
    columns += ["CHNS", _solved_column(runs), "IQM", "IQM low", "IQM high"] if runs.normalized else []
    columns += ["P(better)"] if len(runs.variants) > 1 else []
    columns += ["mean"] if runs.normalized else []
    columns += _OVER_TASKS if len(runs.normalized) > 1 else []
    title = "Normalised scores over all tasks" if runs.normalized else "All tasks together"
    cells = [[row.get(name) for name in columns] for row in rows.values()]
    notes = [score_notes(runs), *(note for name, note in _COLUMN_NOTES.items() if name in columns)]
    return Table("headline", title, columns, cells, " ".join(notes))


def _best(rows: dict[str, dict[str, Cell]], tasks: int) -> set[str]:
    """Return the variants with the highest CHNS, to a tenth, among those that have a score on all tasks."""
    scores = {v: round(chns, 1) for v, row in rows.items()
              if row["tasks"] == tasks and isinstance(chns := row.get("CHNS"), float)}  # fmt: skip
    return {variant for variant, score in scores.items() if score == max(scores.values())}


def _status(runs: Runs, row: dict[str, Cell], *, is_best: bool) -> str:
    """Name the highest score, unfinished runs and missing tasks; empty without any."""
    group = runs.select(str(row["variant"]))
    finished = sum(run.is_finished for run in group)
    status = ["highest CHNS"] if is_best else []
    status += [f"{finished} of {len(group)} runs finished"] if finished < len(group) else []
    status += [f"{row['tasks']} of {len(runs.tasks)} tasks"] if row["tasks"] != len(runs.tasks) else []
    return ", ".join(status)


def _solved_column(runs: Runs) -> str:
    return "superhuman" if all(task in REFERENCES for task in runs.normalized) else "solved"


def _headline_row(runs: Runs, outcomes: Outcomes, variant: str, interval: Interval) -> dict[str, Cell]:
    """Return the known cells by column."""
    tasks = tasks_of(outcomes, variant)
    seeds = {run.seed for run in runs.select(variant)}
    row: dict[str, Cell] = {"variant": variant, "tasks": len(tasks), "seeds": len(seeds)}
    if tasks and variant != runs.main:
        row["P(better)"] = _improvement(outcomes, variant, runs.main)
    best = {task: outcomes[variant, task].best_mean for task in tasks if task not in runs.scored_by_return}
    if not best:
        return row
    statistics = paper_statistics_of(best, {task: reference_scores(task) for task in best})
    row["CHNS"], _, row["mean"], *over_tasks = statistics.values()
    row |= zip(_OVER_TASKS, over_tasks, strict=True)
    row |= {"IQM": none_if_nan(interval.mean), "IQM low": interval.low, "IQM high": interval.high}
    row[_solved_column(runs)] = sum(is_solved(task, score) for task, score in best.items())
    return row


def _iqm(runs: Runs, outcomes: Outcomes, variant: str) -> Interval:
    tasks = [task for task in tasks_of(outcomes, variant) if task not in runs.scored_by_return]
    matrix = final_matrix(outcomes, variant, tasks)
    return Interval(np.nan, None, None) if matrix is None else stratified_interval(iqm, matrix)


def _improvement(outcomes: Outcomes, variant: str, main: str) -> float | None:
    """Compare with the main variant on the tasks that both have."""
    tasks = [task for task in tasks_of(outcomes, variant) if (main, task) in outcomes]
    ours, others = final_matrix(outcomes, variant, tasks), final_matrix(outcomes, main, tasks)
    return None if ours is None or others is None else float(probability_of_improvement(ours, others))


def tasks_section(runs: Runs, outcomes: Outcomes) -> Section:
    """Show best and final scores by task, evaluations, the paper's scores and those of each seed."""
    if not outcomes:
        return Section("tasks", "Task by task", [Text(["No score has been logged yet."])])
    tables = [_score_table(runs, outcomes, best=True), _score_table(runs, outcomes, best=False)]
    tables += [*_evaluation_table(runs), *_paper_table(runs, outcomes), _seed_table(runs, outcomes)]
    return Section("tasks", "Task by task", tables)


def _score_table(runs: Runs, outcomes: Outcomes, *, best: bool) -> Table:
    with_humans = any(task in REFERENCES for task in runs.tasks)
    columns = ["task", "score", *runs.variants, *(["random", "human"] if with_humans else [])]
    rows: list[list[Cell]] = []
    for task in runs.tasks:
        scores = [outcomes.get((variant, task)) for variant in runs.variants]
        values = [each and (each.best_mean if best else each.final_mean) for each in scores]
        humans = REFERENCES.get(task, (None, None)) if with_humans else ()
        rows.append([task, score_kind(runs, task).name, *values, *humans])
    if best:
        return Table("best", "Best in training", columns, rows, f"The highest mean over seeds. {score_notes(runs)}")
    return Table("final", "At the end", columns, rows, "The mean over seeds of the last log line.")


def _evaluation_table(runs: Runs) -> list[Table]:
    """Show the best evaluation of each game, and of other tasks with a human score if they were evaluated."""
    rows: list[list[Cell]] = []
    for variant in runs.variants:
        percents = []
        for task in runs.tasks:
            group = runs.select(variant, task)
            evaluations = _best_evaluations(group, task)
            if not group or task not in REFERENCES or not (evaluations or task in SCORED_BY_EVALUATION):
                continue
            rooms, score = last_mean(column(group, "rooms_visited")), last_mean(evaluations)
            if score is None:
                rows.append([task, variant, 0, None, None, None, rooms])
            else:
                percent = normalized(task, score)
                percents.append(percent)
                rows.append([task, variant, len(evaluations), score, percent, clipped(percent), rooms])
        if len(percents) > 1:
            means = [float(np.mean(percents)), float(np.mean([clipped(percent) for percent in percents]))]
            rows.append([f"mean of {len(percents)} games", variant, None, None, *means, None])
    columns = ["task", "variant", "seeds", "score", "normalised (%)", "clipped (%)", "rooms found"]
    note = (
        "Each seed's best evaluation (a mean over fresh episodes), and the mean of these over seeds. A game without an "
        "evaluation has no score: training episodes are no evaluation. 0% is the score of random actions, 100% a "
        "human's; clipped to this range, no game makes up for another. Rooms are those of the whole run."
    )
    return [Table("evaluations", "Best evaluations, beside humans", columns, rows, note)] if rows else []


def _best_evaluations(runs: list[Run], task: str) -> list[Series]:
    return run_series(runs, lambda log: log.best_evaluation[task])


def _seed_table(runs: Runs, outcomes: Outcomes) -> Table:
    with_humans = any(task in REFERENCES for task in runs.tasks)
    percents = ["final (%)", "best (%)"] if with_humans else []
    columns = ["task", "variant", "seed", "steps", "final", "best", *percents, "return at the end"]
    rows: list[list[Cell]] = []
    for task in runs.tasks:
        for run in runs.select(task=task):
            scores = outcomes.get((run.variant, task))
            if scores is not None and run.seed in scores.final:
                final, best = scores.final[run.seed], scores.best[run.seed]
                row: list[Cell] = [task, run.variant, run.seed, run.last_step, final, best]
                if with_humans:
                    row += [normalized(task, each) if task in runs.normalized else None for each in (final, best)]
                rows.append([*row, _last_return(run, task)])
    return Table("by-seed", "Every seed", columns, rows, "Percent are normalised scores." if with_humans else "")


def _last_return(run: Run, task: str) -> float | None:
    return last_mean(run_series([run], lambda log: log.returns[task]))


def _paper_table(runs: Runs, outcomes: Outcomes) -> list[Table]:
    """Compare best scores with the paper's; empty without a common task and method."""
    rows: list[list[Cell]] = []
    for task in filter(REFERENCES.__contains__, runs.tasks):
        for variant in runs.variants:
            ours, paper = outcomes.get((variant, task)), _paper_score(runs.select(variant)[0], task)
            if ours is not None and paper is not None:
                score = ours.best_mean
                rows.append([task, variant, score, paper, normalized(task, score), normalized(task, paper)])
    columns = ["task", "variant", "ours", "paper", "ours (%)", "paper (%)"]
    note = (
        "Best scores over training, and the same normalised: 0% is the score of random actions, 100% a human's. "
        "The paper's agents are larger and saw far more steps than small runs do."
    )
    return [Table("paper", "Beside the paper", columns, rows, note)] if rows else []


def _paper_score(run: Run, task: str) -> float | None:
    """Return the paper's score of the same method, ablation and regime; None without one."""
    method, ablation = run.config.get("method"), run.config.get("ablation")
    if ablation != "none" and method != "byol-explore":
        return None
    name = str(method if ablation == "none" else ablation)
    size = run.config.get("curiosity.horizon"), run.config.get("runtime.sequence_length")
    big = PRESETS.get("atari-big").config
    if name == "byol-explore" and size == (big.curiosity.horizon, big.runtime.sequence_length):
        name = "big"
    regime = "mixed" if name == "none" else run.config.get("regime")
    scores = (paper_scores(table).get(name, {}).get(task) for table, facts in TABLES.items() if facts.regime == regime)
    return next((score for score in scores if score is not None), None)
