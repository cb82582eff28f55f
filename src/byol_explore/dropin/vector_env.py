"""CuriousVectorEnv, and what the wrappers of other libraries share with it: mixed rewards, checks of arguments."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from byol_explore.dropin.autoreset import Adapter, Step, copy_tree, make_adapter, stack_steps
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.errors import UserError, unknown_name
from byol_explore.utils.formatting import one_line

REGIMES = ("mixed", "intrinsic")


class StepRewards:
    """Mixin of wrappers: an intrinsic reward at every step, and learning every `learn_every` steps."""

    def _init_rewards(
        self, curiosity: Curiosity, mixing: float, regime: str, learn_every: int, adapter: Adapter
    ) -> None:
        check_mixing(mixing, regime)
        if not isinstance(learn_every, int | np.integer) or isinstance(learn_every, bool) or learn_every < 1:
            raise UserError(f"learn_every is {learn_every!r}: it must be a whole number of at least 1")
        self.curiosity, self.mixing, self.regime, self.learn_every = curiosity, mixing, regime, learn_every
        self.metrics: dict[str, Any] = {}
        self._adapter, self._steps_to_learn = adapter, list[Step]()

    def _mixed_reward(self, step: Step, extrinsic: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the mixed and the intrinsic rewards [B] of a step; learn if it is time."""
        self._steps_to_learn.append(step)
        intrinsic = self.curiosity.step(**step._asdict())
        if len(self._steps_to_learn) >= self.learn_every:
            self._learn()
        return mix_rewards(np.asarray(extrinsic), intrinsic, self.mixing, self.regime), intrinsic

    def _learn(self) -> None:
        if self._steps_to_learn:
            _, self.metrics = self.curiosity.learn(**stack_steps(self._steps_to_learn))
            self._steps_to_learn.clear()


class CuriousVectorEnv(StepRewards, VectorWrapper):
    """Adds intrinsic rewards to every step of a vector environment of Gymnasium.

    Infos contain both parts as `extrinsic_reward` and `intrinsic_reward`. Wrappers that count returns, such as
    RecordEpisodeStatistics, go inside and then count extrinsic ones. `metrics` are those of the latest learning.

    Args:
      env: the vector environment.
      curiosity: a Curiosity for its spaces and number of environments.
      mixing: weight of the intrinsic reward.
      regime: "mixed" (extrinsic + mixing * intrinsic) or "intrinsic" (the intrinsic reward alone).
      learn_every: steps between two calls of `curiosity.learn`.
      autoreset: mode of the environment, if its metadata do not contain one.
    """

    def __init__(
        self,
        env: VectorEnv,
        curiosity: Curiosity,
        *,
        mixing: float = 0.1,
        regime: str = "mixed",
        learn_every: int = 128,
        autoreset: AutoresetMode | str | None = None,
    ) -> None:
        super().__init__(env)
        check_spaces(curiosity, env.num_envs, env.single_observation_space, env.single_action_space)
        mode = env.metadata.get("autoreset_mode") if autoreset is None else autoreset
        if mode is None:
            raise UserError("the environments do not say their autoreset mode: give one, such as autoreset='next_step'")
        self._init_rewards(curiosity, mixing, regime, learn_every, make_adapter(mode))
        self._obs = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]` [B]; a full reset first learns from what is left.

        Args:
          seed: of the environments.
          options: of the environments.
        Returns:
          Observations [B, ...] and infos.
        """
        mask = None if options is None else options.get("reset_mask")
        self._obs, infos = self.env.reset(seed=seed, options=options)  # pyright: ignore[reportArgumentType]
        self._adapter.reset(mask)
        if mask is None:
            self._learn()
            self.curiosity.reset()
        else:
            self._truncate(np.asarray(mask, bool))
        return self._obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments.

        Args:
          actions: [B, ...].
        Returns:
          Observations [B, ...], mixed rewards [B], terminations [B], truncations [B] and infos.
        """
        if self._obs is None:
            raise gymnasium.error.ResetNeeded("reset must be called before step")
        before = copy_tree(self._obs)  # environments may overwrite it
        result = self.env.step(actions)
        if not isinstance(result[-1], Mapping):
            raise UserError(
                f"infos are a {type(result[-1]).__name__}: they must be a dict; what changes them goes outside"
            )
        step = self._adapter.convert(before, actions, *result)
        self._obs, extrinsic, terminated, truncated, infos = result
        reward, intrinsic = self._mixed_reward(step, extrinsic)
        parts = {"extrinsic_reward": extrinsic, "intrinsic_reward": intrinsic}
        present = np.ones(self.num_envs, bool)
        infos = {**infos, **parts, **{f"_{name}": present for name in parts}}
        return self._obs, reward, terminated, truncated, infos

    def _truncate(self, mask: np.ndarray) -> None:
        """Truncate the episodes of environments that were reset before their end."""
        # The next first observation need not differ from the last one, so the stream alone may not show the end.
        self.curiosity.reset(mask, steps_only=bool(self._steps_to_learn))
        if self._steps_to_learn:
            last = self._steps_to_learn[-1]
            last.truncated[mask & ~last.terminated & ~last.skipped] = True


def mix_rewards(extrinsic: Any, intrinsic: Any, mixing: float, regime: str) -> Any:
    """Return extrinsic + mixing * intrinsic, or the intrinsic rewards alone, of any shape, as a new array."""
    return 1.0 * intrinsic if regime == "intrinsic" else extrinsic + mixing * intrinsic


def check_mixing(mixing: float, regime: str) -> None:
    """Raise a UserError if the regime is unknown or the mixing not a finite number of at least 0."""
    if regime not in REGIMES:
        raise unknown_name("regime", regime, list(REGIMES))
    if not isinstance(mixing, int | float | np.number) or not np.isfinite(mixing) or mixing < 0:
        raise UserError(f"mixing is {mixing!r}: it must be a number, finite and not negative")


def check_curiosity(curiosity: Any) -> None:
    """Raise a UserError if an object is not a Curiosity."""
    if not isinstance(curiosity, Curiosity):
        raise UserError(f"the curiosity is {one_line(curiosity, 80)}: it must be a byol_explore.Curiosity")


def check_spaces(curiosity: Curiosity, num_envs: int, observation_space: Any, action_space: Any) -> None:
    """Raise a UserError if a Curiosity was made for other environments."""
    check_curiosity(curiosity)
    if num_envs != curiosity.num_envs:
        raise UserError(f"num_envs is {num_envs}: it must be {curiosity.num_envs}, as the curiosity has it")
    ours = {"observation": curiosity.reader.observation_space, "action": curiosity.reader.action_space}
    theirs = {"observation": observation_space, "action": action_space}
    for side, space in theirs.items():
        if space != ours[side]:
            raise UserError(
                f"the {side} space of the environments is {one_line(space, 100)}: it must be that of the curiosity, "
                f"{one_line(ours[side], 100)}"
            )
