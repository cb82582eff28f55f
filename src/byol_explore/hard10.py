"""The ten hardest Atari games as ten runs, one after the other, in one folder."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from byol_explore.checkpoint import write_atomically
from byol_explore.config import Config, default_run_dir
from byol_explore.envs.atari_games import HARD_GAMES
from byol_explore.envs.registry import make_envs
from byol_explore.evaluation.scores import clipped, human_normalized
from byol_explore.metrics import check_extras
from byol_explore.run_directory import check_resumable, check_run_dir, load_config, write_config
from byol_explore.training import resolve_devices, train

HARD10 = "atari:hard10"


def train_hard10(
    config: Config, folder: Path | str | None = None, *, resume: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Train an agent of its own on each game; with `resume`, finish what is missing.

    The folder holds a run directory per game and scores.json, which is rewritten after each.
    """
    folder = Path(folder) if folder is not None else default_run_dir(config)
    check_run_dir(folder, config, resume=resume)
    check_extras(resolve_devices(config.validate()))
    make_envs([f"atari:{next(iter(HARD_GAMES))}"], config.atari)
    write_config(folder, config)
    for game in HARD_GAMES:
        run_dir, single = folder / game, dataclasses.replace(config, env=f"atari:{game}")
        if resume and is_finished(run_dir, single):
            if not quiet:
                print(f"{game}: done before")
            continue
        if not quiet:
            print(f"{game}: game {list(HARD_GAMES).index(game) + 1} of {len(HARD_GAMES)}", flush=True)
        train(single, run_dir, resume=resume and (run_dir / "config.json").exists(), quiet=quiet)
        write_scores(folder)
    return write_scores(folder)


def is_finished(run_dir: Path, config: Config) -> bool:
    """Whether a run has all its steps."""
    if not (run_dir / "summary.json").exists():
        return False
    check_resumable(load_config(run_dir), dataclasses.replace(config, runtime=load_config(run_dir).runtime))
    summary = json.loads((run_dir / "summary.json").read_text())
    return not summary["interrupted"] and summary["steps"] >= config.steps


def write_scores(folder: Path) -> dict[str, Any]:
    """scores.json: of each game that has a summary, its best evaluation and what that is to a human.

    A game that was never evaluated has no score: its best training episode is one of thousands, the paper's scores are
    means over ten fresh ones.
    """
    games: dict[str, Any] = {}
    for game, facts in HARD_GAMES.items():
        path = folder / game / "summary.json"
        if not path.exists():
            continue
        summary = json.loads(path.read_text())
        score = summary.get("evaluation_best")
        percent = None if score is None else human_normalized(score, (facts.random, facts.human))
        games[game] = {
            "score": score,
            "human_normalized": percent,
            "clipped": None if percent is None else clipped(percent),
            "rooms_found": summary.get("rooms_found"),
        }
    known = [entry["clipped"] for entry in games.values() if entry["clipped"] is not None]
    scores = {"games": games, "mean_clipped": sum(known) / len(known) if known else None}
    write_atomically(folder / "scores.json", json.dumps(scores, indent=2) + "\n")
    return scores
