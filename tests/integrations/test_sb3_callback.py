"""`CuriosityCallback` in the algorithms that learn from rollouts: credit by hand, true final observations, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from byol_explore import Curiosity, UserError
from byol_explore.integrations.sb3 import CuriosityCallback, CuriousVecEnv
from dropins import SMALL, assert_same
from integrations.agents import (
    ENVS,
    GAMMA,
    LAMBDA,
    ON_POLICY,
    STEPS,
    Known,
    Look,
    agent,
    known,
    make_curiosity,
    scripted,
)

REWARDS = np.random.default_rng(0).random((STEPS, ENVS)).astype(np.float32)


def buffers_around(model: Any, callback: BaseCallback, rollouts: int = 1) -> tuple[Any, Any]:
    """Return the rollout buffer before and after a callback, in the last rollout."""
    before, after = Look(), Look()
    model.learn(rollouts * STEPS * model.n_envs, callback=[before, callback, after])
    return before.seen[-1], after.seen[-1]


def credit(rewards: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Return advantages without values: sum of (gamma lambda)^n times the reward n steps later in the episode."""
    worth = np.zeros_like(rewards)
    for t, env in np.ndindex(rewards.shape):
        for later in range(t, len(rewards)):
            worth[t, env] += (GAMMA * LAMBDA) ** (later - t) * rewards[later, env]
            if ended[later, env]:
                break
    return worth


def ends(curiosity: Any, name: str = "") -> np.ndarray:
    given = curiosity.given[-1]
    return given[name] if name else given["terminations"] | given["truncations"]


@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_zero_rewards_change_nothing(algorithm: type) -> None:
    """Recomputed returns equal those of the algorithm: the value after the rollout is the same."""
    model = agent(algorithm)
    before, after = buffers_around(model, CuriosityCallback(known(model, 0.0)), rollouts=2)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_intrinsic_rewards_give_credit_to_earlier_steps(algorithm: type) -> None:
    model = agent(algorithm)
    curiosity = known(model, REWARDS)
    before, after = buffers_around(model, CuriosityCallback(curiosity, mixing=0.5), rollouts=2)
    np.testing.assert_allclose(after["rewards"] - before["rewards"], 0.5 * REWARDS, rtol=1e-4, atol=1e-5)
    worth = credit(0.5 * REWARDS, ends(curiosity))
    np.testing.assert_allclose(after["advantages"] - before["advantages"], worth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after["returns"] - before["returns"], worth, rtol=1e-4, atol=1e-4)
    assert ends(curiosity, "truncations").any()
    assert ends(curiosity, "terminations").any()


@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_intrinsic_regime_keeps_the_bootstrap_of_truncations(algorithm: type) -> None:
    """The scripted rewards, 10 * episode + step, vanish; gamma V(final observation) stays."""
    model = agent(algorithm)
    curiosity = known(model, REWARDS)
    before, after = buffers_around(model, CuriosityCallback(curiosity, regime="intrinsic"))
    cut = ends(curiosity, "truncations")
    obs = curiosity.given[-1]["next_obs"]
    bootstrap = before["rewards"] - (10.0 * obs[..., 1] + obs[..., 2])
    np.testing.assert_allclose(after["rewards"], REWARDS + np.where(cut, bootstrap, 0.0), rtol=1e-5, atol=1e-5)
    assert np.all(np.abs(bootstrap[cut]) > 1e-4)
    np.testing.assert_allclose(bootstrap[~cut], 0.0, atol=1e-5)


