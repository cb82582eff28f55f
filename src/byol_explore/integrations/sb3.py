"""Curiosity for agents of Stable-Baselines3 and sb3-contrib.

    model = PPO("MlpPolicy", env)
    curiosity = byol_explore.Curiosity(model.observation_space, model.action_space, model.n_envs)
    model.learn(1_000_000, callback=CuriosityCallback(curiosity, mixing=0.1))

`CuriosityCallback` is for agents that learn from rollouts: PPO, A2C, TRPO, MaskablePPO, RecurrentPPO. `CuriousVecEnv`
adds rewards at every step, for every algorithm, also for those with a replay buffer:

    venv = make_vec_env("Pendulum-v1", 4)
    curiosity = byol_explore.Curiosity(venv.observation_space, venv.action_space, venv.num_envs)
    model = SAC("MlpPolicy", CuriousVecEnv(venv, curiosity, mixing=0.1))
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from byol_explore.dropin.autoreset import Adapter, SameStep, Step, copy_tree, stack_steps
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.vector_env import StepRewards, check_curiosity, check_mixing, check_spaces, mix_rewards
from byol_explore.errors import UserError
from byol_explore.utils.packages import require_extra

with require_extra("byol_explore.integrations.sb3"):
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
        is_vecenv_wrapped,
        unwrap_vec_normalize,
    )

# After Stable-Baselines3: the error names the extra only if that is missing first.
import torch  # pyright: ignore[reportMissingImports]

TRUNCATED_KEY = "TimeLimit.truncated"  # in infos: not terminated


class CuriosityCallback(BaseCallback):
    """Adds intrinsic rewards to every rollout before the agent learns from it, and learns from it.

    Returns and advantages are computed again from the mixed rewards, so that earlier steps get credit for later
    intrinsic rewards. Where an episode was truncated, the rollout buffer adds the discounted value of its last
    observation to the reward; it is kept.

    The agent keeps the curiosity as `model.curiosity`: `model.save`, and so the CheckpointCallback, writes it with
    everything else, and a new callback may continue with `PPO.load(path).curiosity`.

    Args:
      curiosity: a Curiosity for the agent's spaces and number of environments.
      mixing: weight of the intrinsic reward.
      regime: "mixed" (extrinsic + mixing * intrinsic) or "intrinsic" (the intrinsic reward alone).
      verbose: of the base class.
    """

    def __init__(self, curiosity: Curiosity, mixing: float = 0.1, regime: str = "mixed", verbose: int = 0) -> None:
        super().__init__(verbose)
        check_curiosity(curiosity)
        check_mixing(mixing, regime)
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
        check_spaces(self.curiosity, model.n_envs, seen, model.action_space)
        if is_vecenv_wrapped(self.training_env, CuriousVecEnv):
            raise UserError(
                "the environments are in a CuriousVecEnv, which adds rewards already: use it or CuriosityCallback"
            )
        vars(model)["curiosity"] = self.curiosity

    def _on_training_start(self) -> None:
        if np.all(self.model._last_episode_starts):  # pyright: ignore[reportArgumentType]
            self.curiosity.reset()  # the environments may have been reset

    def _on_step(self) -> bool:
        given: Any = self.locals
        action = given["clipped_actions"] if "clipped_actions" in given else given["actions"]
        obs, new_obs, infos = self.model._last_obs, given["new_obs"], given["infos"]
        step = _read(self._adapter, obs, action, new_obs, given["rewards"], given["dones"], infos)
        if self._transposed:
            space = self.curiosity.reader.observation_space
            step = step._replace(obs=_channels_last(step.obs, space), next_obs=_channels_last(step.next_obs, space))
        self._steps.append(step)
        self._rewards.append(np.array(given["rewards"]))  # the agent adds values of last observations to its own
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        buffer, truncated = model.rollout_buffer, np.stack([step.truncated for step in self._steps])
        extrinsic = np.stack(self._rewards)
        bootstrap = np.where(truncated, buffer.rewards - extrinsic, 0.0)
        intrinsic, metrics = self._learn()
        buffer.rewards[:] = mix_rewards(extrinsic, intrinsic, self.mixing, self.regime) + bootstrap
        buffer.compute_returns_and_advantage(_last_values(model), model._last_episode_starts)
        for name, value in metrics.items():
            if np.ndim(value) == 0:
                self.logger.record(f"curiosity/{name}", value)

    def _on_training_end(self) -> None:
        if self._steps:  # of a rollout that another callback interrupted
            self._learn()

    def _learn(self) -> tuple[np.ndarray, dict[str, Any]]:
        rollout = stack_steps(self._steps)
        self._steps.clear()
        self._rewards.clear()
        return self.curiosity.learn(**rollout)


class CuriousVecEnv(StepRewards, VecEnvWrapper):
    """Adds intrinsic rewards to every step of a VecEnv.

    A Monitor inside counts extrinsic returns, so `ep_rew_mean` stays extrinsic; infos contain both parts. VecNormalize
    goes outside: agents with a replay buffer store the rewards that enter it, and would not store intrinsic ones.

    Args:
      venv: the vector environment.
      curiosity: a Curiosity for its spaces and number of environments.
      mixing: weight of the intrinsic reward.
      regime: "mixed" (extrinsic + mixing * intrinsic) or "intrinsic" (the intrinsic reward alone).
      learn_every: steps between two calls of `curiosity.learn`.
    """

    def __init__(
        self, venv: Any, curiosity: Curiosity, mixing: float = 0.1, *, regime: str = "mixed", learn_every: int = 128
    ) -> None:
        VecEnvWrapper.__init__(self, venv)  # by name: StepRewards, the next class, takes no arguments
        if unwrap_vec_normalize(venv) is not None:
            raise UserError("the environments are in a VecNormalize: it must be around CuriousVecEnv, not inside of it")
        check_spaces(curiosity, venv.num_envs, venv.observation_space, venv.action_space)
        self._init_rewards(curiosity, mixing, regime, learn_every, SameStep())
        self._latest_obs: Any = None
        self._action: Any = None

    def reset(self) -> Any:
        """Learn from what is left and reset all environments; returns observations [B, ...]."""
        obs = self.venv.reset()
        self._learn()
        self.curiosity.reset()
        self._latest_obs = copy_tree(obs)
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Start a step with actions [B, ...]."""
        self._action = copy_tree(actions)
        super().step_async(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Finish the step; returns observations [B, ...], mixed rewards [B], dones [B] and infos."""
        obs, extrinsic, dones, infos = self.venv.step_wait()
        step = _read(self._adapter, self._latest_obs, self._action, obs, extrinsic, dones, infos)
        self._latest_obs = copy_tree(obs)
        reward, intrinsic = self._mixed_reward(step, extrinsic)
        parts = zip(infos, extrinsic.tolist(), intrinsic.tolist(), strict=True)
        infos = [{**info, "extrinsic_reward": one, "intrinsic_reward": other} for info, one, other in parts]
        return obs, reward, dones, infos


def _read(adapter: Adapter, obs: Any, action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any) -> Step:
    truncated = dones & np.asarray([info.get(TRUNCATED_KEY, False) for info in infos], bool)
    return adapter.convert(obs, action, new_obs, reward, dones & ~truncated, truncated, infos)


def _last_values(model: Any) -> Any:
    """Return the values of the observations after a rollout; not every algorithm passes them to callbacks."""
    with torch.no_grad():
        obs = obs_as_tensor(model._last_obs, model.device)
        recurrent = getattr(model, "_last_lstm_states", None)
        if recurrent is None:
            return model.policy.predict_values(obs)
        starts = torch.as_tensor(model._last_episode_starts, dtype=torch.float32, device=model.device)
        return model.policy.predict_values(obs, recurrent.vf, starts)


def _transposed_space(space: Any) -> Any:
    """Return the space after Stable-Baselines3 has moved the channels of images to the front."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _transposed_space(part) for name, part in space.spaces.items()})
    if not is_image_space(space) or is_image_space_channels_first(space):
        return space
    return VecTransposeImage.transpose_space(space)


def _channels_last(obs: Any, space: Any) -> Any:
    """Undo the transposition of images in observations [B, ...]."""
    if isinstance(space, spaces.Dict):
        return {name: _channels_last(part, space[name]) for name, part in obs.items()}
    return obs if obs.shape[1:] == space.shape else np.moveaxis(obs, 1, -1)
