"""Films of a tiny run in a corridor, and its visit maps."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from builders import assert_trees_close
from byol_explore.config.presets import make_config
from byol_explore.envs.families import AtariSettings
from byol_explore.errors import UserError
from byol_explore.evaluation import films
from byol_explore.evaluation.films import STEPS, FilmSubject, draw_episode, film
from byol_explore.evaluation.rollouts import record_rollout
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.run_directory import write_config
from byol_explore.types import Trajectory
from runs import DISPATCH, quickly, run, shared_runtime, tiny

DISPATCHES = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "run"
    run(tiny(env="corridor-1", dispatches=DISPATCHES), path)
    return path


def test_a_grid_run_writes_maps_of_all_steps(directory: Path) -> None:
    (task,) = json.loads((directory / "visit_maps.json").read_text())["tasks"].values()
    assert task["floor"] == ["###########", "#........G#", "###########"]
    rollout = DISPATCH // 2
    assert [(part["from"], part["to"]) for part in task["slices"]] == [
        (rollout * n, rollout * (n + 1)) for n in range(2 * DISPATCHES)
    ]
    visits = np.asarray([part["visits"] for part in task["slices"]])
    assert visits.sum(axis=(1, 2)).tolist() == [rollout] * 2 * DISPATCHES
    assert not visits[:, [0, 2]].any(), "no visit in a wall"
    assert np.asarray([part["intrinsic_reward"] for part in task["slices"]]).sum() > 0


def test_film_shows_an_episode_before_and_after_training(directory: Path) -> None:
    heard: list[str] = []
    with quickly(), mock.patch.object(films, "make_runtime", shared_runtime):
        paths = film(directory, say=heard.append)
    assert [path.name for path in paths] == ["corridor-1-before.gif", "corridor-1-after.gif"]
    assert heard == [f"wrote {path}" for path in paths]
    lengths = []
    for path in paths:
        with Image.open(path) as movie:
            lengths.append(getattr(movie, "n_frames", 1))
    assert max(lengths) <= 31, "longer than an episode"
    assert min(lengths) > 1


def test_agent_before_training_has_the_networks_of_init_from(directory: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(env="corridor-1", dispatches=1), init_from=str(directory))
    run(config, tmp_path / "second")
    actors: list[Any] = []

    def record(actor: Any, *rest: Any) -> Any:
        actors.append(actor)
        return record_rollout(actor, *rest)

    with (
        quickly(), mock.patch.object(films, "make_runtime", shared_runtime),
        mock.patch.object(films, "record_rollout", record),
    ):  # fmt: skip
        film(tmp_path / "second")
    before, _ = actors
    trained = Checkpoints(directory / "checkpoints").restore(before, part="learner.target_actor").state
    assert_trees_close(before, trained, rtol=0, atol=0)


def test_missing_run_of_init_from_leaves_the_film_after_training(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "first")
    config = dataclasses.replace(tiny(env="corridor-1", dispatches=1), init_from=str(tmp_path / "first"))
    run(config, tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    heard: list[str] = []
    with quickly(), mock.patch.object(films, "make_runtime", shared_runtime):
        paths = film(tmp_path / "second", say=heard.append)
    assert [path.name for path in paths] == ["corridor-1-after.gif"]
    assert heard[0].startswith(f"no film of the agent before training: init_from: {tmp_path / 'first'} holds no run")


def test_agent_before_training_is_initialised_in_the_training_games(tmp_path: Path) -> None:
    """Encoders are centred on observations of training, even if the film follows an evaluation protocol."""
    config = dataclasses.replace(make_config("atari-small"), atari=AtariSettings(sticky_action_prob=0.25))
    write_config(tmp_path, config)
    (tmp_path / "checkpoints" / "step_000000000010").mkdir(parents=True)

    class Stop(Exception): ...

    with mock.patch.object(films, "make_runtime", side_effect=Stop) as make, pytest.raises(Stop):
        film(tmp_path)
    [env] = make.call_args.args[1]
    assert env.settings.sticky_action_prob == 0.25


def episode(length: int, steps: int = STEPS) -> tuple[list[np.ndarray], Trajectory]:
    """Return black frames and a trajectory whose first episode has `length` steps."""
    is_first = np.zeros((steps + 1, 1), bool)
    is_first[[0, length + 1] if length < steps else 0] = True
    blank = np.zeros((steps + 1, 1))
    frames = [np.zeros((10, 20, 3), np.uint8)] * (steps + 1)
    return frames, Trajectory(blank, is_first, *[None] * 6)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("length", [1, 7, STEPS])
def test_film_ends_with_its_first_episode(length: int) -> None:
    frames, trajectory = episode(length)
    drawn = draw_episode(FilmSubject("after", "", None), frames, trajectory, lambda state, t: np.ones((STEPS, 1)))  # pyright: ignore[reportArgumentType]
    assert len(drawn) == length + 1


def test_bar_chart_shows_the_rewards_up_to_now() -> None:
    rewards = np.zeros((STEPS, 1))
    rewards[2] = 1.0
    frames, trajectory = episode(6)
    drawn = draw_episode(FilmSubject("after", "", None), frames, trajectory, lambda state, t: rewards)  # pyright: ignore[reportArgumentType]
    middle = drawn[0].shape[0] - 15  # a row that only a high bar reaches
    coloured = [bool((frame[middle] != frame[middle, -1]).any()) for frame in drawn]
    assert coloured == [False, False, False, True, True, True, True]


def test_run_without_checkpoints_is_a_user_error(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    with pytest.raises(UserError, match="no checkpoint to film"):
        film(tmp_path)