class WrongWiring(BaseCallback):
    """A common mistake: add the bonus to advantages and returns that are already computed."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        buffer.advantages += LATE_REWARD
        buffer.returns += LATE_REWARD


LATE_REWARD = np.zeros((STEPS, 1), np.float32)
LATE_REWARD[5] = 4.0


class Straight(Env):
    """One episode that does not end."""

    observation_space, action_space = spaces.Box(0.0, 100.0, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.now = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.now += 1
        return np.full(1, self.now, np.float32), 0.0, False, False, {}


def test_a_bonus_on_top_of_advantages_gives_no_credit() -> None:
    """Reward 4 at the sixth step: with gamma = 0.5 and lambda = 1, the fifth has advantage 2, the fourth 1."""
    options: dict[str, Any] = {"gamma": 0.5, "gae_lambda": 1.0}
    model = agent(PPO, DummyVecEnv([Straight]), **options)
    before, after = buffers_around(model, CuriosityCallback(known(model, LATE_REWARD), mixing=1.0))
    worth = (after["advantages"] - before["advantages"]).ravel()
    np.testing.assert_allclose(worth, [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 0.0, 0.0], atol=1e-5)
    before, after = buffers_around(agent(PPO, DummyVecEnv([Straight]), **options), WrongWiring())
    wrong = (after["advantages"] - before["advantages"]).ravel()
    np.testing.assert_allclose(wrong, [0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0], atol=1e-5)


@pytest.mark.parametrize("algorithm", [PPO, MaskablePPO, RecurrentPPO])
def test_curiosity_gets_true_final_observations(algorithm: type) -> None:
    """The scripted observation contains the episode, the step and the previous action."""
    model = agent(algorithm)
    curiosity = known(model, 0.0)
    buffers_around(model, CuriosityCallback(curiosity), rollouts=2)
    given = {name: np.concatenate([part[name] for part in curiosity.given]) for name in curiosity.given[0]}
    obs, after = given["obs"], given["next_obs"]
    np.testing.assert_array_equal(after[..., 1], obs[..., 1])
    np.testing.assert_array_equal(after[..., 2], obs[..., 2] + 1)
    np.testing.assert_array_equal(after[..., 3], given["actions"])
    lengths = np.asarray([2, 3, 1])[(obs[..., 0] + obs[..., 1] - 1).astype(int) % 3]
    np.testing.assert_array_equal(given["terminations"] | given["truncations"], after[..., 2] == lengths)
    np.testing.assert_array_equal(given["truncations"], (after[..., 2] == lengths) & (lengths == 3))


def test_curiosity_learns_and_is_logged(tmp_path: Path) -> None:
    model = agent()
    model.set_logger(configure(str(tmp_path), ["csv"]))
    curiosity = make_curiosity(model)
    model.learn(3 * STEPS * ENVS, callback=CuriosityCallback(curiosity))
    record = curiosity.progress.record
    assert (record.calls, record.transitions, record.discontinuities, record.repeated_final_obs) == (
        3,
        3 * STEPS * ENVS,
        0,
        0,
    )
    head = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"curiosity/intrinsic_reward", "curiosity/loss_curiosity", "curiosity/intrinsic_nonzero_fraction"} <= set(
        head
    )
    model.learn(STEPS * ENVS, callback=CuriosityCallback(curiosity))  # from the beginning again
    assert curiosity.progress.record.discontinuities == 0


class Pushed(Env):
    """The observation is the action."""

    observation_space = action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.array(action), 0.0, False, False, {}


def test_curiosity_gets_clipped_actions() -> None:
    """Gaussian actions leave the bounds of the Box, and are clipped."""
    model = agent(PPO, DummyVecEnv([Pushed] * ENVS), policy={"log_std_init": 2.0})
    curiosity = known(model, 0.0)
    buffers_around(model, CuriosityCallback(curiosity))
    actions = curiosity.given[0]["actions"]
    assert np.max(np.abs(actions)) == 1.0
    np.testing.assert_allclose(curiosity.given[0]["next_obs"], actions)


class Eyes(Env):
    """Random images and a vector."""

    observation_space = spaces.Dict(
        {"eye": spaces.Box(0, 255, (40, 36, 3), np.uint8), "arm": spaces.Box(-1.0, 1.0, (2,))}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self.observation_space.sample(), 0.0, False, False, {}


def test_images_are_given_in_the_layout_of_the_curiosity() -> None:
    """The agent reads channels first; a curiosity for the environment's own space reads channels last."""
    model = PPO("MultiInputPolicy", DummyVecEnv([Eyes] * ENVS), n_steps=STEPS, batch_size=STEPS, device="cpu")
    assert model.observation_space["eye"].shape == (3, 40, 36)
    first, last = known(model, 0.0), Known(Eyes.observation_space, Eyes.action_space, ENVS, settings=SMALL)
    model.learn(STEPS * ENVS, callback=[CuriosityCallback(first), CuriosityCallback(last)])
    one, other = (curiosity.given[0]["obs"]["eye"] for curiosity in (first, last))
    assert other.shape == (STEPS, ENVS, 40, 36, 3)
    np.testing.assert_array_equal(np.moveaxis(one, 2, -1), other)


def test_vecnormalize_does_not_break_the_stream() -> None:
    model = agent(PPO, VecNormalize(scripted()))
    curiosity = make_curiosity(model)
    model.learn(3 * STEPS * ENVS, callback=CuriosityCallback(curiosity))
    record = curiosity.progress.record
    assert (record.discontinuities, record.repeated_final_obs) == (0, 0)
    assert record.episode_ends > 3


# Files


def seeds() -> tuple[Any, Any]:
    return torch.get_rng_state(), np.random.get_state()


def learn_on(model: Any, state: tuple[Any, Any]) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    model.learn(2 * STEPS * ENVS, callback=CuriosityCallback(model.curiosity), reset_num_timesteps=False)


