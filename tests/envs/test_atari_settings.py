"""What each of the Atari settings does to a game."""

import dataclasses

import numpy as np
import pytest

from byol_explore.envs.adapters.atari import Atari
from byol_explore.envs.adapters.atari_emulator import Answer, action_count
from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.errors import UserError
from byol_explore.evaluation.rules import evaluation_envs
from byol_explore.settings.presets import make_config
from envs.games import LEFT, LIVES, NOOP, RIGHT, X, emulator, memories, random_actions

OWN = AtariSettings(
    action_repeat=3, stack=2, sticky=0.25, full_action_set=False, noops=5, max_frames=900, clip_rewards=True,
    life_loss=True, workers=2,
)  # fmt: skip


def test_evaluation_follows_the_papers_rules_however_an_agent_is_trained() -> None:
    """Thirty no-ops at most, nothing sticky, half an hour, whole games, raw scores; what it sees and can do stays."""
    assert OWN.for_evaluation() == AtariSettings(
        action_repeat=3, stack=2, sticky=0.0, full_action_set=False, noops=30, max_frames=108_000, clip_rewards=False,
        life_loss=False, workers=2,
    )  # fmt: skip
    assert AtariSettings().for_evaluation() == AtariSettings()


def test_evaluation_can_keep_the_rules_of_training() -> None:
    """But for whole games and their scores."""
    own = dataclasses.replace(OWN, evaluation="training")
    assert own.for_evaluation() == dataclasses.replace(own, clip_rewards=False, life_loss=False)


def test_while_training_the_papers_rules_are_played_unless_asked_otherwise() -> None:
    [env] = evaluation_envs([Atari("freeway", OWN)])
    assert isinstance(env, Atari)
    assert env.settings == OWN.for_evaluation()
    assert (env.spec.max_steps, env.rules) == (36_000, {"noops": 30, "sticky": 0.0, "max_frames": 108_000})
    for asked in (
        evaluation_envs([Atari("freeway", dataclasses.replace(OWN, evaluation="training"))]),
        evaluation_envs([Atari("freeway", OWN)], "training"),
    ):
        [env] = asked
        assert isinstance(env, Atari)
        assert (env.settings.noops, env.settings.sticky, env.spec.max_steps) == (5, 0.25, 300)
        assert not env.settings.life_loss
    config = dataclasses.replace(make_config("atari-small"), env_settings=("evaluation=mine",))
    with pytest.raises(UserError, match=r"unknown env_settings\.evaluation 'mine'; choose from: paper, training"):
        config.validate()


def test_with_sticky_actions_for_certain_no_action_counts() -> None:
    one, other = random_actions(25, seed=1), random_actions(25, seed=2)
    stuck = [memories(emulator(sticky=1.0), actions) for actions in (one, other, [NOOP] * 25)]
    np.testing.assert_array_equal(stuck[0], stuck[1])
    np.testing.assert_array_equal(stuck[0], stuck[2])
    assert (memories(emulator(), one) != memories(emulator(), other)).any()


def test_sticky_actions_follow_from_the_seed() -> None:
    """Also from seed 0, which some versions of the emulator take for the time of day."""
    actions = random_actions(40)
    for seed in (0, 1):
        first, second = (memories(emulator(seed=seed, sticky=0.25), actions) for _ in range(2))
        np.testing.assert_array_equal(first, second)
    plain, other = memories(emulator(), actions), memories(emulator(seed=2, sticky=0.25), actions)
    assert (first != plain).any()
    assert (first != other).any()


@pytest.mark.parametrize(("game", "actions"), [("freeway", 3), ("qbert", 6), ("montezuma_revenge", 18)])
def test_the_minimal_set_of_actions(game: str, actions: int) -> None:
    assert action_count(game, AtariSettings(full_action_set=False)) == actions
    assert action_count(game, AtariSettings()) == 18
    minimal = emulator(game, full_action_set=False)
    minimal.reset()
    minimal.step(actions - 1)
    with pytest.raises(IndexError):
        minimal.step(actions)


def test_actions_of_the_minimal_set_are_the_games_own() -> None:
    """The second of the full set is fire, which the chicken cannot; of its own set it is up."""
    y = 14
    minimal = memories(emulator("freeway", full_action_set=False), [1] * 20)[:, y]
    full = memories(emulator("freeway"), [1] * 20)[:, y]
    assert minimal[-1] > minimal[0] + 10
    assert len(set(full.tolist())) == 1


