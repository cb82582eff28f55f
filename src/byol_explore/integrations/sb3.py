"""Curiosity for agents of Stable-Baselines3 and sb3-contrib.

    model = PPO("MlpPolicy", env)
    curiosity = byol_explore.Curiosity(model.observation_space, model.action_space, model.n_envs)
    model.learn(1_000_000, callback=CuriosityCallback(curiosity, mixing=0.1))

`CuriosityCallback` is for agents that learn from rollouts: PPO, A2C, TRPO, MaskablePPO, RecurrentPPO. `CuriousVecEnv`
pays at every step, for every algorithm, also for those with a replay buffer:

    venv = make_vec_env("Pendulum-v1", 4)
    curiosity = byol_explore.Curiosity(venv.observation_space, venv.action_space, venv.num_envs)
    model = SAC("MlpPolicy", CuriousVecEnv(venv, curiosity, mixing=0.1))
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from byol_explore.dropin.autoreset import SameStep, Step, copied, stacked
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.paying import check_curiosity, check_fits, check_learn_every, check_payment, mixed
from byol_explore.errors import UserError
from byol_explore.extras import needed_by

with needed_by("byol_explore.integrations.sb3"):
    from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.preprocessing import (  # pyright: ignore[reportMissingImports]
        is_image_space,
        is_image_space_channels_first,
    )
    from stable_baselines3.common.utils import obs_as_tensor  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import (  # pyright: ignore[reportMissingImports]
        VecEnvWrapper,
        VecTransposeImage,
        unwrap_vec_normalize,
    )
import torch  # pyright: ignore[reportMissingImports]

CUT_SHORT = "TimeLimit.truncated"  # in infos: not terminated


class CuriosityCallback(BaseCallback):
    """Adds intrinsic rewards to every rollout before its agent learns from it, and learns from it.

    Stable-Baselines3 has computed returns and advantages when it says that a rollout has ended, so they are computed
    again from the new rewards: earlier steps get credit for what a later one was paid. Where an episode was cut short,
    the stored reward holds the discounted value of its last observation besides, and keeps it.

    The agent holds the curiosity from then on, as `model.curiosity`: `model.save`, and so the CheckpointCallback,
    writes it with everything else, and `PPO.load(path).curiosity` goes on in another callback.
    """

    def __init__(self, curiosity: Curiosity, mixing: float = 0.1, regime: str = "mixed", verbose: int = 0) -> None:
        super().__init__(verbose)
        check_curiosity(curiosity)
        check_payment(mixing, regime)
        self.curiosity, self.mixing, self.regime = curiosity, mixing, regime
        self._adapter, self._steps, self._rewards = SameStep(), list[Step](), list[np.ndarray]()
        self._transposed = False

    def _init_callback(self) -> None:
        model: Any = self.model
        if not isinstance(model, OnPolicyAlgorithm):
            raise UserError(
                f"{type(model).__name__} does not learn from rollouts: CuriosityCallback is for PPO, A2C, TRPO, "
                "MaskablePPO and RecurrentPPO; wrap the environments of others in CuriousVecEnv"
            )
        ours = self.curiosity.reader.observation_space
        self._transposed = ours != model.observation_space and _transposed_space(ours) == model.observation_space
        seen = ours if self._transposed else model.observation_space
        check_fits(self.curiosity, model.n_envs, seen, model.action_space)
        if any(isinstance(env, CuriousVecEnv) for env in _layers(model.env)):
            raise UserError("the environments are in a CuriousVecEnv, which pays already: use it or CuriosityCallback")
        vars(model)["curiosity"] = self.curiosity

    def _on_training_start(self) -> None:
        if np.all(self.model._last_episode_starts):  # pyright: ignore[reportArgumentType]
            self.curiosity.reset()  # as the environments perhaps were

    def _on_step(self) -> bool:
        told: Any = self.locals
        action = told["clipped_actions"] if "clipped_actions" in told else told["actions"]
        obs, new_obs, infos = self.model._last_obs, told["new_obs"], told["infos"]
        step = _read(self._adapter, obs, action, new_obs, told["rewards"], told["dones"], infos)
        if self._transposed:
            space = self.curiosity.reader.observation_space
            step = step._replace(obs=_channels_last(step.obs, space), next_obs=_channels_last(step.next_obs, space))
        self._steps.append(step)
        self._rewards.append(np.array(told["rewards"]))  # to which the value of a last observation is added later
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        buffer, truncated = model.rollout_buffer, np.stack([step.truncated for step in self._steps])
        extrinsic = np.stack(self._rewards)
        bootstrap = np.where(truncated, buffer.rewards - extrinsic, 0.0)
        intrinsic, metrics = self._learn()
        buffer.rewards[:] = mixed(extrinsic, intrinsic, self.mixing, self.regime) + bootstrap
        buffer.compute_returns_and_advantage(_last_values(model), model._last_episode_starts)
        for name, value in metrics.items():
            if np.ndim(value) == 0:
                self.logger.record(f"curiosity/{name}", value)

    def _on_training_end(self) -> None:
        if self._steps:  # of a rollout that another callback broke off
            self._learn()

    def _learn(self) -> tuple[np.ndarray, dict[str, Any]]:
        rollout = stacked(self._steps)
        self._steps.clear()
        self._rewards.clear()
        return self.curiosity.learn(**rollout)


class CuriousVecEnv(VecEnvWrapper):
    """Pays at every step, extrinsic + mixing * intrinsic or intrinsic alone, and learns every so many steps.

    A Monitor inside counts the task's own returns, so `ep_rew_mean` stays extrinsic; infos tell both parts.
    VecNormalize goes outside: agents with a replay buffer store what came into it, and would never see what was paid.
    """

    def __init__(
        self, venv: Any, curiosity: Curiosity, mixing: float = 0.1, *, regime: str = "mixed", learn_every: int = 128
    ) -> None:
        super().__init__(venv)
        if unwrap_vec_normalize(venv) is not None:
            raise UserError("the environments are in a VecNormalize: it must be around CuriousVecEnv, not inside of it")
        check_fits(curiosity, venv.num_envs, venv.observation_space, venv.action_space)
        check_payment(mixing, regime)
        check_learn_every(learn_every)
        self.curiosity, self.mixing, self.regime, self.learn_every = curiosity, mixing, regime, learn_every
        self.metrics: dict[str, Any] = {}
        self._adapter, self._curious_steps = SameStep(), list[Step]()
        self._seen: Any = None
        self._action: Any = None

    def reset(self) -> Any:
        """All environments: what of the stream was not learned yet is now."""
        obs = self.venv.reset()
        self._learn()
        self.curiosity.reset()
        self._seen = copied(obs)
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._action = copied(actions)
        super().step_async(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Its end, with curiosity in the rewards."""
        obs, extrinsic, dones, infos = self.venv.step_wait()
        step = _read(self._adapter, self._seen, self._action, obs, extrinsic, dones, infos)
        self._seen = copied(obs)
        self._curious_steps.append(step)
        intrinsic = self.curiosity.step(**step._asdict())
        if len(self._curious_steps) >= self.learn_every:
            self._learn()
        reward = mixed(extrinsic, intrinsic, self.mixing, self.regime)
        parts = zip(infos, extrinsic.tolist(), intrinsic.tolist(), strict=True)
        infos = [{**info, "extrinsic_reward": one, "intrinsic_reward": other} for info, one, other in parts]
        return obs, reward, dones, infos

    def _learn(self) -> None:
        if self._curious_steps:
            _, self.metrics = self.curiosity.learn(**stacked(self._curious_steps))
            self._curious_steps.clear()


