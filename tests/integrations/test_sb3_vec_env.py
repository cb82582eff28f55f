"""`CuriousVecEnv`: rewards at every step, for every algorithm, inside and outside of wrappers."""

from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from byol_explore import Curiosity, UserError
from byol_explore.integrations.sb3 import CuriosityCallback, CuriousVecEnv
from dropins import SMALL
from envs.scripted import Scripted
from integrations.agents import ENVS, STEPS, agent, scripted


def curious(venv: VecEnv, mixing: float = 0.5, **options: Any) -> CuriousVecEnv:
    curiosity = Curiosity(venv.observation_space, venv.action_space, venv.num_envs, settings=SMALL)
    return CuriousVecEnv(venv, curiosity, mixing, **{"learn_every": STEPS, **options})


def play(env: VecEnv, steps: int = 20) -> tuple[np.ndarray, list[list[dict[str, Any]]]]:
    """Return rewards [T, B] and infos of random actions."""
    env.seed(0)
    env.reset()
    env.action_space.seed(0)
    rewards, all_infos = [], []
    for _ in range(steps):
        _, reward, _, infos = env.step(np.asarray([env.action_space.sample() for _ in range(env.num_envs)]))
        rewards.append(reward)
        all_infos.append(infos)
    return np.stack(rewards), all_infos


def part(infos: list[list[dict[str, Any]]], name: str) -> np.ndarray:
    return np.asarray([[info[name] for info in of_step] for of_step in infos])


def assert_whole(curiosity: Curiosity, calls: int) -> None:
    """No final observation repeats, and no stream is discontinuous."""
    record = curiosity.progress.record
    assert (record.calls, record.discontinuities, record.repeated_final_obs) == (calls, 0, 0)
    assert record.episode_ends > 3


def test_every_step_is_rewarded_and_learned_from() -> None:
    env = curious(scripted())
    rewards, infos = play(env)
    extrinsic, intrinsic = part(infos, "extrinsic_reward"), part(infos, "intrinsic_reward")
    np.testing.assert_allclose(rewards, extrinsic + 0.5 * intrinsic, rtol=1e-5)
    np.testing.assert_array_equal(extrinsic, play(scripted())[0])
    assert not np.any(intrinsic[:STEPS])
    assert np.any(intrinsic[STEPS:] > 0)
    assert_whole(env.curiosity, calls=2)
    env.reset()  # what was left over is learned now
    assert env.curiosity.progress.record.transitions == 20 * ENVS
    assert env.curiosity.progress.learn_position[0].is_first.all()
    assert env.metrics["transitions"] == 20 * ENVS


def test_curiosity_gets_true_final_observations() -> None:
    """The scripted observation contains the episode, the step and the previous action."""
    env, given = curious(scripted()), []
    learn = env.curiosity.learn
    env.curiosity.learn = lambda **rollout: given.append(rollout) or learn(**rollout)
    play(env, STEPS)
    obs, after = given[0]["obs"], given[0]["next_obs"]
    np.testing.assert_array_equal(after[..., 1], obs[..., 1])
    np.testing.assert_array_equal(after[..., 2], obs[..., 2] + 1)
    np.testing.assert_array_equal(after[..., 3], given[0]["actions"])
    assert given[0]["truncations"].any()
    assert given[0]["terminations"].any()


def test_intrinsic_regime() -> None:
    rewards, infos = play(curious(scripted(), regime="intrinsic"))
    np.testing.assert_array_equal(rewards, part(infos, "intrinsic_reward").astype(np.float32))


def test_a_monitor_inside_counts_extrinsic_returns() -> None:
    """Episodes of the scripted environment 0: 11 + 12, then 21 + 22 + 23; and so `ep_rew_mean` is extrinsic."""
    _, infos = play(curious(DummyVecEnv([lambda: Monitor(Scripted())] * ENVS), mixing=100.0))
    returns = [info[0]["episode"]["r"] for info in infos if "episode" in info[0]]
    assert returns[:3] == [23.0, 66.0, 31.0]
    curious_model, plain = (
        agent(PPO, curious(make_vec_env(Scripted, ENVS), mixing=100.0)),
        agent(PPO, make_vec_env(Scripted, ENVS)),
    )
    for model in (curious_model, plain):
        model.learn(2 * STEPS * ENVS)
    returns, expected = ([episode["r"] for episode in model.ep_info_buffer] for model in (curious_model, plain))
    assert returns == expected


def test_frames_may_be_stacked_inside_or_outside() -> None:
    """The frames of a stacked final observation are those of its own episode."""
    inside = curious(VecFrameStack(scripted(), 2))
    play(inside)
    assert_whole(inside.curiosity, calls=2)
    assert inside.observation_space.shape == (8,)
    env = curious(scripted())
    outside = VecFrameStack(env, 2)
    rewards, infos = play(outside)
    assert_whole(env.curiosity, calls=2)
    np.testing.assert_allclose(rewards, part(infos, "extrinsic_reward") + 0.5 * part(infos, "intrinsic_reward"))