def test_frames_are_stacked_oldest_first() -> None:
    single, stacked = emulator("alien"), emulator("alien", stack=3)
    for _ in range(2):  # the second episode begins with an empty stack again
        single.reset()
        stacked.reset()
        nothing = np.zeros_like(single.observation)
        seen = [nothing, nothing, single.observation.copy()]
        np.testing.assert_array_equal(stacked.observation, np.concatenate(seen, axis=-1))
        for action in random_actions(12):
            single.step(action)
            stacked.step(action)
            seen = [*seen[1:], single.observation.copy()]
            np.testing.assert_array_equal(stacked.observation, np.concatenate(seen, axis=-1))
        assert len({picture.tobytes() for picture in seen}) == 3


def waits(seed: int, noops: int, episodes: int) -> list[int]:
    """Frames that have passed when each of some episodes begins."""
    game, passed = emulator("freeway", seed=seed, noops=noops), []
    for _ in range(episodes):
        game.reset()
        passed.append(game.ale.getEpisodeFrameNumber())
    return passed


def test_episodes_begin_after_up_to_so_many_frames() -> None:
    assert waits(0, noops=0, episodes=3) == [0, 0, 0]
    assert set(waits(0, noops=2, episodes=15)) == {0, 1, 2}
    long = waits(0, noops=30, episodes=15)
    assert max(long) <= 30
    assert max(long) - min(long) > 20
    assert long == waits(0, noops=30, episodes=15)
    assert long != waits(1, noops=30, episodes=15)


@pytest.mark.parametrize(("max_frames", "steps"), [(1, 1), (8, 2), (9, 3), (12, 3)])
def test_an_episode_is_cut_off_at_exactly_so_many_frames(max_frames: int, steps: int) -> None:
    """Counted from the first action on; the waiting before does not count."""
    game = emulator("freeway", noops=30, max_frames=max_frames)
    for _ in range(2):
        game.reset()
        waited = game.ale.getEpisodeFrameNumber()
        answers = [game.step(NOOP) for _ in range(steps)]
        assert answers == [Answer(0.0, False, False)] * (steps - 1) + [Answer(0.0, False, True)]
        assert game.count == game.ale.getEpisodeFrameNumber() - waited == max_frames


def test_a_game_lost_at_the_limit_is_lost() -> None:
    """Its 506th frame is the last: running off the ledge ends six lives."""
    game = emulator(max_frames=506)
    game.reset()
    answers = [game.step(RIGHT) for _ in range(127)]
    assert answers[-1] == Answer(0.0, True, False)
    assert not any(answer.terminated or answer.truncated for answer in answers[:-1])


def test_rewards_are_clipped_to_their_sign() -> None:
    actions = random_actions(150)
    for game, sign in (("alien", 1.0), ("pitfall", -1.0)):
        plain, clipped = emulator(game), emulator(game, clip_rewards=True)
        plain.reset()
        clipped.reset()
        steps = actions if game == "alien" else [RIGHT] * 60
        rewards = np.asarray([(plain.step(action).reward, clipped.step(action).reward) for action in steps])
        np.testing.assert_array_equal(rewards[:, 1], np.sign(rewards[:, 0]))
        assert (np.abs(rewards[:, 0]) > 1).any()
        assert (rewards[:, 1] == sign).any()


def test_a_lost_life_may_end_an_episode_while_the_game_goes_on() -> None:
    game, whole = emulator(life_loss=True), emulator()
    game.reset()
    expected = iter(memories(whole, [RIGHT] * 127))
    lives, ends = [game.lives], []
    for step in range(127):
        answer = game.step(RIGHT)
        np.testing.assert_array_equal(game.ram, next(expected), err_msg=str(step))
        assert not answer.truncated
        if answer.terminated:
            ends.append(step)
            if len(ends) < 6:
                frame, ram = game.ale.getEpisodeFrameNumber(), game.ram.copy()
                game.reset()
                assert game.ale.getEpisodeFrameNumber() == frame
                np.testing.assert_array_equal(game.ram, ram)
                lives.append(game.lives)
    assert lives == [6, 5, 4, 3, 2, 1]
    assert len(ends) == 6
    assert game.ale.game_over()
    game.reset()
    assert (game.lives, game.count, game.ale.getEpisodeFrameNumber()) == (6, 0, 0)


def test_without_it_only_the_last_life_ends_an_episode() -> None:
    game = emulator()
    game.reset()
    assert [step for step in range(127) if game.step(RIGHT).terminated] == [126]
    assert game.ram[LIVES] == 0


def test_walking_moves_the_explorer() -> None:
    """RAM 42 is Montezuma's x."""
    game = emulator()
    game.reset()
    start = int(game.ram[X])
    game.step(RIGHT)
    assert int(game.ram[X]) > start
    game.reset()
    game.step(LEFT)
    assert int(game.ram[X]) < start
