"""Measure how far random actions or scripted experts get in Hard-Eight: the share of episodes that reach each stage.

python benchmarks/hard_eight_shares.py --json shares.json
python benchmarks/hard_eight_shares.py --actions discrete --task wall-sensor --episodes 1024
python benchmarks/hard_eight_shares.py --policy expert --episodes 1000
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from byol_explore.envs.families import HardEightSettings
from byol_explore.envs.hard_eight import tasks
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.envs.hard_eight.experts import EpisodeResult, expert_policy, random_policy, run_episodes
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.errors import UserError, unknown_name
from byol_explore.utils.files import atomic_write

Figures = dict[str, float | None]
COLUMNS = (
    TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("eta"),
    TimeRemainingColumn(),
)  # fmt: skip
KINDS = {"nine": "continuous", "discrete": "discrete"}


@dataclass(frozen=True)
class Arguments:
    """Run episodes without rendering and count the stages that they reach."""

    task: tuple[str, ...] = TASKS
    """Tasks to play."""
    actions: Literal["nine", "discrete"] = "nine"
    """The nine actions of DM-HARD-8, or the discrete moves."""
    policy: Literal["random", "expert"] = "random"
    """random: clipped standard normal numbers and fair coins; expert: the script of the task, with nine actions."""
    episodes: int = 4096
    """Episodes per task."""
    batch: int = 128
    """Episodes per batch."""
    seed: int = 0
    """Seed of levels and actions."""
    json: Path | None = None
    """File to write the figures to."""


def outcomes(arguments: Arguments, task: str) -> Iterator[EpisodeResult]:
    """Yield results of batches of a task; the last one is cut to the number of episodes."""
    env = HardEight(task, HardEightSettings(resolution="32x24", action_set=KINDS[arguments.actions]))
    choose = expert_policy(env) if arguments.policy == "expert" else random_policy(env.spec.action)
    key = jax.random.key(arguments.seed)
    for start in range(0, arguments.episodes, arguments.batch):
        batch = run_episodes(env, choose, jax.random.fold_in(key, start), arguments.batch)
        yield EpisodeResult(*[np.asarray(field)[: arguments.episodes - start] for field in batch])


def measure(arguments: Arguments) -> dict[str, Figures]:
    """Return shares by task and stage, the mean return, and the median length of solved episodes."""
    figures = {}
    with Progress(*COLUMNS, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=arguments.episodes * len(arguments.task))
        for task in arguments.task:
            progress.update(bar, description=task)
            batches = []
            for batch in outcomes(arguments, task):
                batches.append(batch)
                progress.advance(bar, len(batch.solved))
            figures[task] = summarize(EpisodeResult(*[np.concatenate(field) for field in zip(*batches, strict=True)]))
    return figures


def summarize(outcome: EpisodeResult) -> Figures:
    shares = dict(zip(HardEight.stages, np.mean(outcome.stages_reached, axis=0).tolist(), strict=True))
    solved = np.asarray(outcome.num_actions)[np.asarray(outcome.solved)]
    median = float(np.median(solved)) if len(solved) else None
    return shares | {"mean return": float(np.mean(outcome.total)), "median decisions": median}


def show(figures: dict[str, Figures], title: str) -> None:
    """Print a row per task with the reached stages in percent; its first stage is marked."""
    table = Table(title=title, show_lines=True)
    for column in ("task", "reached", "mean return", "median decisions"):
        table.add_column(column, justify="left" if column in ("task", "reached") else "right")
    for task, shares in figures.items():
        first = tasks.TASK_TABLE[task].first_stage
        reached = [f"{'*' * (stage == first)}{stage} {100 * (shares[stage] or 0):.2f}"
                   for stage in HardEight.stages if shares[stage] or stage == first]  # fmt: skip
        median = shares["median decisions"]
        mean = f"{shares['mean return']:.3f}"
        table.add_row(task, ", ".join(reached), mean, "-" if median is None else f"{median:.0f}")
    Console().print(table)


def main(arguments: Arguments) -> None:
    try:
        for task in arguments.task:
            if task not in TASKS:
                raise unknown_name("task", task, list(TASKS))
        if arguments.policy == "expert" and arguments.actions == "discrete":
            raise UserError("the experts use the nine actions: leave --actions discrete out")
    except UserError as error:
        sys.exit(f"error: {error}")
    figures = measure(arguments)
    show(figures, f"% of {arguments.episodes:,} episodes, {arguments.policy}, {arguments.actions} (* first step)")
    if arguments.json is not None:
        atomic_write(arguments.json, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
