"""The emulator against ale-py's vector environment and its bare emulator."""

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from byol_explore.envs.atari_worker import SIZE, StepResult, downsample
from envs.games import NOOP, RIGHT, bare, emulator, random_actions

# Against ale-py's vector environment, which is written in C++


def compare(game: str, actions: list[int], max_frames: int = 108_000) -> list[StepResult]:
    """Play both; return our results.

    The two may differ by one grey level, as they round differently. At the end of an episode ale-py looks at the
    screen no more and answers with frames from before: ours alone shows the last one (see the next test).
    """
    ours = emulator(game, max_frames=max_frames)
    theirs = AtariVectorEnv(
        game, num_envs=1, num_threads=1, noop_max=0, stack_num=1, use_fire_reset=False, full_action_space=True,
        reward_clipping=False, repeat_action_probability=0.0, max_num_frames_per_episode=max_frames,
    )  # fmt: skip
    answers = [StepResult(0.0, False, False)]
    try:
        picture, _ = theirs.reset(seed=1)
        ours.reset()
        for t, action in enumerate([*actions, NOOP]):
            if not (answers[-1].terminated or answers[-1].truncated):
                difference = np.abs(picture[0, 0].astype(int) - ours.observation[..., 0])
                assert difference.max() <= 1, f"after {t} actions"
            picture, *expected, _ = theirs.step(np.asarray([action], np.int32))
            if answers[-1].terminated or answers[-1].truncated:
                ours.reset()
                answers.append(StepResult(0.0, False, False))
            else:
                answers.append(ours.step(action))
            assert answers[-1] == tuple(value[0] for value in expected), f"after {t + 1} actions"
    finally:
        theirs.close()
    return answers


@pytest.mark.parametrize("game", ["montezuma_revenge", "freeway", "private_eye", "venture", "pitfall", "alien"])
def test_random_play_equals_ale_pys_own(game: str) -> None:
    answers = compare(game, random_actions(150))
    if game == "alien":
        assert len([answer for answer in answers if answer.reward]) > 3


@pytest.mark.parametrize("max_frames", [40, 41, 43])
def test_the_frame_limit_equals_ale_pys_own(max_frames: int) -> None:
    """Also a limit inside an action."""
    answers = compare("venture", random_actions(40), max_frames)
    ends = [t for t, answer in enumerate(answers) if answer.truncated]
    length = -(-max_frames // 4)
    assert ends == [length, 2 * length + 1, 3 * length + 2][: len(ends)]
    assert len(ends) >= 2


def test_a_lost_game_equals_ale_pys_own() -> None:
    """The agent of Montezuma's Revenge runs off the ledge six times; the next action begins a new game."""
    answers = compare("montezuma_revenge", [RIGHT] * 132)
    assert [t for t, answer in enumerate(answers) if answer.terminated] == [127]


# Against the bare emulator


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
@pytest.mark.parametrize("game", ["venture", "alien"])
def test_the_last_observation_shows_the_last_frame(game: str, frames: int) -> None:
    """For any number of frames of the last action; of all four frames, the maximum of the last two."""
    actions = random_actions(50)
    ours, ale = emulator(game, max_frames=4 * 49 + frames), bare(game)
    ale.reset_game()
    ours.reset()
    answers = [ours.step(action) for action in actions]
    assert answers[-1].truncated
    assert not any(answer.truncated for answer in answers[:-1])
    screens = []
    for action in np.repeat(actions, 4)[: 4 * 49 + frames]:
        ale.act(int(action))
        screens.append(ale.getScreenGrayscale())
    shown = np.maximum(screens[-1], screens[-2]) if frames == 4 else screens[-1]
    np.testing.assert_array_equal(ours.observation[..., 0], downsample(shown))
    np.testing.assert_array_equal(ours.ram, ale.getRAM())


def test_an_action_of_one_frame() -> None:
    """The observation is still the maximum of the last two frames."""
    ours, ale = emulator("alien", action_repeat=1), bare("alien")
    ale.reset_game()
    ours.reset()
    before = ale.getScreenGrayscale()
    for action in random_actions(30):
        ours.step(action)
        ale.act(action)
        screen = ale.getScreenGrayscale()
        np.testing.assert_array_equal(ours.observation[..., 0], downsample(np.maximum(before, screen)))
        before = screen
    assert (ours.count, ours.ale.getEpisodeFrameNumber()) == (30, 30)


def slow_downsample(frame: np.ndarray) -> np.ndarray:
    """Compute the unrounded mean over the area of each pixel."""

    def shares(size: int, index: int) -> np.ndarray:
        low, high = index * size / SIZE, (index + 1) * size / SIZE
        overlaps = [max(0.0, min(high, pixel + 1) - max(low, pixel)) for pixel in range(size)]
        return np.asarray(overlaps) / (high - low)

    rows = [shares(210, index) for index in range(SIZE)]
    columns = [shares(160, index) for index in range(SIZE)]
    return np.asarray([[row @ frame @ column for column in columns] for row in rows])


def test_downsample_computes_the_mean_of_areas() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (210, 160)).astype(np.uint8)
    frame[:70] = np.where(frame[:70] < 128, 0, 255)
    small = downsample(frame)
    assert (small.shape, small.dtype) == ((84, 84), np.uint8)
    np.testing.assert_allclose(small, slow_downsample(frame.astype(np.float64)), atol=0.5 + 1e-3)


@pytest.mark.parametrize("grey", [0, 1, 127, 254, 255])
def test_downsample_keeps_a_uniform_grey(grey: int) -> None:
    assert (downsample(np.full((210, 160), grey, np.uint8)) == grey).all()
