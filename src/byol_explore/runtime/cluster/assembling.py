"""Sequences from what single steps say: the inference server's half of what `host_actor.py` does in one place."""

from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.runtime.base import Episodes, stack
from byol_explore.runtime.cluster.stepping import OBSERVATION
from byol_explore.runtime.host_actor import Rollout
from byol_explore.types import Action, Memory, Policy, PyTree, Trajectory


class Chosen(NamedTuple):
    """What was chosen for some actors at once, their environments one after the other."""

    action: Action
    policy: Policy
    memory: Memory | None  # before, if somebody needs it


class Assembler:
    """The sequences of one actor. An observation is given once, also one that ends a sequence and begins the next.

    Frames are written into one block, a row for each, whose fields are then the arrays of the sequence.
    """

    def __init__(self, numbers: np.ndarray, length: int) -> None:
        self._numbers, self._length = numbers, length
        count = len(numbers)
        self._total, self._steps = np.zeros(count, np.float32), np.zeros(count, np.int32)
        self._frames: Any = None  # [T] frames, of which there are
        self._count = 0
        self._episodes: list[Episodes] = []
        self._choices: list[tuple[Chosen, slice]] = []
        self._start: Memory | None = None
        self.pulled_at, self._act_seconds = 0, 0.0

    @property
    def begins(self) -> bool:
        """Whether the memory before the last observation is wanted: with it a sequence begins."""
        return not self._choices

    @property
    def frame(self) -> Any:
        """The last one, by the names of its arrays."""
        return self._frames[self._count - 1]

    def see(self, frame: np.ndarray) -> Rollout | None:
        """What an actor has sent; with the last observation of a sequence, the sequence."""
        if self._frames is None:
            self._frames = np.empty(self._length, frame.dtype)
        self._frames[self._count] = frame
        self._count += 1
        if self._count > 1:
            self._episodes.append(self._counted(self.frame))
        if self._count < self._length:
            return None
        rollout = self._rollout()
        self._frames[0] = frame
        self._count, self._episodes, self._choices, self._act_seconds = 1, [], [], 0.0
        return rollout

    def choose(self, chosen: Chosen, place: int, step: int, seconds: float) -> None:
        """What was answered to it, among others. Where a sequence begins, the learner's step then counts."""
        count = len(self._numbers)
        part = slice(place * count, (place + 1) * count)
        if self.begins:
            assert chosen.memory is not None
            memory: Memory = jax.tree.map(lambda x: x[part], chosen.memory)
            self._start, self.pulled_at = memory._replace(reward=self.frame["reward"].copy()), step
        self._choices.append((chosen, part))
        self._act_seconds += seconds

    def _counted(self, frame: Any) -> Episodes:
        is_first = frame["is_first"]
        self._total = np.where(is_first, 0.0, self._total + frame["reward"]).astype(np.float32)
        self._steps = np.where(is_first, 0, self._steps + 1)
        return Episodes(frame["is_last"].copy(), self._total, self._steps, frame["success"].copy())

    def _rollout(self) -> Rollout:
        told = {
            name: self._frames[name].copy() for name in self._frames.dtype.names
        }  # [T, E, ...]; the block is used again
        action, policy = self._stacked()
        assert self._start is not None
        trajectory = Trajectory(
            observation_in(told), action=action, policy=policy, memory=self._start, is_first=told["is_first"],
            task=told["task"], reward=told["reward"][1:], discount=told["discount"][1:],
        )  # fmt: skip
        return Rollout(
            self._numbers, trajectory, stack(self._episodes), told["places"][1:], self.pulled_at,
            float(np.sum(told["seconds"][1:])), self._act_seconds,
            reached=told["reached"][1:] if "reached" in told else None,
        )  # fmt: skip

    def _stacked(self) -> tuple[Action, Policy]:
        """[T - 1, E, ...] of what was chosen, of which only this actor's parts are looked at."""
        parts = [part for _, part in self._choices]
        return jax.tree.map(
            lambda *xs: np.stack([x[part] for x, part in zip(xs, parts, strict=True)]),
            *[(chosen.action, chosen.policy) for chosen, _ in self._choices],
        )


def observation_in(arrays: dict[str, np.ndarray]) -> PyTree:
    """An array, or a dict of arrays by name."""
    if OBSERVATION in arrays:
        return arrays[OBSERVATION]
    return {name.removeprefix(OBSERVATION): array for name, array in arrays.items() if name.startswith(OBSERVATION)}
