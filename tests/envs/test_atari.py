"""Atari games in worker processes: time steps, positions, specs and random tasks."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ale_py
import jax
import numpy as np
import pytest
from ale_py import roms

import byol_explore
from builders import steps_of
from byol_explore.envs.atari import Atari, AtariVectorEnv, atari_games
from byol_explore.envs.atari_worker import StepResult
from byol_explore.envs.families import HARD_GAMES, AtariSettings
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import HostVectorEnv
from byol_explore.envs.names import EnvSettings
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.errors import UserError
from byol_explore.training.coverage import RoomCoverage
from byol_explore.types import Action, TimeStep
from envs.games import LEFT, NOOP, RIGHT, emulator, random_actions

SCORES = {  # of random actions and of a human, from the paper
    "alien": (227.8, 7127.7),
    "freeway": (0.0, 29.6),
    "gravitar": (173.0, 3351.4),
    "hero": (1027.0, 30826.4),
    "montezuma_revenge": (0.0, 4753.3),
    "pitfall": (-229.4, 6463.7),
    "private_eye": (24.9, 69571.3),
    "qbert": (163.9, 13455.0),
    "solaris": (1236.3, 12326.7),
    "venture": (0.0, 1187.5),
}


@contextlib.contextmanager
def open_games(game: str, num_envs: int, workers: int = 1, seed: int = 3, **settings: Any) -> Iterator[AtariVectorEnv]:
    batch = Atari(game, AtariSettings(num_workers=workers, **settings)).make_vector_env(num_envs, seed)
    with contextlib.closing(batch):
        yield batch


def choose(*actions: int) -> Action:
    return Action(np.asarray(actions, np.int32)[:, None], np.zeros((len(actions), 0), np.float32))


def stream(batch: AtariVectorEnv, actions: np.ndarray) -> tuple[TimeStep, np.ndarray]:
    """Return copies of time steps [T + 1, E] and positions [T + 1, E, P] along actions [T, E]."""
    steps, places = [jax.tree.map(np.copy, batch.reset())], [batch.positions()]
    for chosen in actions:
        steps.append(jax.tree.map(np.copy, batch.step(choose(*chosen))))
        places.append(batch.positions())
    return jax.tree.map(lambda *xs: np.stack(xs), *steps), np.stack(places)


# Time steps

LIVELY = {
    "terminal_on_life_loss": True,
    "max_noops": 30,
    "max_frames": 150,
}  # episodes end in both ways, at different times
ACTIONS = np.tile(np.asarray([RIGHT, LEFT, NOOP], np.int32), (45, 1))


@pytest.fixture(scope="module")
def played() -> tuple[TimeStep, np.ndarray]:
    with open_games("montezuma_revenge", 3, workers=1, **LIVELY) as batch:
        return stream(batch, ACTIONS)


@pytest.mark.parametrize("env", range(3))
def test_every_step_equals_that_of_a_single_emulator(played: tuple[TimeStep, np.ndarray], env: int) -> None:
    """The last observation stays; the next action begins an episode, with reward 0 and discount 1."""
    steps, places = played
    game = emulator(seed=3 + env, **LIVELY)
    game.reset()
    ended, answer = True, StepResult(0.0, False, False)
    for t in range(len(ACTIONS) + 1):
        at = (t, env)
        np.testing.assert_array_equal(steps.observation[at], game.observation, err_msg=str(t))
        np.testing.assert_array_equal(places[at], game.ram[[57, 3, 42, 43]])
        assert (steps.reward[at], steps.is_first[at]) == (answer.reward, ended)
        assert steps.is_last[at] == (answer.terminated or answer.truncated)
        assert steps.discount[at] == (0.0 if answer.terminated else 1.0)
        ended = bool(steps.is_last[at])
        if ended:
            game.reset()
            answer = StepResult(0.0, False, False)
        elif t < len(ACTIONS):
            answer = game.step(int(ACTIONS[at]))


def test_episodes_terminate_and_are_truncated(played: tuple[TimeStep, np.ndarray]) -> None:
    steps, _ = played
    assert set(steps.discount[steps.is_last]) == {0.0, 1.0}
    assert (steps.discount[~steps.is_last] == 1.0).all()
    assert len({tuple(np.flatnonzero(steps.is_last[:, env])) for env in range(3)}) == 3
    np.testing.assert_array_equal(steps.is_first[1:], steps.is_last[:-1])
    assert (steps.reward[steps.is_first] == 0.0).all()


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_streams_do_not_depend_on_the_number_of_workers(played: tuple[TimeStep, np.ndarray], workers: int) -> None:
    """Also not on ignored actions."""
    steps, places = played
    actions = np.where(steps.is_last[:-1], 17 - ACTIONS, ACTIONS)
    assert (actions != ACTIONS).any()
    with open_games("montezuma_revenge", 3, workers=workers, **LIVELY) as batch:
        again, same_places = stream(batch, actions)
    jax.tree.map(np.testing.assert_array_equal, again, steps)
    np.testing.assert_array_equal(same_places, places)


def test_another_seed_draws_other_no_ops(played: tuple[TimeStep, np.ndarray]) -> None:
    with open_games("montezuma_revenge", 3, seed=77, workers=2, **LIVELY) as batch:
        other, _ = stream(batch, ACTIONS)
    assert (other.observation != played[0].observation).any()


def test_reset_in_the_middle_begins_new_episodes() -> None:
    with open_games("freeway", 2, max_noops=0, max_frames=12) as batch:
        first = batch.reset().observation.copy()
        for _ in range(3):
            last = batch.step(choose(2, 2))
        assert last.is_last.all()
        again = batch.reset()
        np.testing.assert_array_equal(again.observation, first)
        assert again.is_first.all()
        following = batch.step(choose(2, 2))
        assert not following.is_first.any()
        assert not following.is_last.any()


def test_render_returns_the_whole_screen() -> None:
    """In colour, the screen of the first environment."""
    with open_games("private_eye", 2, workers=2, max_noops=0) as batch:
        batch.reset()
        before = batch.render()
        batch.step(choose(RIGHT, NOOP))
        after = batch.render()
    game = emulator("private_eye")
    game.reset()
    np.testing.assert_array_equal(before, game.ale.getScreenRGB())
    game.step(RIGHT)
    np.testing.assert_array_equal(after, game.ale.getScreenRGB())
    assert (before != after).any()


# Positions


def test_montezuma_begins_in_room_one() -> None:
    env = Atari("montezuma_revenge", AtariSettings(max_noops=0, num_workers=1))
    assert (env.spec.room_fields, env.spec.position_fields) == (("level", "room"), ("x", "y"))
    with contextlib.closing(env.make_vector_env(2, 0)) as batch:
        batch.reset()
        level, room, x, y = batch.positions()[0]
        assert (level, room) == (0, 1)
        batch.step(choose(RIGHT, LEFT))
        right, left = batch.positions()
    assert left[2] < x < right[2]
    assert left[3] == right[3] == y


@pytest.mark.parametrize(
    ("game", "actions", "rooms"),
    [
        ("pitfall", [LEFT] * 8, {196: 0, 226: 5}),
        ("private_eye", [LEFT] * 8, {0: 0, 31: 5}),
        ("private_eye", [RIGHT] * 32, {0: 0, 1: 30}),
    ],
)
def test_rooms_that_the_agent_enters_are_counted(game: str, actions: list[int], rooms: dict[int, int]) -> None:
    """The agent starts near the left edge; the rooms on both sides of the first have other numbers."""
    with open_games(game, 1, max_noops=0) as batch:
        _, places = stream(batch, np.asarray(actions)[:, None])
    coverage = RoomCoverage(Atari(game).spec)
    coverage.on_rollout(steps_of(places), 0)
    assert coverage.rooms == {(room,): step for room, step in rooms.items()}
    assert coverage.metrics() == {"rooms_visited": len(rooms)}
    assert sum(coverage.visits.values()) == len(actions) + 1


# Specs


@pytest.mark.parametrize("name", ["atari:montezuma", "atari:", "atari:MontezumaRevenge", "atari:../pong"])
def test_an_unknown_game_is_named(name: str) -> None:
    with pytest.raises(UserError) as caught:
        make_env(name)
    message = str(caught.value)
    assert repr(name.removeprefix("atari:")) in message
    assert "atari:montezuma_revenge" in message
    assert "\n" not in message


def test_scores_of_the_ten_games() -> None:
    assert list(SCORES) == list(HARD_GAMES)
    for game, scores in SCORES.items():
        spec = make_env(f"atari:{game}").spec
        assert (spec.name, spec.reference_scores) == (f"atari:{game}", scores)
        assert spec.action.discrete == (18,)
        assert (spec.observation.shape, spec.observation.dtype) == ((84, 84, 1), np.uint8)
        assert spec.max_steps == 27_000
    assert make_env("atari:pong").spec.reference_scores is None


@pytest.mark.parametrize("game", SCORES)
def test_every_game_steps(game: str) -> None:
    played = emulator(game, max_noops=30)
    played.reset()
    assert played.observation.any()
    for action in random_actions(5):
        assert not played.step(action).terminated


def test_settings_reach_the_games() -> None:
    envs = make_envs(
        ["atari:freeway"], EnvSettings(atari=AtariSettings(full_action_set=False, frame_stack=2, max_frames=10))
    )
    spec = envs[0].spec
    assert (spec.observation.shape, spec.action.discrete, spec.max_steps) == ((84, 84, 2), (3,), 3)
    with pytest.raises(UserError, match="cannot be learned by one agent: their observations or actions differ"):
        make_envs(["atari:freeway", "atari:qbert"], EnvSettings(atari=AtariSettings(full_action_set=False)))
    with pytest.raises(UserError, match="inside and outside jit cannot be learned by one agent"):
        make_envs(["atari:freeway", "rooms-2"])


@contextlib.contextmanager
def random_games(workers: int, seed: int = 0, **settings: Any) -> Iterator[HostVectorEnv]:
    chosen = AtariSettings(num_workers=workers, **settings)
    games = [Atari(name, chosen) for name in ("montezuma_revenge", "hero", "alien")]
    with contextlib.closing(make_host_vector_env(games, 4, seed, "random")) as batch:
        yield batch


def play_random_games(workers: int, seed: int = 0) -> tuple[TimeStep, np.ndarray]:
    with random_games(workers, seed, max_noops=0, max_frames=8) as batch:
        steps, tasks = [jax.tree.map(np.copy, batch.reset())], [batch.task_ids().copy()]
        for _ in range(60):
            steps.append(jax.tree.map(np.copy, batch.step(choose(0, 0, 0, 0))))
            tasks.append(batch.task_ids().copy())
    return jax.tree.map(lambda *xs: np.stack(xs), *steps), np.stack(tasks)


def test_a_random_game_is_drawn_for_each_episode() -> None:
    """Episodes have three equal steps, so the first picture shows the game."""
    steps, tasks = play_random_games(workers=1)
    np.testing.assert_array_equal(steps.is_first[:, 0], np.arange(61) % 3 == 0)
    pictures: dict[int, set[bytes]] = {}
    for t, env in np.argwhere(steps.is_first):
        pictures.setdefault(int(tasks[t, env]), set()).add(steps.observation[t, env].tobytes())
    assert sorted(pictures) == [0, 1, 2]
    assert [len(each) for each in pictures.values()] == [1, 1, 1]
    assert len(set.union(*pictures.values())) == 3
    assert not ((tasks[1:] != tasks[:-1]) & ~steps.is_first[1:]).any(), "the game changes within an episode"
    np.testing.assert_allclose(np.bincount(tasks.ravel()) / tasks.size, 1 / 3, atol=0.18)


def test_random_games_depend_on_the_seed_not_on_the_workers() -> None:
    (one, tasks), (two, same), (_, other) = play_random_games(1), play_random_games(2), play_random_games(1, seed=9)
    np.testing.assert_array_equal(tasks, same)
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert (tasks != other).any()


def test_positions_are_those_of_the_random_game() -> None:
    names = ("hero", "montezuma_revenge")
    for chosen, places in ((names, 0), (names[:1] * 2, 2)):
        games = [Atari(name, AtariSettings(num_workers=1)) for name in chosen]
        with contextlib.closing(make_host_vector_env(games, 2, 0, "random")) as batch:
            batch.reset()
            assert batch.positions().shape == (2, places)
            if places:
                np.testing.assert_array_equal(batch.positions(), batch._shared.ram[:, [117, 28]])


def test_all_games_come_with_ale_py() -> None:
    """No file has to be downloaded."""
    package = Path(ale_py.__file__).parent
    assert len(atari_games()) > 100
    for game in atari_games():
        path = roms.get_rom_path(game)
        assert path is not None
        assert package in path.parents
    sources = Path(byol_explore.__file__).parent.rglob("*.py")
    assert not [path for path in sources if re.search(r"download|autorom|urlopen", path.read_text(), re.IGNORECASE)]