def _layers(env: Any) -> Iterator[Any]:
    """Vector environments, from the outermost to what is in all of them."""
    while env is not None:
        yield env
        env = getattr(env, "venv", None)


def _read(adapter: SameStep, obs: Any, action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any) -> Step:
    truncated = dones & np.asarray([info.get(CUT_SHORT, False) for info in infos], bool)
    return adapter.read(obs, action, new_obs, reward, dones & ~truncated, truncated, infos)


def _last_values(model: Any) -> Any:
    """Of the observations after a rollout; asked for, because not every algorithm tells."""
    with torch.no_grad():
        obs = obs_as_tensor(model._last_obs, model.device)
        recurrent = getattr(model, "_last_lstm_states", None)
        if recurrent is None:
            return model.policy.predict_values(obs)
        starts = torch.as_tensor(model._last_episode_starts, dtype=torch.float32, device=model.device)
        return model.policy.predict_values(obs, recurrent.vf, starts)


def _transposed_space(space: Any) -> Any:
    """What agents see of images whose channels come last: Stable-Baselines3 puts them first."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _transposed_space(part) for name, part in space.spaces.items()})
    if not is_image_space(space) or is_image_space_channels_first(space):
        return space
    return VecTransposeImage.transpose_space(space)


def _channels_last(obs: Any, space: Any) -> Any:
    """Observations [B, ...] as they were before, where they have been transposed."""
    if isinstance(space, spaces.Dict):
        return {name: _channels_last(part, space[name]) for name, part in obs.items()}
    return obs if obs.shape[1:] == space.shape else np.moveaxis(obs, 1, -1)
