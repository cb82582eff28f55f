"""Atari games in worker processes: streams, places, and processes that end."""

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
from byol_explore.envs.adapters.atari import Atari, AtariBatch, atari_games
from byol_explore.envs.adapters.atari_emulator import Answer
from byol_explore.envs.adapters.atari_games import HARD_GAMES
from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.errors import UserError
from byol_explore.run.coverage import Coverage
from byol_explore.types import Action, TimeStep
from envs.games import LEFT, NOOP, RIGHT, emulator, random_actions

SCORES = {  # of random actions and of a human, as the paper's human-normalised scores have them
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
def opened(game: str, num_envs: int, workers: int = 1, seed: int = 3, **settings: Any) -> Iterator[AtariBatch]:
    batch = Atari(game, AtariSettings(**settings), workers=workers).batch(num_envs, seed)
    with contextlib.closing(batch):
        yield batch


def choose(*actions: int) -> Action:
    return Action(np.asarray(actions, np.int32)[:, None], np.zeros((len(actions), 0), np.float32))


def stream(batch: AtariBatch, actions: np.ndarray) -> tuple[TimeStep, np.ndarray]:
    """Time steps [T + 1, E] and places [T + 1, E, P] along actions [T, E]; copies, as memory is shared."""
    steps, places = [jax.tree.map(np.copy, batch.reset())], [batch.places()]
    for chosen in actions:
        steps.append(jax.tree.map(np.copy, batch.step(choose(*chosen))))
        places.append(batch.places())
    return jax.tree.map(lambda *xs: np.stack(xs), *steps), np.stack(places)


# The stream

LIVELY = {"life_loss": True, "noops": 30, "max_frames": 150}  # episodes end in both ways, at different times
ACTIONS = np.tile(np.asarray([RIGHT, LEFT, NOOP], np.int32), (45, 1))


@pytest.fixture(scope="module")
def played() -> tuple[TimeStep, np.ndarray]:
    with opened("montezuma_revenge", 3, workers=1, **LIVELY) as batch:
        return stream(batch, ACTIONS)


@pytest.mark.parametrize("env", range(3))
def test_every_step_is_that_of_one_game_by_hand(played: tuple[TimeStep, np.ndarray], env: int) -> None:
    """The last observation stays, the next action starts a new episode, with no reward and a discount of 1."""
    steps, places = played
    game = emulator(seed=3 + env, **LIVELY)
    game.reset()
    ended, answer = True, Answer(0.0, False, False)
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
            answer = Answer(0.0, False, False)
        elif t < len(ACTIONS):
            answer = game.step(int(ACTIONS[at]))


def test_episodes_end_in_both_ways(played: tuple[TimeStep, np.ndarray]) -> None:
    steps, _ = played
    assert set(steps.discount[steps.is_last]) == {0.0, 1.0}
    assert (steps.discount[~steps.is_last] == 1.0).all()
    assert len({tuple(np.flatnonzero(steps.is_last[:, env])) for env in range(3)}) == 3
    np.testing.assert_array_equal(steps.is_first[1:], steps.is_last[:-1])
    assert (steps.reward[steps.is_first] == 0.0).all()


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_streams_do_not_depend_on_the_number_of_workers(played: tuple[TimeStep, np.ndarray], workers: int) -> None:
    """Nor on actions that are ignored."""
    steps, places = played
    actions = np.where(steps.is_last[:-1], 17 - ACTIONS, ACTIONS)
    assert (actions != ACTIONS).any()
    with opened("montezuma_revenge", 3, workers=workers, **LIVELY) as batch:
        again, same_places = stream(batch, actions)
    jax.tree.map(np.testing.assert_array_equal, again, steps)
    np.testing.assert_array_equal(same_places, places)


def test_another_seed_waits_differently(played: tuple[TimeStep, np.ndarray]) -> None:
    with opened("montezuma_revenge", 3, seed=77, workers=2, **LIVELY) as batch:
        other, _ = stream(batch, ACTIONS)
    assert (other.observation != played[0].observation).any()


def test_a_reset_in_the_middle_starts_all_anew() -> None:
    with opened("freeway", 2, noops=0, max_frames=12) as batch:
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


def test_a_picture_is_the_whole_screen() -> None:
    """In colour, of the first environment."""
    with opened("private_eye", 2, workers=2, noops=0) as batch:
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


# Places


def test_montezuma_begins_in_room_one() -> None:
    env = Atari("montezuma_revenge", AtariSettings(noops=0), workers=1)
    assert (env.spec.rooms, env.spec.position) == (("level", "room"), ("x", "y"))
    with contextlib.closing(env.batch(2, 0)) as batch:
        batch.reset()
        level, room, x, y = batch.places()[0]
        assert (level, room) == (0, 1)
        batch.step(choose(RIGHT, LEFT))
        right, left = batch.places()
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
def test_walking_out_of_a_room_is_counted(game: str, actions: list[int], rooms: dict[int, int]) -> None:
    """The explorer starts near the left edge; the screens on both sides of the first are other numbers."""
    with opened(game, 1, noops=0) as batch:
        _, places = stream(batch, np.asarray(actions)[:, None])
    coverage = Coverage(Atari(game).spec)
    coverage.add(steps_of(places), 0)
    assert coverage.rooms == {(room,): step for room, step in rooms.items()}
    assert coverage.summary() == {"rooms_found": len(rooms)}
    assert sum(coverage.visits.values()) == len(actions) + 1


# Names and facts


@pytest.mark.parametrize("name", ["atari:montezuma", "atari:", "atari:MontezumaRevenge", "atari:../pong"])
def test_an_unknown_game_is_named(name: str) -> None:
    with pytest.raises(UserError) as caught:
        make_env(name)
    message = str(caught.value)
    assert repr(name.removeprefix("atari:")) in message
    assert "atari:montezuma_revenge" in message
    assert "\n" not in message


def test_ten_games_with_their_scores() -> None:
    assert list(SCORES) == list(HARD_GAMES)
    for game, scores in SCORES.items():
        spec = make_env(f"atari:{game}").spec
        assert (spec.name, spec.scores) == (f"atari:{game}", scores)
        assert spec.action.discrete == (18,)
        assert (spec.observation.shape, spec.observation.dtype) == ((84, 84, 1), np.uint8)
        assert spec.max_steps == 27_000
    assert make_env("atari:pong").spec.scores is None


@pytest.mark.parametrize("game", SCORES)
def test_every_game_plays(game: str) -> None:
    played = emulator(game, noops=30)
    played.reset()
    assert played.observation.any()
    for action in random_actions(5):
        assert not played.step(action).terminated


def test_settings_reach_the_games() -> None:
    envs = make_envs(["atari:freeway"], ["full_action_set=false", "stack=2", "max_frames=10"])
    spec = envs[0].spec
    assert (spec.observation.shape, spec.action.discrete, spec.max_steps) == ((84, 84, 2), (3,), 3)
    with pytest.raises(UserError, match="cannot be learned by one agent: their observations or actions differ"):
        make_envs(["atari:freeway", "atari:qbert"], {"full_action_set": False})
    with pytest.raises(UserError, match="inside and outside jit cannot be learned by one agent"):
        make_envs(["atari:freeway", "rooms-2"])


def test_games_outside_the_mask_stand_still() -> None:
    """Also one that has ended: it begins anew when it is its turn."""
    with contextlib.closing(Atari("freeway", AtariSettings(noops=0, max_frames=8), workers=2).batch(3, 0)) as batch:
        batch.reset()
        up, before = Action(np.ones((3, 1), int), np.zeros((3, 0))), batch._shared.ram.copy()
        answer = batch.step_some(up, np.array([True, False, True]))
        moved = (batch._shared.ram != before).any(axis=1)
        assert (moved.tolist(), answer.is_last[[0, 2]].tolist()) == ([True, False, True], [False, False])
        assert batch.step_some(up, np.array([True, True, False])).is_last[:2].tolist() == [True, False]
        for _ in range(2):
            answer = batch.step_some(up, np.array([False, True, False]))
        assert answer.is_first[1], "it ended one step before"
        answer = batch.step_some(up, np.array([True, False, True]))
        assert (answer.is_first[[0, 2]].tolist(), answer.is_last[[0, 2]].tolist()) == ([True, False], [False, True])


def test_all_games_come_with_ale_py() -> None:
    """Nothing has to be fetched."""
    package = Path(ale_py.__file__).parent
    assert len(atari_games()) > 100
    for game in atari_games():
        path = roms.get_rom_path(game)
        assert path is not None
        assert package in path.parents
    sources = Path(byol_explore.__file__).parent.rglob("*.py")
    assert not [path for path in sources if re.search(r"download|autorom|urlopen", path.read_text(), re.IGNORECASE)]
