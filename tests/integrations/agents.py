"""Small agents of Stable-Baselines3 in scripted environments, and curiosities whose rewards are known."""

from typing import Any

import numpy as np
from sb3_contrib import TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from byol_explore import Curiosity
from dropins import SMALL
from envs.scripted import Scripted

ENVS, STEPS, GAMMA, LAMBDA = 2, 8, 0.9, 0.8
ON_POLICY = [PPO, A2C, TRPO, MaskablePPO, RecurrentPPO]


class Masked(Scripted):
    """Masks half of the actions."""

    def action_masks(self) -> np.ndarray:
        return np.arange(50) % 2 == 0


def scripted(envs: int = ENVS) -> DummyVecEnv:
    return DummyVecEnv([Masked] * envs)


def agent(
    algorithm: type = PPO, env: VecEnv | None = None, policy: dict[str, Any] | None = None, **options: Any
) -> Any:
    env = scripted() if env is None else env
    recurrent = algorithm is RecurrentPPO
    usual: dict[str, Any] = {"n_steps": STEPS, "gamma": GAMMA, "gae_lambda": LAMBDA, "seed": 0, "device": "cpu"}
    sizes = {"net_arch": [8], **({"lstm_hidden_size": 4} if recurrent else {}), **(policy or {})}
    if algorithm is not A2C:
        usual["batch_size"] = STEPS
    kind = "MlpLstmPolicy" if recurrent else "MlpPolicy"
    return algorithm(kind, env, policy_kwargs=sizes, **{**usual, **options})


def make_curiosity(model: Any, **options: Any) -> Curiosity:
    return Curiosity(model.observation_space, model.action_space, model.n_envs, settings=SMALL, **options)


class Known(Curiosity):
    """Returns known rewards, and records the arguments of `learn`."""

    rewards: Any = 0.0
    given: list[dict[str, Any]]

    def learn(self, *args: Any, **rollout: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.given = [*getattr(self, "given", []), rollout]
        return np.broadcast_to(self.rewards, rollout["terminations"].shape).astype(np.float32), {"loss_curiosity": 0.5}


def known(model: Any, rewards: Any) -> Known:
    curiosity = Known(model.observation_space, model.action_space, model.n_envs, settings=SMALL)
    curiosity.rewards = rewards
    return curiosity


class Look(BaseCallback):
    """Copies a rollout buffer each time it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, np.ndarray]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        names = ("rewards", "returns", "advantages", "values", "episode_starts")
        self.seen.append({name: getattr(self.model.rollout_buffer, name).copy() for name in names})