@pytest.mark.parametrize("algorithm", [PPO, RecurrentPPO])
def test_a_loaded_model_continues_exactly(algorithm: type, tmp_path: Path) -> None:
    """With equal environments and random numbers, policy and curiosity stay equal."""
    results = []
    for interrupted in (False, True):
        model = agent(algorithm)
        model.learn(2 * STEPS * ENVS, callback=CuriosityCallback(make_curiosity(model)))
        state, env, recurrent = seeds(), model.get_env(), getattr(model, "_last_lstm_states", None)
        if interrupted:
            model.save(tmp_path / "agent")
            model = algorithm.load(tmp_path / "agent", device="cpu")
            model.set_env(env, force_reset=False)
            model._last_lstm_states = recurrent  # which RecurrentPPO.load forgets
        learn_on(model, state)
        results.append(model)
    assert_same(results[0].curiosity, results[1].curiosity)
    assert results[1].curiosity.progress.record.calls == 4
    for name, value in results[0].policy.state_dict().items():
        assert torch.equal(value, results[1].policy.state_dict()[name]), name


def test_checkpoints_contain_the_curiosity(tmp_path: Path) -> None:
    model = agent()
    curiosity = make_curiosity(model)
    checkpoints = CheckpointCallback(save_freq=STEPS, save_path=str(tmp_path), name_prefix="at")
    model.learn(2 * STEPS * ENVS, callback=[CuriosityCallback(curiosity), checkpoints])
    loaded = [PPO.load(tmp_path / f"at_{STEPS * ENVS * n}_steps").curiosity for n in (1, 2)]
    assert [one.progress.record.calls for one in loaded] == [0, 1]  # the rollout of a checkpoint is not learned yet
    assert loaded[1].progress.record.rows == curiosity.progress.record.rows[:1]


class Stop(BaseCallback):
    def _on_step(self) -> bool:
        return self.n_calls < 3


def test_an_interrupted_rollout_is_learned_from() -> None:
    model = agent()
    curiosity = make_curiosity(model)
    model.learn(STEPS * ENVS, callback=[CuriosityCallback(curiosity), Stop()])
    assert curiosity.progress.record.transitions == 3 * ENVS


# Refused arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regime": "extrinsic"}, "unknown regime 'extrinsic' .*; choose from: mixed, intrinsic"),
        ({"mixing": float("nan")}, "mixing is nan: it must be a number, finite and not negative"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CuriosityCallback(make_curiosity(agent()), **options)
    with pytest.raises(UserError, match=r"the curiosity is None: it must be a byol_explore\.Curiosity"):
        CuriosityCallback(None)  # pyright: ignore[reportArgumentType]


def test_a_curiosity_for_other_spaces_is_refused() -> None:
    model = agent()
    with pytest.raises(UserError, match="num_envs is 2: it must be 3, as the curiosity has it"):
        model.learn(1, callback=CuriosityCallback(Curiosity(model.observation_space, model.action_space, 3)))
    with pytest.raises(UserError, match="the observation space of the environments is Box"):
        model.learn(1, callback=CuriosityCallback(Curiosity(spaces.Discrete(2), model.action_space, 2)))


def test_a_callback_refuses_a_curious_vec_env() -> None:
    venv = scripted()
    curiosity = Curiosity(venv.observation_space, venv.action_space, venv.num_envs, settings=SMALL)
    model = PPO("MlpPolicy", VecNormalize(CuriousVecEnv(venv, curiosity)), n_steps=STEPS)
    with pytest.raises(UserError, match="in a CuriousVecEnv, which adds rewards already: use it or CuriosityCallback"):
        model.learn(1, callback=CuriosityCallback(curiosity))


def test_algorithms_with_a_replay_buffer_are_refused() -> None:
    model = DQN("MlpPolicy", scripted(), buffer_size=10)
    message = "DQN does not learn from rollouts: CuriosityCallback is for PPO, .*; wrap the .* in CuriousVecEnv"
    with pytest.raises(UserError, match=message):
        model.learn(1, callback=CuriosityCallback(make_curiosity(model)))


@pytest.mark.slow
def test_recurrentppo_runs_for_20_000_steps() -> None:
    model = agent(RecurrentPPO, make_vec_env("CartPole-v1", 4, seed=0), n_steps=128, batch_size=128)
    curiosity = make_curiosity(model)
    model.learn(20_000, callback=CuriosityCallback(curiosity))
    record = curiosity.progress.record
    assert record.transitions >= 20_000
    assert (record.discontinuities, record.repeated_final_obs) == (0, 0)
    assert record.rows[-1]["loss_curiosity"] < record.rows[0]["loss_curiosity"]
