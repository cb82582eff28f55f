"""Ten games, a run each: what is missing is trained, and the scores are gathered."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from byol_explore import hard10
from byol_explore.config import Config, to_dict
from byol_explore.envs.atari_games import HARD_GAMES
from byol_explore.errors import UserError
from byol_explore.hard10 import train_hard10
from byol_explore.presets import make_config
from command_line import call

CONFIG = dataclasses.replace(make_config("atari-small"), env=hard10.HARD10, steps=1000)


class Trainer:
    """Stands in for `train`: notes its calls and writes what a run leaves behind."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.fails_at = ""
        self.evaluates = True

    def __call__(self, config: Config, run_dir: Path, *, resume: bool, quiet: bool) -> None:
        game = config.env.removeprefix("atari:")
        assert run_dir.name == game
        self.calls.append((game, resume))
        run_dir.mkdir(exist_ok=True)
        (run_dir / "config.json").write_text(json.dumps(to_dict(config)))
        if game == self.fails_at:
            raise KeyboardInterrupt
        facts = HARD_GAMES[game]
        summary: dict[str, Any] = {"steps": 1024, "interrupted": False, "best_return": 1e9, "rooms_found": 3}
        if self.evaluates:
            summary["evaluation_best"] = facts.human if game == "alien" else facts.random
        (run_dir / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    stand_in = Trainer()
    monkeypatch.setattr(hard10, "train", stand_in)
    return stand_in


def test_every_game_is_a_run_of_its_own_and_scores_are_relative_to_humans(tmp_path: Path, trainer: Trainer) -> None:
    scores = train_hard10(CONFIG, tmp_path / "study", quiet=True)
    assert trainer.calls == [(game, False) for game in HARD_GAMES]
    assert scores["games"]["alien"]["human_normalized"] == pytest.approx(100.0)
    assert scores["games"]["venture"] == {"score": 0.0, "human_normalized": 0.0, "clipped": 0.0, "rooms_found": 3}
    assert scores["mean_clipped"] == pytest.approx(10.0)
    assert json.loads((tmp_path / "study" / "scores.json").read_text()) == scores


def test_without_an_evaluation_there_is_no_score(
    tmp_path: Path, trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best of all training episodes is none."""
    trainer.evaluates = False
    options = ("--preset", "atari-small", "--env", hard10.HARD10, "--run-dir", str(tmp_path / "study"))
    code, out, _ = call(capsys, "train", *options)
    scores = json.loads((tmp_path / "study" / "scores.json").read_text())
    assert code == 0
    assert scores["games"]["venture"] == dict.fromkeys(("score", "human_normalized", "clipped")) | {"rooms_found": 3}
    assert scores["mean_clipped"] is None
    assert f"no score without an evaluation: {', '.join(HARD_GAMES)}; set --log.evaluate-every" in out


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path, trainer: Trainer) -> None:
    trainer.fails_at = "gravitar"
    with pytest.raises(KeyboardInterrupt):
        train_hard10(CONFIG, tmp_path / "study", quiet=True)
    assert list(json.loads((tmp_path / "study" / "scores.json").read_text())["games"]) == ["alien", "freeway"]
    trainer.calls, trainer.fails_at = [], ""
    train_hard10(CONFIG, tmp_path / "study", resume=True, quiet=True)
    games = list(HARD_GAMES)
    assert trainer.calls == [("gravitar", True), *[(game, False) for game in games[games.index("gravitar") + 1 :]]]
    trainer.calls = []
    train_hard10(CONFIG, tmp_path / "study", resume=True, quiet=True)
    assert trainer.calls == []


def test_a_folder_in_use_is_not_touched_and_another_configuration_is_refused(tmp_path: Path, trainer: Trainer) -> None:
    train_hard10(CONFIG, tmp_path / "study", quiet=True)
    with pytest.raises(UserError, match="already holds a run"):
        train_hard10(CONFIG, tmp_path / "study", quiet=True)
    other = dataclasses.replace(CONFIG, seed=5)
    with pytest.raises(UserError, match="seed was 0, now 5"):
        train_hard10(other, tmp_path / "study", resume=True, quiet=True)


def test_more_steps_continue_all_games(tmp_path: Path, trainer: Trainer) -> None:
    train_hard10(CONFIG, tmp_path / "study", quiet=True)
    trainer.calls = []
    train_hard10(dataclasses.replace(CONFIG, steps=2000), tmp_path / "study", resume=True, quiet=True)
    assert trainer.calls == [(game, True) for game in HARD_GAMES]
