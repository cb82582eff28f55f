"""What environments are, inside and outside jit: their specs and protocols. Light: no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, PyTree, TimeStep

if TYPE_CHECKING:
    from byol_explore.types import Array


class EnvSpec(NamedTuple):
    """What a network and a logger must know of an environment."""

    name: str
    observation: PyTree  # a spaces.ObservationSpec: one kind, or a flat dict of them
    action: ActionSpec
    max_steps: int  # of an episode
    success_above: float = 0.0  # a return that is a success if it is exceeded; infinite where nobody knows one
    scores: tuple[float, float] | None = None  # of random actions and of a human
    rooms: tuple[str, ...] = ()  # names of the numbers that tell rooms apart, for environments that know theirs
    position: tuple[str, ...] = ()  # names of the numbers that say where in a room the agent is
    tasks: tuple[EnvSpec, ...] = ()  # of a world that has several, one of which each episode is of: their own specs


class Environment(Protocol):
    """One episode of one world."""

    @property
    def spec(self) -> EnvSpec: ...
    def reset(self, key: Array) -> tuple[PyTree, TimeStep]: ...
    def step(self, state: PyTree, action: Action) -> tuple[PyTree, TimeStep]: ...
    def render(self, state: PyTree) -> np.ndarray:
        """An RGB picture [H, W, 3] uint8 of a state on the host."""
        ...


class MultiTask(Environment, Protocol):
    """An environment whose `spec.tasks` are several: `reset` draws the task of an episode, `begin` is told it."""

    def begin(self, key: Array, task: Array) -> tuple[PyTree, TimeStep]:
        """An episode of the task of that number [] int32."""
        ...

    def task(self, state: PyTree) -> Array:
        """[] int32, the number of the episode's task."""
        ...


@runtime_checkable
class Joinable(Protocol):
    """An environment that can be one world together with others of its class, which differ in their tasks alone."""

    def join(self, others: Sequence[Any]) -> Any:
        """A `MultiTask` environment with its own tasks and then theirs."""
        ...


@runtime_checkable
class Mapped(Protocol):
    """An environment whose agent stands on a cell of a floor plan."""

    floor: tuple[int, int]  # height and width

    def place(self, state: PyTree) -> Array:
        """[2] row and column of the agent."""
        ...

    def floor_plan(self) -> list[str]:
        """A row of characters per row of cells: # wall, . floor, D door, G goal, o something else."""
        ...


@runtime_checkable
class Staged(Protocol):
    """An environment whose episodes have stages, for logs and pages; the agent is told nothing of them."""

    stages: tuple[str, ...]  # their names, about in the order in which they are reached

    def reached(self, state: PyTree) -> Array:
        """[stages] bool, which of them the episode has reached."""
        ...


@runtime_checkable
class Viewed(Protocol):
    """An environment whose agent sees a square of cells, which can be padded to fit the network of a larger one."""

    view_size: int

    def with_view(self, view_size: int) -> Any:
        """The environment with a square of at least its own size."""
        ...


@runtime_checkable
class Evaluated(Protocol):
    """An environment, inside or outside jit, whose evaluations need not follow the rules of its training."""

    rule_sets: tuple[str, ...]  # names of the rules that one can ask for

    @property
    def rules(self) -> dict[str, Any]:
        """Those that it follows, for a report."""
        ...

    def for_evaluation(self, rules: str | None = None) -> Any:
        """The environment by such rules, or by those that it is usually evaluated by."""
        ...
