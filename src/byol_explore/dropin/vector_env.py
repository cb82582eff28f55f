"""Gymnasium's vector environments with curiosity in their rewards, for every algorithm that steps them."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from byol_explore.dropin.autoreset import Step, copied, make_adapter, stacked
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.paying import check_fits, check_learn_every, check_payment, mixed
from byol_explore.errors import UserError


class CuriousVectorEnv(VectorWrapper):
    """Pays at every step, extrinsic + mixing * intrinsic or intrinsic alone, and learns every so many steps.

    Infos tell both parts, as `extrinsic_reward` and `intrinsic_reward`; what counts returns, such as Gymnasium's
    RecordEpisodeStatistics, goes inside, and then counts the task's own. `metrics` are of the latest learning.
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
        check_fits(curiosity, env.num_envs, env.single_observation_space, env.single_action_space)
        check_payment(mixing, regime)
        check_learn_every(learn_every)
        mode = env.metadata.get("autoreset_mode") if autoreset is None else autoreset
        if mode is None:
            raise UserError("the environments do not say their autoreset mode: give one, such as autoreset='next_step'")
        self.curiosity, self.mixing, self.regime, self.learn_every = curiosity, mixing, regime, learn_every
        self.metrics: dict[str, Any] = {}
        self._adapter, self._steps, self._obs = make_adapter(mode), list[Step](), None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """All environments, or with `options["reset_mask"]` some: what of the stream was not learned yet is now."""
        mask = None if options is None else options.get("reset_mask")
        self._obs, infos = self.env.reset(seed=seed, options=options)  # pyright: ignore[reportArgumentType]
        self._adapter.reset(mask)
        if mask is None:
            self._learn()
            self.curiosity.reset()
        else:
            self._give_up(np.asarray(mask, bool))
        return self._obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A step, with curiosity in its rewards."""
        if self._obs is None:
            raise gymnasium.error.ResetNeeded("reset must be called before step")
        before = copied(self._obs)  # which environments may overwrite
        answer = self.env.step(actions)
        if not isinstance(answer[-1], Mapping):
            raise UserError(
                f"infos are a {type(answer[-1]).__name__}: they must be a dict; what changes them goes outside"
            )
        step = self._adapter.read(before, actions, *answer)
        self._obs, extrinsic, terminated, truncated, infos = answer
        self._steps.append(step)
        intrinsic = self.curiosity.step(**step._asdict())
        if len(self._steps) == self.learn_every:
            self._learn()
        reward = mixed(np.asarray(extrinsic), intrinsic, self.mixing, self.regime)
        told = np.ones(self.num_envs, bool)
        parts = {"extrinsic_reward": extrinsic, "intrinsic_reward": intrinsic}
        infos = {**infos, **parts, **{f"_{name}": told for name in parts}}
        return self._obs, reward, terminated, truncated, infos

    def _give_up(self, mask: np.ndarray) -> None:
        """Episodes that have not ended are cut short, which their first observations alone need not show."""
        self.curiosity.reset(mask, of_steps=bool(self._steps))
        if self._steps:
            last = self._steps[-1]
            last.truncated[mask & ~last.terminated & ~last.skipped] = True

    def _learn(self) -> None:
        if self._steps:
            _, self.metrics = self.curiosity.learn(**stacked(self._steps))
            self._steps.clear()
