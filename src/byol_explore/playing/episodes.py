"""Episodes from a checkpoint: success and return, and a film of them."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.evaluation.play import Results, play
from byol_explore.evaluation.recording import film
from byol_explore.evaluation.rules import evaluation_envs, rules_of
from byol_explore.evaluation.scores import human_normalized
from byol_explore.evaluation.statistics import mean_interval, rate_interval
from byol_explore.evaluation.success import SuccessRule, rate, success_rules
from byol_explore.playing.agent import restore_actor
from byol_explore.playing.film_files import check_film_path, save_film
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config
from byol_explore.runtime.compilation import enable_compilation_cache


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
    restored = restore_actor(config, envs[0].spec, len(envs), Checkpoints(directory / "checkpoints"), checkpoint)
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
    least = config.success_above if success_above is None else success_above
    rules_of_success = success_rules([env.spec for env in envs], least)
    for index, (task, env, rule) in enumerate(zip(config.env_ids, envs, rules_of_success, strict=True)):
        report["tasks"][task] = {}
        for mode, greedy in (("sampled", False), ("greedy", True)):
            tell = partial(progress, f"{task}, {mode}") if progress else None
            results = play(actor, env, episodes, jax.random.fold_in(key, index), greedy=greedy, progress=tell)
            report["tasks"][task][mode] = _summarize(results, rule, env.spec.scores)
    if gif is not None:
        save_film(Path(gif), [frame for env in envs for frame in film(actor, env, key, gif_episodes)])
        report["gif"] = str(gif)
    return report


def _summarize(results: Results, rule: SuccessRule, scores: tuple[float, float] | None) -> dict[str, Any]:
    successes = rule.judge(results.episode_return, results.success)
    summary = {
        "success_rate": None if rate(successes) is None else rate_interval(successes == 1)._asdict(),
        "return": mean_interval(results.episode_return)._asdict(),
        "length_mean": float(np.mean(results.length)),
    }
    if scores is not None:
        summary["human_normalized"] = human_normalized(float(np.mean(results.episode_return)), scores)
    return summary
