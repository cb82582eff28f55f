"""CuriousVectorEnv in all autoreset modes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from byol_explore import Curiosity, CuriousVectorEnv, UserError
from dropins import SMALL
from envs.scripted import Endless, Scripted

MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


def curiosity(num_envs: int = 2, **settings: Any) -> Curiosity:
    return Curiosity(
        Scripted.observation_space, Scripted.action_space, num_envs, settings={**SMALL, **settings}
    )  # fmt: skip


def vector(mode: AutoresetMode = AutoresetMode.NEXT_STEP, envs: int = 2) -> SyncVectorEnv:
    return SyncVectorEnv([Scripted] * envs, copy=False, autoreset_mode=mode)


def play(env: gymnasium.vector.VectorEnv, steps: int, mode: AutoresetMode) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Return rewards [T, B] and infos of random actions."""
    rng, rewards, all_infos = np.random.default_rng(0), [], []
    env.reset(seed=[0, 1])
    for _ in range(steps):
        _, reward, terminated, truncated, infos = env.step(rng.integers(0, 50, 2))
        rewards.append(np.array(reward))
        all_infos.append(infos)
        if mode == AutoresetMode.DISABLED and np.any(terminated | truncated):
            env.reset(options={"reset_mask": terminated | truncated})
    return np.stack(rewards), all_infos


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_rewards_and_learns(mode: AutoresetMode) -> None:
    """No final observation repeats, no stream is discontinuous, and infos contain both parts of the reward."""
    curious = CuriousVectorEnv(vector(mode), curiosity(), mixing=0.5, learn_every=8)
    rewards, infos = play(curious, 20, mode)
    parts = {name: np.stack([info[name] for info in infos]) for name in ("extrinsic_reward", "intrinsic_reward")}
    np.testing.assert_allclose(rewards, parts["extrinsic_reward"] + 0.5 * parts["intrinsic_reward"], rtol=1e-5)
    assert not np.any(parts["intrinsic_reward"][:8])
    assert np.any(parts["intrinsic_reward"][8:] > 0)
    record = curious.curiosity.progress.record
    assert (record.calls, record.discontinuities, record.repeated_final_obs) == (2, 0, 0)
    assert record.episode_ends > 3
    ours, _ = play(vector(mode), 20, mode)
    np.testing.assert_array_equal(parts["extrinsic_reward"], ours)


def test_modes_give_the_curiosity_the_same_stream() -> None:
    """16 transitions per environment: SAME_STEP and DISABLED give the same stream and the same metrics."""
    networks = []
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        curious = CuriousVectorEnv(vector(mode), curiosity(), learn_every=8)
        play(curious, 16, mode)
        networks.append(curious.metrics)
    assert networks[0] == networks[1]


def test_intrinsic_regime_with_episode_statistics_inside() -> None:
    curious = CuriousVectorEnv(RecordEpisodeStatistics(vector()), curiosity(), regime="intrinsic", learn_every=8)
    rewards, infos = play(curious, 12, AutoresetMode.NEXT_STEP)
    np.testing.assert_array_equal(rewards, np.stack([info["intrinsic_reward"] for info in infos]))
    _, reward, _, _, info = curious.step(np.asarray([3, 4]))
    assert not np.shares_memory(reward, info["intrinsic_reward"])
    ended = next(info for info in infos if "episode" in info)
    assert ended["episode"]["r"][0] == 11 + 12  # of the scripted rewards


class Circle(Endless):
    """Constant observations: none shows where an episode begins."""

    def _observation(self, action: int) -> Any:
        return np.zeros(4, np.float32)


@pytest.mark.parametrize("learn_every", [3, 100])
def test_a_reset_ends_an_episode_even_with_an_equal_observation(learn_every: int) -> None:
    envs = SyncVectorEnv([Circle] * 2, autoreset_mode=AutoresetMode.DISABLED)
    curious = CuriousVectorEnv(envs, curiosity(), learn_every=learn_every)
    curious.reset(seed=[0, 1])
    for _ in range(3 if learn_every == 3 else 1):
        curious.step(np.asarray([3, 4]))
    before = [
        place.is_first.copy()
        for place, _ in (curious.curiosity.progress.learn_position, curious.curiosity.progress.reward_position)
    ]
    given_up = ~before[1]
    assert given_up.any()
    curious.reset(options={"reset_mask": given_up})
    (learned, _), (rewarded, _) = curious.curiosity.progress.learn_position, curious.curiosity.progress.reward_position
    assert rewarded.is_first.all()
    if learn_every == 3:
        assert learned.is_first.all()
    else:
        np.testing.assert_array_equal(learned.is_first, before[0])  # what came before is still to be learned from
        assert curious._steps_to_learn[-1].truncated[given_up].all()


