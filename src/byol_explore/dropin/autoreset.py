"""What vector environments answer at the end of an episode, made into what a `Curiosity` takes: an adapter per mode.

Gymnasium has three modes (`gymnasium.vector.AutoresetMode`), and others have one of them:

    SAME_STEP   the step that ends an episode answers with the next one's first observation; the last one is in infos
                (Gymnasium 0.29, Stable-Baselines3)
    NEXT_STEP   it answers with the last observation, and the next step does nothing but reset (Gymnasium 1, EnvPool)
    DISABLED    it answers with the last observation, and whoever drives the environments resets them

    adapter = autoreset.SameStep()
    step = adapter.read(obs, action, *env.step(action))
    intrinsic = curiosity.step(**step._asdict())
    steps.append(step)
    intrinsic, metrics = curiosity.learn(**autoreset.stacked(steps))
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from byol_explore.dropin.arrays import are_texts, to_numpy
from byol_explore.errors import UserError, unknown

FINAL = ("final_obs", "final_observation")  # in the infos of Gymnasium, now and in 0.29
TERMINAL = "terminal_observation"  # in Stable-Baselines3's


class Step(NamedTuple):
    """What `Curiosity.step` takes, [B, ...] in NumPy: copies, which nobody else writes."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: np.ndarray
    truncated: np.ndarray
    skipped: np.ndarray


class Adapter(Protocol):
    """Keeps what it must of the steps before."""

    def read(
        self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any
    ) -> Step:
        """Of an observation, an action, and what the environments answered to it."""
        ...

    def reset(self, mask: np.ndarray | None = None) -> None:
        """All environments were reset by hand, or those in a mask [B]."""
        ...


class SameStep:
    """The last observation is in the infos, the first of the next episode in its place."""

    def read(
        self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any
    ) -> Step:
        """With the true last observations in their places."""
        step = _step(obs, action, next_obs, terminated, truncated)
        for env in np.flatnonzero(step.terminated | step.truncated):
            _put(step.next_obs, int(env), _final(infos, int(env)))
        return step

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Nothing is kept."""


class NextStep:
    """The step after the last one only resets."""

    def __init__(self) -> None:
        self._ended: np.ndarray | None = None  # [B] in the step before

    def read(
        self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any
    ) -> Step:
        """With steps that only reset marked as skipped."""
        step = _step(obs, action, next_obs, terminated, truncated)
        skipped = step.skipped if self._ended is None else self._ended
        terminated, truncated = step.terminated & ~skipped, step.truncated & ~skipped
        self._ended = terminated | truncated
        return step._replace(terminated=terminated, truncated=truncated, skipped=skipped)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """No episode has ended."""
        if self._ended is not None:
            self._ended = np.zeros_like(self._ended) if mask is None else self._ended & ~mask


class Disabled(NextStep):
    """Nothing is reset but by hand; what an environment says after its end and before that means nothing."""

    def read(
        self, obs: Any, action: Any, next_obs: Any, reward: Any, terminated: Any, truncated: Any, infos: Any
    ) -> Step:
        """With steps after an end marked as skipped."""
        step = super().read(obs, action, next_obs, reward, terminated, truncated, infos)
        assert self._ended is not None
        self._ended = self._ended | step.skipped
        return step


ADAPTERS: dict[str, type[Adapter]] = {"same_step": SameStep, "next_step": NextStep, "disabled": Disabled}


def make_adapter(mode: Any) -> Adapter:
    """Of a mode of Gymnasium, or of its name."""
    name = str(getattr(mode, "name", mode)).lower()
    if name not in ADAPTERS:
        raise unknown("autoreset mode", mode, list(ADAPTERS))
    return ADAPTERS[name]()


def stacked(steps: Sequence[Step]) -> dict[str, Any]:
    """What `Curiosity.learn` takes, [T, B, ...], of steps one after the other."""
    names = ("obs", "actions", "next_obs", "terminations", "truncations", "skipped")
    return dict(zip(names, (_stack(parts) for parts in zip(*steps, strict=True)), strict=True))


def _step(obs: Any, action: Any, next_obs: Any, terminated: Any, truncated: Any) -> Step:
    over = np.array(to_numpy(terminated), bool), np.array(to_numpy(truncated), bool)
    return Step(copied(obs), copied(action), copied(next_obs), *over, np.zeros(over[0].shape, bool))


def copied(tree: Any) -> Any:
    """Memory of one's own, in NumPy."""
    if isinstance(tree, Mapping):
        return {key: copied(part) for key, part in tree.items()}
    if are_texts(tree):
        return np.array(tree, object)  # of any length
    return tuple(map(copied, tree)) if isinstance(tree, tuple) else np.array(to_numpy(tree))


def _stack(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {key: _stack([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(_stack(of_each) for of_each in zip(*parts, strict=True))
    return np.stack(parts)


def _final(infos: Any, env: int) -> Any:
    """The last observation of an environment whose episode has ended."""
    if isinstance(infos, Mapping):
        found = next((infos[name] for name in FINAL if infos.get(name) is not None), None)
        last = None if found is None else _at(found, env)
    else:
        last = infos[env].get(TERMINAL)
    if last is None:
        raise UserError(
            f"environment {env} has ended an episode, but its last observation is not in the infos: in SAME_STEP mode "
            f"it must be there as {', '.join(map(repr, FINAL))} or {TERMINAL!r}; is the mode another one?"
        )
    return last


def _at(tree: Any, env: int) -> Any:
    """One environment's part of a batch, which may be an array of whole observations."""
    if isinstance(tree, Mapping):
        return {key: _at(part, env) for key, part in tree.items()}
    return tuple(_at(part, env) for part in tree) if isinstance(tree, tuple) else tree[env]


def _put(batch: Any, env: int, one: Any) -> None:
    """An observation in its place, nested as it is."""
    if isinstance(batch, Mapping):
        for key, part in batch.items():
            _put(part, env, one[key])
    elif isinstance(batch, tuple):
        for part, other in zip(batch, one, strict=True):
            _put(part, env, other)
    else:
        batch[env] = one if isinstance(one, str) else to_numpy(one)
