"""Adapters from the results of vector environments to the arguments of `Curiosity`, one per autoreset mode.

Vector environments differ in what they return at the end of an episode (`gymnasium.vector.AutoresetMode`):

    SAME_STEP   the step that ends an episode returns the first observation of the next one; the last observation is in
                infos (Gymnasium 0.29, Stable-Baselines3)
    NEXT_STEP   the step returns the last observation, and the next step only resets (Gymnasium 1, EnvPool)
    DISABLED    the step returns the last observation, and the caller resets the environments

    adapter = autoreset.SameStep()
    step = adapter.convert(obs, action, *env.step(action))
    intrinsic = curiosity.step(**step._asdict())
    steps.append(step)
    intrinsic, metrics = curiosity.learn(**autoreset.stack_steps(steps))
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from byol_explore.dropin.inputs import map_arrays, to_numpy
from byol_explore.errors import UserError, unknown_name
from byol_explore.types import numpy_tree_map

FINAL_KEYS = ("final_obs", "final_observation")  # in the infos of Gymnasium 1 and of 0.29
SB3_FINAL_KEY = "terminal_observation"


class Step(NamedTuple):
    """Arguments of `Curiosity.step`, [B, ...]: NumPy copies that the environments do not overwrite."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: np.ndarray
    truncated: np.ndarray
    skipped: np.ndarray


class Adapter:
    """Converts the steps of one vector environment, in order."""

    def convert(
        self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any
    ) -> Step:
        """Convert one step of all environments.

        Args:
          obs: [B, ...] observations that the actions were chosen from.
          action: [B, ...] actions.
          next_obs: [B, ...] what `env.step(action)` returned, as the following arguments.
          reward: [B] not used.
          terminated: [B] bool.
          truncated: [B] bool.
          infos: a dict of arrays (Gymnasium) or one dict per environment (Stable-Baselines3).
        Returns:
          A `Step` whose `next_obs` is the true last observation where an episode has ended.
        """
        over = np.array(to_numpy(terminated), bool), np.array(to_numpy(truncated), bool)
        step = Step(copy_tree(obs), copy_tree(action), copy_tree(next_obs), *over, np.zeros(over[0].shape, bool))
        return self._adapt(step, infos)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Report a reset by hand.

        Args:
          mask: [B] environments that were reset; None for all.
        """

    def _adapt(self, step: Step, infos: Any) -> Step:
        raise NotImplementedError


class SameStep(Adapter):
    """Takes last observations from the infos."""

    def _adapt(self, step: Step, infos: Any) -> Step:
        for env in np.flatnonzero(step.terminated | step.truncated).tolist():
            _write(step.next_obs, env, _final_observation(infos, env))
        return step


class NextStep(Adapter):
    """Marks the steps after an episode's end, which only reset, as skipped."""

    def __init__(self) -> None:
        self._ended: Any = np.False_  # [B] in the previous step

    def _adapt(self, step: Step, infos: Any) -> Step:
        skipped = step.skipped | self._ended
        terminated, truncated = step.terminated & ~skipped, step.truncated & ~skipped
        self._ended = terminated | truncated
        return step._replace(terminated=terminated, truncated=truncated, skipped=skipped)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget the ends of episodes in a mask [B], or all."""
        self._ended = np.False_ if mask is None else self._ended & ~mask


class Disabled(NextStep):
    """Marks all steps between an episode's end and the reset by hand as skipped."""

    def _adapt(self, step: Step, infos: Any) -> Step:
        step = super()._adapt(step, infos)
        self._ended = self._ended | step.skipped
        return step


ADAPTERS: dict[str, type[Adapter]] = {"same_step": SameStep, "next_step": NextStep, "disabled": Disabled}


def make_adapter(mode: Any) -> Adapter:
    """Make the adapter of a `gymnasium.vector.AutoresetMode`, or of its name."""
    name = str(getattr(mode, "name", mode)).lower()
    if name not in ADAPTERS:
        raise unknown_name("autoreset mode", mode, list(ADAPTERS))
    return ADAPTERS[name]()


def stack_steps(steps: Sequence[Step]) -> dict[str, Any]:
    """Stack consecutive steps.

    Args:
      steps: T steps [B, ...], in order.
    Returns:
      The arguments of `Curiosity.learn` by name, [T, B, ...].
    """
    stacked = numpy_tree_map(lambda *parts: np.stack(parts), *steps)
    return dict(zip(("obs", "actions", "next_obs", "terminations", "truncations", "skipped"), stacked, strict=True))


def copy_tree(tree: Any) -> Any:
    """Copy nested arrays, also tensors and texts, to NumPy."""
    return map_arrays(lambda x: np.array(to_numpy(x)), tree)


def _final_observation(infos: Any, env: int) -> Any:
    """Return the last observation of an environment whose episode has ended."""
    if isinstance(infos, Mapping):
        found = next((infos[name] for name in FINAL_KEYS if infos.get(name) is not None), None)
        last = None if found is None else map_arrays(lambda x: x[env], found)
    else:
        last = infos[env].get(SB3_FINAL_KEY)
    if last is None:
        raise UserError(
            f"environment {env} has ended an episode, but its last observation is not in the infos: in SAME_STEP mode "
            f"it must be there as {', '.join(map(repr, FINAL_KEYS))} or {SB3_FINAL_KEY!r}; is the mode another one?"
        )
    return last


def _write(batch: Any, env: int, observation: Any) -> None:
    """Write one observation into a batch."""

    def write(array: np.ndarray, value: Any) -> None:
        array[env] = value if isinstance(value, str) else to_numpy(value)

    map_arrays(write, batch, observation)
