"""Sequences from what single steps say: the inference server's half of what `host_actor.py` does in one place."""

from typing import Any

import jax
import numpy as np

from byol_explore.runtime.base import Episodes, stack
from byol_explore.runtime.cluster.stepping import OBSERVATION
from byol_explore.runtime.host_actor import Rollout
from byol_explore.types import Action, Memory, Policy, PyTree, Trajectory

_TOLD = ("is_first", "task")  # of every observation
_FOLLOWED = ("reward", "discount")  # of every step


class Assembler:
    """The sequences of one actor. An observation is given once, also one that ends a sequence and begins the next."""

    def __init__(self, numbers: np.ndarray, length: int) -> None:
        self._numbers, self._length = numbers, length
        count = len(numbers)
        self._total, self._steps = np.zeros(count, np.float32), np.zeros(count, np.int32)
        self._frames: list[dict[str, np.ndarray]] = []
        self._episodes: list[Episodes] = []
        self._choices: list[tuple[Action, Policy]] = []
        self._start: Memory | None = None
        self.pulled_at, self._act_seconds = 0, 0.0

    @property
    def begins(self) -> bool:
        """Whether the memory before the last observation is wanted: with it a sequence begins."""
        return not self._choices

    def see(self, frame: dict[str, np.ndarray]) -> Rollout | None:
        """What an actor has sent; with the last observation of a sequence, the sequence."""
        frame = {name: array.copy() for name, array in frame.items()}
        if self._frames:
            self._episodes.append(self._count(frame))
        self._frames.append(frame)
        if len(self._frames) < self._length:
            return None
        rollout = self._rollout()
        self._frames, self._episodes, self._choices, self._act_seconds = [frame], [], [], 0.0
        return rollout

    def choose(self, action: Action, policy: Policy, memory: Memory | None, step: int, seconds: float) -> None:
        """What was answered to it. Where a sequence begins, the memory before, and the learner's step then."""
        if self.begins:
            assert memory is not None
            self._start, self.pulled_at = memory._replace(reward=self._frames[0]["reward"]), step
        self._choices.append((action, policy))
        self._act_seconds += seconds

    def _count(self, frame: dict[str, np.ndarray]) -> Episodes:
        is_first = frame["is_first"]
        self._total = np.where(is_first, 0.0, self._total + frame["reward"]).astype(np.float32)
        self._steps = np.where(is_first, 0, self._steps + 1)
        return Episodes(frame["is_last"], self._total, self._steps, frame["success"])

    def _rollout(self) -> Rollout:
        frames, after = self._frames, self._frames[1:]
        actions, policies = zip(*self._choices, strict=True)
        told = {name: np.stack([frame[name] for frame in frames]) for name in _TOLD}
        followed = {name: np.stack([frame[name] for frame in after]) for name in _FOLLOWED}
        assert self._start is not None
        trajectory = Trajectory(
            observation_of([observation_in(frame) for frame in frames]), action=stack(actions), policy=stack(policies),
            memory=self._start, **told, **followed,
        )  # fmt: skip
        return Rollout(
            self._numbers, trajectory, stack(self._episodes), np.stack([frame["places"] for frame in after]),
            self.pulled_at, float(sum(frame["seconds"][0] for frame in after)), self._act_seconds,
            reached=np.stack([frame["reached"] for frame in after]) if "reached" in frames[0] else None,
        )  # fmt: skip


def observation_in(frame: dict[str, np.ndarray]) -> PyTree:
    """An array, or a dict of arrays by name."""
    if OBSERVATION in frame:
        return frame[OBSERVATION]
    return {name.removeprefix(OBSERVATION): array for name, array in frame.items() if name.startswith(OBSERVATION)}


def observation_of(observations: list[Any]) -> PyTree:
    return jax.tree.map(lambda *xs: np.stack(xs), *observations)