class Speaking(Scripted):
    """Describes its step count in words."""

    observation_space = spaces.Dict({"x": Scripted.observation_space, "words": spaces.Text(40)})

    def _observation(self, action: int) -> Any:
        return {"x": super()._observation(action), "words": "step" + " on" * self.step_count}


@pytest.mark.parametrize("mode", MODES)
def test_texts_are_accepted(mode: AutoresetMode) -> None:
    """Gymnasium returns a tuple of one text per environment."""
    envs = SyncVectorEnv([Speaking] * 2, autoreset_mode=mode)
    mine = Curiosity(Speaking.observation_space, Speaking.action_space, 2, settings=SMALL)
    curious = CuriousVectorEnv(envs, mine, learn_every=8)
    _, infos = play(curious, 20, mode)
    assert any(np.any(info["intrinsic_reward"] > 0) for info in infos)
    record = mine.progress.record
    assert (record.calls, record.discontinuities) == (2, 0)


def test_step_accepts_a_tuple_of_texts() -> None:
    space, flags = spaces.Text(40), np.zeros(2, bool)
    tuples, arrays = (Curiosity(space, Scripted.action_space, 2, settings=SMALL) for _ in range(2))
    texts = np.array([["go", "stay here"], ["go on", "leave"], ["go back", "stay"]], object)
    for mine in (tuples, arrays):
        mine.learn(texts[:2], np.ones((2, 2), int), texts[1:], np.zeros((2, 2), bool), np.zeros((2, 2), bool))
    one = tuples.step(tuple(texts[2]), np.ones(2, int), tuple(texts[0]), flags, flags)
    np.testing.assert_array_equal(one, arrays.step(texts[2], np.ones(2, int), texts[0], flags, flags))


def test_infos_must_be_a_dict() -> None:
    curious = CuriousVectorEnv(DictInfoToList(vector()), curiosity(), autoreset="next_step")
    curious.reset()
    with pytest.raises(UserError, match="infos are a list: they must be a dict; what changes them goes outside"):
        curious.step(np.asarray([3, 4]))


def test_a_reset_truncates_running_episodes() -> None:
    """A full or a masked reset; the steps before it are learned from."""
    curious = CuriousVectorEnv(vector(AutoresetMode.DISABLED), curiosity(), learn_every=100)
    curious.reset(seed=[0, 1])
    curious.step(np.asarray([3, 4]))
    curious.reset(options={"reset_mask": np.asarray([True, False])})
    curious.step(np.asarray([3, 4]))
    curious.reset()
    assert curious.curiosity.progress.record.transitions == 4
    assert curious.curiosity.progress.record.episode_ends == 1
    assert curious.curiosity.progress.learn_position[0].is_first.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regime": "extrinsic"}, "unknown regime 'extrinsic' .*; choose from: mixed, intrinsic"),
        ({"mixing": -1.0}, "mixing is -1.0: it must be a number, finite and not negative"),
        ({"mixing": "0.1"}, "mixing is '0.1': it must be a number, finite and not negative"),
        ({"learn_every": 0}, "learn_every is 0: it must be a whole number of at least 1"),
        ({"learn_every": True}, "learn_every is True: it must be a whole number of at least 1"),
        ({"curiosity": None}, "the curiosity is None: it must be a byol_explore.Curiosity"),
        ({"autoreset": "never"}, "unknown autoreset mode 'never'; choose from: same_step, next_step, disabled"),
        ({"curiosity": curiosity(3)}, "num_envs is 2: it must be 3, as the curiosity has it"),
        ({"curiosity": Curiosity(spaces.Discrete(2), Scripted.action_space, 2)},
         r"the observation space of the environments is Box.*: it must be that of the curiosity, Discrete\(2\)"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"curiosity": curiosity(), **options}
    with pytest.raises(UserError, match=message):
        CuriousVectorEnv(vector(), **arguments)


def test_numpy_numbers_are_accepted() -> None:
    env = CuriousVectorEnv(vector(), curiosity(), mixing=np.float32(0.5), learn_every=np.int64(4))  # pyright: ignore[reportArgumentType]
    assert (env.mixing, env.learn_every) == (0.5, 4)


def test_a_missing_autoreset_mode_is_refused() -> None:
    env = vector()
    env.metadata = {}
    with pytest.raises(UserError, match="do not say their autoreset mode: give one, such as autoreset='next_step'"):
        CuriousVectorEnv(env, curiosity())
    with pytest.raises(gymnasium.error.ResetNeeded):
        CuriousVectorEnv(env, curiosity(), autoreset="next_step").step(np.zeros(2, int))
