"""Films of a tiny run in a corridor, and the maps that it leaves."""

import dataclasses
import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from byol_explore.errors import UserError
from byol_explore.playing import films
from byol_explore.playing.films import STEPS, Film, film_run, one_episode
from byol_explore.run.directory import write_config
from byol_explore.settings.presets import make_config
from byol_explore.types import Trajectory
from runs import DISPATCH, quickly, run, shared_runtime, tiny

DISPATCHES = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "run"
    run(tiny(env="corridor-1", dispatches=DISPATCHES), path)
    return path


def test_a_run_on_a_grid_leaves_maps_of_all_its_steps(directory: Path) -> None:
    (task,) = json.loads((directory / "maps.json").read_text())["tasks"].values()
    assert task["floor"] == ["###########", "#........G#", "###########"]
    rollout = DISPATCH // 2
    assert [(part["from"], part["to"]) for part in task["slices"]] == [
        (rollout * n, rollout * (n + 1)) for n in range(2 * DISPATCHES)
    ]
    visits = np.asarray([part["visits"] for part in task["slices"]])
    assert visits.sum(axis=(1, 2)).tolist() == [rollout] * 2 * DISPATCHES
    assert not visits[:, [0, 2]].any(), "nobody stands in a wall"
    assert np.asarray([part["intrinsic_reward"] for part in task["slices"]]).sum() > 0


def test_an_episode_before_and_after_training(directory: Path) -> None:
    heard: list[str] = []
    with quickly(), mock.patch.object(films, "make_runtime", shared_runtime):
        paths = film_run(directory, say=heard.append)
    assert [path.name for path in paths] == ["corridor-1-before.gif", "corridor-1-after.gif"]
    assert heard == [f"wrote {path}" for path in paths]
    lengths = []
    for path in paths:
        with Image.open(path) as film:
            lengths.append(getattr(film, "n_frames", 1))
    assert max(lengths) <= 31, "longer than an episode"
    assert min(lengths) > 1


def test_the_agent_before_is_made_in_the_games_as_they_were_trained(tmp_path: Path) -> None:
    """Filmed by the rules of evaluation: its encoders were begun on what training shows."""
    config = dataclasses.replace(make_config("atari-small"), env_settings=("sticky=0.25",))
    write_config(tmp_path, config)
    (tmp_path / "checkpoints" / "step_000000000010").mkdir(parents=True)

    class Made(Exception): ...

    with mock.patch.object(films, "make_runtime", side_effect=Made) as make, pytest.raises(Made):
        film_run(tmp_path)
    [env] = make.call_args.args[1]
    assert env.settings.sticky == 0.25


def episode(length: int, steps: int = STEPS) -> tuple[list[np.ndarray], Trajectory]:
    """Black pictures; a new episode begins behind `length` steps."""
    is_first = np.zeros((steps + 1, 1), bool)
    is_first[[0, length + 1] if length < steps else 0] = True
    blank = np.zeros((steps + 1, 1))
    frames = [np.zeros((10, 20, 3), np.uint8)] * (steps + 1)
    return frames, Trajectory(blank, is_first, *[None] * 6)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("length", [1, 7, STEPS])
def test_a_film_ends_with_its_first_episode(length: int) -> None:
    frames, trajectory = episode(length)
    drawn = one_episode(Film("after", "", None), frames, trajectory, lambda state, t: np.ones((STEPS, 1)))  # pyright: ignore[reportArgumentType]
    assert len(drawn) == length + 1


def test_the_strip_shows_the_rewards_up_to_now() -> None:
    rewards = np.zeros((STEPS, 1))
    rewards[2] = 1.0
    frames, trajectory = episode(6)
    drawn = one_episode(Film("after", "", None), frames, trajectory, lambda state, t: rewards)  # pyright: ignore[reportArgumentType]
    middle = drawn[0].shape[0] - 15  # a row that only a high bar reaches
    coloured = [bool((frame[middle] != frame[middle, -1]).any()) for frame in drawn]
    assert coloured == [False, False, False, True, True, True, True]


def test_a_run_without_checkpoints_is_refused(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    with pytest.raises(UserError, match="no checkpoint to film"):
        film_run(tmp_path)
