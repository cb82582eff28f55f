"""Effects of the Atari settings on a game."""

import dataclasses

import numpy as np
import pytest

from byol_explore.config.presets import make_config
from byol_explore.envs.atari import Atari
from byol_explore.envs.atari_worker import StepResult, num_actions
from byol_explore.envs.families import AtariSettings
from byol_explore.errors import UserError
from byol_explore.evaluation.rollouts import evaluation_envs
from envs.games import LEFT, LIVES, NOOP, RIGHT, X, emulator, memories, random_actions

OWN = AtariSettings(
    action_repeat=3, frame_stack=2, sticky_action_prob=0.25, full_action_set=False, max_noops=5, max_frames=900,
    clip_rewards=True,
    terminal_on_life_loss=True, num_workers=2,
)  # fmt: skip


def test_evaluation_uses_the_papers_protocol_by_default() -> None:
    """At most 30 no-ops, no sticky actions, half an hour, whole games, raw scores; observations and actions stay."""
    assert OWN.for_evaluation() == AtariSettings(
        action_repeat=3, frame_stack=2, sticky_action_prob=0.0, full_action_set=False, max_noops=30,
        max_frames=108_000, clip_rewards=False,
        terminal_on_life_loss=False, num_workers=2,
    )  # fmt: skip
    assert AtariSettings().for_evaluation() == AtariSettings()


def test_evaluation_can_keep_the_settings_of_training() -> None:
    """Except for whole games and raw scores."""
    own = dataclasses.replace(OWN, evaluation_protocol="training")
    assert own.for_evaluation() == dataclasses.replace(own, clip_rewards=False, terminal_on_life_loss=False)


def test_the_protocol_of_an_evaluation_overrides_the_setting() -> None:
    [env] = evaluation_envs([Atari("freeway", OWN)])
    assert isinstance(env, Atari)
    assert env.settings == OWN.for_evaluation()
    assert (env.spec.max_steps, env.protocol_settings) == (
        36_000,
        {"max_noops": 30, "sticky_action_prob": 0.0, "max_frames": 108_000},
    )
    for asked in (
        evaluation_envs([Atari("freeway", dataclasses.replace(OWN, evaluation_protocol="training"))]),
        evaluation_envs([Atari("freeway", OWN)], "training"),
    ):
        [env] = asked
        assert isinstance(env, Atari)
        assert (env.settings.max_noops, env.settings.sticky_action_prob, env.spec.max_steps) == (5, 0.25, 300)
        assert not env.settings.terminal_on_life_loss
    config = dataclasses.replace(make_config("atari-small"), atari=AtariSettings(evaluation_protocol="mine"))
    with pytest.raises(UserError, match=r"unknown atari\.evaluation_protocol 'mine'; choose from: paper, training"):
        config.validate()


def test_with_sticky_probability_one_no_action_has_an_effect() -> None:
    one, other = random_actions(25, seed=1), random_actions(25, seed=2)
    stuck = [memories(emulator(sticky_action_prob=1.0), actions) for actions in (one, other, [NOOP] * 25)]
    np.testing.assert_array_equal(stuck[0], stuck[1])
    np.testing.assert_array_equal(stuck[0], stuck[2])
    assert (memories(emulator(), one) != memories(emulator(), other)).any()


def test_sticky_actions_depend_on_the_seed() -> None:
    """Also on seed 0, for which some versions of the emulator use the time of day."""
    actions = random_actions(40)
    for seed in (0, 1):
        first, second = (memories(emulator(seed=seed, sticky_action_prob=0.25), actions) for _ in range(2))
        np.testing.assert_array_equal(first, second)
    plain, other = memories(emulator(), actions), memories(emulator(seed=2, sticky_action_prob=0.25), actions)
    assert (first != plain).any()
    assert (first != other).any()


@pytest.mark.parametrize(("game", "actions"), [("freeway", 3), ("qbert", 6), ("montezuma_revenge", 18)])
def test_the_minimal_set_of_actions(game: str, actions: int) -> None:
    assert num_actions(game, AtariSettings(full_action_set=False)) == actions
    assert num_actions(game, AtariSettings()) == 18
    minimal = emulator(game, full_action_set=False)
    minimal.reset()
    minimal.step(actions - 1)
    with pytest.raises(IndexError):
        minimal.step(actions)


def test_actions_of_the_minimal_set_are_the_games_own() -> None:
    """Action 1 is fire in the full set, without effect in Freeway, and up in its minimal set."""
    y = 14
    minimal = memories(emulator("freeway", full_action_set=False), [1] * 20)[:, y]
    full = memories(emulator("freeway"), [1] * 20)[:, y]
    assert minimal[-1] > minimal[0] + 10
    assert len(set(full.tolist())) == 1


def test_frames_are_stacked_oldest_first() -> None:
    single, stacked = emulator("alien"), emulator("alien", frame_stack=3)
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


def num_noops(seed: int, max_noops: int, episodes: int) -> list[int]:
    """Return the number of frames before each of some episodes."""
    game, passed = emulator("freeway", seed=seed, max_noops=max_noops), []
    for _ in range(episodes):
        game.reset()
        passed.append(game.ale.getEpisodeFrameNumber())
    return passed


def test_episodes_begin_after_at_most_max_noops_frames() -> None:
    assert num_noops(0, max_noops=0, episodes=3) == [0, 0, 0]
    assert set(num_noops(0, max_noops=2, episodes=15)) == {0, 1, 2}
    long = num_noops(0, max_noops=30, episodes=15)
    assert max(long) <= 30
    assert max(long) - min(long) > 20
    assert long == num_noops(0, max_noops=30, episodes=15)
    assert long != num_noops(1, max_noops=30, episodes=15)


@pytest.mark.parametrize(("max_frames", "steps"), [(1, 1), (8, 2), (9, 3), (12, 3)])
def test_an_episode_is_truncated_at_exactly_max_frames(max_frames: int, steps: int) -> None:
    """Counted from the first action on; no-ops do not count."""
    game = emulator("freeway", max_noops=30, max_frames=max_frames)
    for _ in range(2):
        game.reset()
        waited = game.ale.getEpisodeFrameNumber()
        answers = [game.step(NOOP) for _ in range(steps)]
        assert answers == [StepResult(0.0, False, False)] * (steps - 1) + [StepResult(0.0, False, True)]
        assert game.count == game.ale.getEpisodeFrameNumber() - waited == max_frames


def test_a_game_lost_at_the_limit_terminates() -> None:
    """Frame 506 is the last: running off the ledge ends six lives."""
    game = emulator(max_frames=506)
    game.reset()
    answers = [game.step(RIGHT) for _ in range(127)]
    assert answers[-1] == StepResult(0.0, True, False)
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


def test_terminal_on_life_loss_ends_episodes_but_not_the_game() -> None:
    game, whole = emulator(terminal_on_life_loss=True), emulator()
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


def test_without_terminal_on_life_loss_only_the_last_life_ends_it() -> None:
    game = emulator()
    game.reset()
    assert [step for step in range(127) if game.step(RIGHT).terminated] == [126]
    assert game.ram[LIVES] == 0


def test_walking_moves_the_agent() -> None:
    """RAM address 42 is the x of Montezuma's Revenge."""
    game = emulator()
    game.reset()
    start = int(game.ram[X])
    game.step(RIGHT)
    assert int(game.ram[X]) > start
    game.reset()
    game.step(LEFT)
    assert int(game.ram[X]) < start
