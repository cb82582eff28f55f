"""Episodes from a checkpoint: success and return, and a film of them."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.envs.tasks import Task, list_tasks
from byol_explore.errors import UserError
from byol_explore.evaluation.play import Results, play
from byol_explore.evaluation.recording import film
from byol_explore.evaluation.rules import evaluation_envs, rules_of
from byol_explore.evaluation.scores import human_normalized
from byol_explore.evaluation.statistics import mean_interval, rate_interval
from byol_explore.evaluation.success import rate, success_rules
from byol_explore.playing.agent import restore_actor
from byol_explore.playing.film_files import check_film_path, save_film
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config
from byol_explore.runtime.compilation import enable_compilation_cache

MODES = {"sampled": False, "greedy": True}  # ways of acting, and whether the likeliest action is taken


def evaluate(
    run_dir: Path | str,
    *,
    episodes: int | None = None,
    checkpoint: str = "last",
    seed: int = 0,
    success_above: float | None = None,
    gif: Path | str | None = None,
    gif_episodes: int = 3,
    rules: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Sampled (as in training) and greedy episodes of a run's target policy, per task, with 95% confidence intervals.

    By default 200 episodes, or as in the paper 10 where environments are outside jit. `progress` hears what is
    played and how many episodes of it have ended. `success_above` is the return above which an episode is a success;
    by default it is the run's. Where environments have rules for evaluations, as Atari games do, `rules` chooses among
    them; by default the run's settings do. `gif` is where a film goes: a GIF, or as its name ends (`film_files.py`).
    """
    if episodes is not None and episodes < 1:
        raise UserError(f"episodes is {episodes}: it must be at least 1")
    if success_above is not None and not math.isfinite(success_above):
        raise UserError(f"success_above is {success_above}: it must be finite")
    if gif is not None:
        check_film_path(Path(gif))
    directory = Path(run_dir)
    config = load_config(directory)
    enable_compilation_cache()
    envs = evaluation_envs(make_envs(config.env_ids, config.env_settings), rules)
    if episodes is None:
        episodes = 10 if isinstance(envs[0], HostEnvironment) else 200
    restored = restore_actor(config, envs, Checkpoints(directory / "checkpoints"), checkpoint)
    actor, key = restored.state, jax.random.key(seed)
    report: dict[str, Any] = {
        "run": str(directory),
        "checkpoint_steps": restored.meta["step"],
        "damaged_checkpoints": restored.damaged,
        "episodes": episodes,
        "tasks": {},
    }
    if said := rules_of(envs):
        report["rules"] = said
    tasks = list_tasks(config.env_ids, envs)
    least = config.success_above if success_above is None else success_above
    rules_of_success = success_rules([task.spec for task in tasks], least)
    played: dict[str, list[Played]] = {mode: [] for mode in MODES}
    for index, (task, rule) in enumerate(zip(tasks, rules_of_success, strict=True)):
        for mode, greedy in MODES.items():
            tell = partial(progress, f"{task.name}, {mode}") if progress else None
            results = play(
                actor, task.env, episodes, jax.random.fold_in(key, index), task=task.number, greedy=greedy,
                progress=tell,
            )  # fmt: skip
            played[mode].append(Played(task, results, rule.judge(results.episode_return, results.success)))
        report["tasks"][task.name] = {mode: _summarize(episodes[-1:]) for mode, episodes in played.items()}
    if len(tasks) > 1:
        report["over_tasks"] = {mode: _summarize(episodes) for mode, episodes in played.items()}
    if gif is not None:
        films = (film(actor, task.env, key, gif_episodes, task.number) for task in tasks)
        save_film(Path(gif), [frame for frames in films for frame in frames])
        report["gif"] = str(gif)
    return report


class Played(NamedTuple):
    """The episodes of a task, in one way of acting."""

    task: Task
    results: Results
    successes: np.ndarray  # [E] 1, 0 or UNSAID


def _summarize(played: list[Played]) -> dict[str, Any]:
    """The episodes of a task, or of all: they are equally many. Tasks without a success are left out of its rate."""
    judged = [each.successes == 1 for each in played if rate(each.successes) is not None]
    returns = np.concatenate([each.results.episode_return for each in played])
    lengths = np.concatenate([each.results.length for each in played])
    summary: dict[str, Any] = {
        "success_rate": rate_interval(np.concatenate(judged))._asdict() if judged else None,
        "return": mean_interval(returns)._asdict(),
        "length_mean": float(np.mean(lengths)),
    }
    percents = [_percent(each) for each in played if each.task.spec.scores is not None]
    if percents and len(percents) == len(played):
        summary["human_normalized"] = float(np.mean(percents))
    if stages := _stages(played):
        summary["stages"] = stages
    return summary


def _percent(played: Played) -> float:
    assert played.task.spec.scores is not None
    return human_normalized(float(np.mean(played.results.episode_return)), played.task.spec.scores)


def _stages(played: list[Played]) -> dict[str, float]:
    """The share of episodes that reached each stage, among those of tasks that have it."""
    reached: dict[str, list[np.ndarray]] = {}
    for task, results, _ in played:
        if results.reached is not None:
            for stage, episodes in zip(task.stages, results.reached.T, strict=True):
                reached.setdefault(stage, []).append(episodes)
    return {stage: float(np.mean(np.concatenate(parts))) for stage, parts in reached.items()}