class Film(Env):
    """Images that become brighter; an episode lasts three steps."""

    observation_space, action_space = spaces.Box(0, 255, (12, 10, 3), np.uint8), spaces.Discrete(2)
    shown = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.shown, self.episode = 0, getattr(self, "episode", 0) + 1
        return self._picture(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.shown += 1
        return self._picture(), 1.0, self.shown == 3, False, {}

    def _picture(self) -> np.ndarray:
        return np.full((12, 10, 3), 20 * self.shown + self.episode, np.uint8)


def test_images_may_be_transposed_inside_or_outside() -> None:
    inside = curious(VecTransposeImage(DummyVecEnv([Film] * ENVS)))
    play(inside)
    env = curious(DummyVecEnv([Film] * ENVS))
    play(VecTransposeImage(env))
    for one in (inside, env):
        assert_whole(one.curiosity, calls=2)
    one, other = (x.curiosity.progress.record.metrics for x in (inside, env))
    assert one["uncertainty"] == pytest.approx(other["uncertainty"], rel=1e-4)  # the same pictures


def test_vecnormalize_goes_outside() -> None:
    """Agents with a replay buffer store the rewards that enter VecNormalize: they must be the mixed ones."""
    env = curious(make_vec_env("Pendulum-v1", ENVS, seed=0), mixing=10.0)
    model = SAC("MlpPolicy", VecNormalize(env), learning_starts=100, buffer_size=100, seed=0, device="cpu")
    model.learn(40 * ENVS)
    stored = model.replay_buffer.rewards[:40]
    assert np.any(stored[STEPS:] > 0.0)  # Pendulum's own rewards are negative
    assert env.curiosity.progress.record.discontinuities == 0
    with pytest.raises(UserError, match="are in a VecNormalize: it must be around CuriousVecEnv, not inside of it"):
        curious(VecNormalize(scripted()))


@pytest.mark.parametrize(
    ("algorithm", "env_id"), [(SAC, "Pendulum-v1"), (TD3, "Pendulum-v1"), (DQN, "CartPole-v1"), (PPO, "CartPole-v1")]
)
def test_every_algorithm_trains_on_intrinsic_rewards(algorithm: Any, env_id: str) -> None:
    """Intrinsic rewards are never negative, unlike Pendulum's, and 0 at first, unlike CartPole's."""
    env = curious(make_vec_env(env_id, ENVS, seed=0), regime="intrinsic")
    sizes = {"n_steps": STEPS, "batch_size": STEPS} if algorithm is PPO else {"learning_starts": 10, "batch_size": 8}
    model = algorithm("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, seed=0, device="cpu", **sizes)
    model.learn(6 * STEPS * ENVS)
    record = env.curiosity.progress.record
    assert record.calls >= 5
    assert record.discontinuities == 0
    assert record.metrics["intrinsic_reward"] > 0
    if algorithm is not PPO:
        stored = model.replay_buffer.rewards[: 6 * STEPS]
        assert not np.any(stored[:STEPS])
        assert np.all(stored >= 0)
        assert np.any(stored > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regime": "extrinsic"}, "unknown regime 'extrinsic' .*; choose from: mixed, intrinsic"),
        ({"mixing": -1.0}, "mixing is -1.0: it must be a number, finite and not negative"),
        ({"mixing": "0.1"}, "mixing is '0.1': it must be a number, finite and not negative"),
        ({"learn_every": 0}, "learn_every is 0: it must be a whole number of at least 1"),
        ({"learn_every": True}, "learn_every is True: it must be a whole number of at least 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        curious(scripted(), **options)


def test_wrong_environments_are_refused() -> None:
    curiosity = Curiosity(Scripted.observation_space, Scripted.action_space, 3, settings=SMALL)
    with pytest.raises(UserError, match="num_envs is 2: it must be 3, as the curiosity has it"):
        CuriousVecEnv(scripted(), curiosity)
    with pytest.raises(UserError, match=r"the curiosity is None: it must be a byol_explore\.Curiosity"):
        CuriousVecEnv(scripted(), None)  # pyright: ignore[reportArgumentType]


def test_a_model_saves_the_make_curiosity_its_environments(tmp_path: Any) -> None:
    """`model.save` writes every attribute; a callback then finds the curiosity."""
    env = curious(scripted())
    model = agent(PPO, env)
    model.curiosity = env.curiosity
    model.learn(STEPS * ENVS)
    model.save(tmp_path / "agent")
    again = PPO.load(tmp_path / "agent").curiosity
    assert again.progress.record == env.curiosity.progress.record
    agent(PPO).learn(STEPS * ENVS, callback=CuriosityCallback(again))
    assert again.progress.record.calls == 2


@pytest.mark.slow
def test_sac_runs_for_20_000_steps() -> None:
    env = curious(make_vec_env("Pendulum-v1", 4, seed=0), learn_every=64)
    SAC("MlpPolicy", env, train_freq=8, policy_kwargs={"net_arch": [32]}, seed=0, device="cpu").learn(20_000)
    record = env.curiosity.progress.record
    assert record.transitions >= 19_900
    assert record.discontinuities == 0
    assert record.rows[-1]["loss_curiosity"] < record.rows[0]["loss_curiosity"]
