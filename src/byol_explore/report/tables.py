"""Scores task by task: ours, of every seed, and the paper's."""

import numpy as np

from byol_explore.evaluation.paper import TABLES, paper_scores
from byol_explore.evaluation.scores import clipped
from byol_explore.report.load import Run, Runs
from byol_explore.report.model import Block, Cell, Section, Table, Text
from byol_explore.report.outcomes import Outcomes, has_human, is_evaluated, normalized, reference, unit_of_scores
from byol_explore.report.series import column, known, plain


def tasks_section(runs: Runs, found: Outcomes) -> Section:
    """Best and final scores, the paper's where it has the same tasks, and all seeds."""
    if not found:
        return Section("tasks", "Task by task", [Text(["No score has been logged yet."])])
    blocks: list[Block] = [_matrix(runs, found, best=True), _matrix(runs, found, best=False)]
    blocks += _evaluations(runs)
    paper = _paper_rows(runs, found)
    if paper:
        columns = ["task", "variant", "ours", "paper", "ours (%)", "paper (%)"]
        note = (
            "Best scores over training, and the same normalised: 0% is the score of random actions, 100% a human's. "
            "The paper's agents are larger and saw far more steps than small runs do."
        )
        blocks.append(Table("paper", "Beside the paper", columns, paper, note))
    return Section("tasks", "Task by task", [*blocks, _by_seed(runs, found)])


def _matrix(runs: Runs, found: Outcomes, *, best: bool) -> Table:
    human = any(map(has_human, runs.tasks))
    columns = ["task", *runs.variants, *(["random", "human"] if human else [])]
    rows: list[list[Cell]] = []
    for task in runs.tasks:
        outcomes = [found.get((variant, task)) for variant in runs.variants]
        values = [entry and (entry.best_mean if best else entry.final_mean) for entry in outcomes]
        known_scores: list[Cell] = list(reference(task)) if has_human(task) else [None, None]
        rows.append([task, *values, *(known_scores if human else [])])
    unit = unit_of_scores(runs)
    if best:
        return Table("best", "Best in training", columns, rows, f"{unit} The highest point of the mean over seeds.")
    return Table("final", "At the end", columns, rows, f"{unit} The mean over seeds of the last log line.")


def _evaluations(runs: Runs) -> list[Table]:
    """What the best evaluation of each game is to a human, also of other tasks if there is one; or nothing at all."""
    rows: list[list[Cell]] = []
    for variant in runs.variants:
        tasks = [task for task in filter(has_human, runs.tasks) if runs.of(variant, task)]
        rated = [_evaluation(runs, variant, task) for task in tasks]
        games = [row for row, task in zip(rated, tasks, strict=True) if row[2] or is_evaluated(task)]
        rows += games
        if len(scored := [row for row in games if row[3] is not None]) > 1:
            means = [np.mean([row[place] for row in scored]).item() for place in (4, 5)]  # pyright: ignore[reportArgumentType, reportCallIssue]
            rows.append([f"mean of {len(scored)} games", variant, None, None, *means, None])
    columns = ["task", "variant", "seeds", "score", "normalised (%)", "clipped (%)", "rooms found"]
    note = (
        "Each seed's best evaluation (a mean over fresh episodes), and the mean of these over seeds; a game that was "
        "never evaluated has no score: training episodes are no evaluation. 0% is the score of random actions, 100% a "
        "human's; clipped to between them, no game makes up for another. Rooms are those of the whole run."
    )
    return [Table("evaluations", "Best evaluations, beside humans", columns, rows, note)] if rows else []


def _evaluation(runs: Runs, variant: str, task: str) -> list[Cell]:
    """A row: how many seeds were evaluated, and means over them."""
    group = runs.of(variant, task)
    best = [float(series.values[-1]) for run in group for series in known(run, run.log.best_evaluation[task])]
    rooms = [float(series.values[-1]) for series in column(group, "rooms_found")]
    found = float(np.mean(rooms)) if rooms else None
    if not best:
        return [task, variant, 0, None, None, None, found]
    score = float(np.mean(best))
    percent = normalized(task, score)
    return [task, variant, len(best), score, percent, clipped(percent), found]


def _by_seed(runs: Runs, found: Outcomes) -> Table:
    human = any(map(has_human, runs.tasks))
    percent = ["final (%)", "best (%)"] if human else []
    columns = ["task", "variant", "seed", "steps", "final", "best", *percent, "return at the end"]
    rows: list[list[Cell]] = []
    for (variant, task), entry in found.items():
        for run in runs.of(variant, task):
            if run.seed in entry.final:
                final, best = entry.final[run.seed], entry.best[run.seed]
                comparable = task not in runs.by_return
                percents = [normalized(task, score) if comparable else None for score in (final, best)] if human else []
                rows.append([task, variant, run.seed, run.last_step, final, best, *percents, _last_return(run, task)])
    rows.sort(key=lambda row: runs.tasks.index(str(row[0])))
    note = f"{unit_of_scores(runs)} Percent are normalised scores." if human else unit_of_scores(runs)
    return Table("by-seed", "Every seed", columns, rows, note)


def _last_return(run: Run, task: str) -> Cell:
    return next((plain(series.values[-1]) for series in known(run, run.log.returns[task])), None)


def _paper_rows(runs: Runs, found: Outcomes) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for task in filter(has_human, runs.tasks):
        for variant in runs.variants:
            ours, paper = found.get((variant, task)), _paper_score(runs.of(variant)[0], task)
            if ours is not None and paper is not None:
                score = ours.best_mean
                rows.append([task, variant, score, paper, normalized(task, score), normalized(task, paper)])
    return rows


def _paper_score(run: Run, task: str) -> float | None:
    """What the paper has for the same method, ablation and regime."""
    method, ablation = run.config.get("method"), run.config.get("ablation")
    name = str(method if ablation == "none" else ablation)
    size = run.config.get("curiosity.horizon"), run.config.get("runtime.sequence_length")
    if name == "byol-explore" and size == (1, 128):
        name = "big"
    if ablation != "none" and method != "byol-explore":
        return None
    regime = "mixed" if name == "none" else run.config.get("regime")
    scores = (paper_scores(table).get(name, {}).get(task) for table, facts in TABLES.items() if facts.regime == regime)
    return next((score for score in scores if score is not None), None)
