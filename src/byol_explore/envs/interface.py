"""Environment specs, the base classes inside and outside jit, the list of tasks, and keyboards. Imports no JAX.

`JitEnvironment` is one episode as pure functions of JAX arrays. `HostEnvironment` starts a `HostVectorEnv`: NumPy
arrays of several environments that are stepped together. Optional abilities (stages, floor plans, several tasks,
evaluation protocols) are attributes and methods of the base classes with defaults that mean "none".
"""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, PyTree, TimeStep

if TYPE_CHECKING:
    from byol_explore.types import Array


class EnvSpec(NamedTuple):
    """The facts of an environment that networks and logs need."""

    name: str
    observation: PyTree  # a spaces.ObservationSpec: one space, or a flat dict of them
    action: ActionSpec
    max_steps: int  # of an episode
    success_threshold: float = 0.0  # an episode succeeds if its return exceeds it; infinite if none is known
    reference_scores: tuple[float, float] | None = None  # of random actions and of a human
    room_fields: tuple[str, ...] = ()  # names of the numbers that identify a room
    position_fields: tuple[str, ...] = ()  # names of the numbers that give the agent's position in a room
    room_layout: str = ""  # which of the layouts of `report/figures.py` the rooms have, if any
    tasks: tuple[EnvSpec, ...] = ()  # specs of the tasks of a multi-task environment; each episode has one of them


class BaseEnvironment(ABC):
    """Attributes of environments inside and outside jit."""

    spec: EnvSpec
    stages: tuple[str, ...] = ()  # names of an episode's stages, for logs; the agent does not observe them
    floor_shape: tuple[int, int] | None = None  # rows and columns of the floor plan, inside jit only
    protocols: tuple[str, ...] = ()  # names of the evaluation protocols to choose from

    @property
    def keys(self) -> Keyboard | None:
        """Keys for human play; None: made from the action space."""
        return None

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """Settings that the evaluation protocol decides, for reports."""
        return {}

    def for_evaluation(self, protocol: str | None = None) -> Self:
        """Return the environment under an evaluation protocol.

        Args:
          protocol: one of `protocols`; None for the environment's own choice.
        """
        return self

    def merge(self, others: Sequence[Any]) -> BaseEnvironment | None:
        """Return one environment with the tasks of this one and then those of `others`; None if it is impossible.

        Args:
          others: environments of the same class.
        """
        return None


class JitEnvironment(BaseEnvironment):
    """One episode of one environment as pure functions. `AutoReset` batches them and begins new episodes."""

    view_size = 0  # side of the square of cells that the agent sees, if it can be padded

    @abstractmethod
    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        """Begin an episode.

        Args:
          key: random key of the episode; keep a part of it in the state if steps are random.

        Returns:
          The state, any tree of arrays, and the first TimeStep, unbatched, with `is_first` True.
        """

    @abstractmethod
    def step(self, state: PyTree, action: Action) -> tuple[PyTree, TimeStep]:
        """Step an episode that has not ended.

        Args:
          state: from `reset` or `step`.
          action: [D] and [C].

        Returns:
          The new state, of the same shapes and dtypes, and the TimeStep, with `is_first` False. At the end `is_last` is
          True, and `discount` is 0 if the episode terminated or 1 if it was truncated.
        """

    @abstractmethod
    def render(self, state: PyTree) -> np.ndarray:
        """Return an RGB picture [H, W, 3] uint8 of a state on the host."""

    # With spec.tasks:

    def reset_task(self, key: Array, task: Array) -> tuple[PyTree, TimeStep]:
        """Begin an episode of task number `task` [] int32; see `reset`, which draws the task."""
        raise NotImplementedError

    def task_id(self, state: PyTree) -> Array:
        """Return the number [] int32 of the episode's task."""
        raise NotImplementedError

    # With stages:

    def stages_reached(self, state: PyTree) -> Array:
        """Return [J] bool: the stages that the episode has reached."""
        raise NotImplementedError

    # With floor_shape:

    def position(self, state: PyTree) -> Array:
        """Return [2]: row and column of the agent."""
        raise NotImplementedError

    def floor_plan(self) -> list[str]:
        """Return a string per row of cells: # wall, . floor, D door, G goal, o something else."""
        raise NotImplementedError

    # With view_size:

    def with_view(self, view_size: int) -> JitEnvironment:
        """Return the environment with its view padded to `view_size`, so that one network fits several."""
        raise NotImplementedError

    def goal_text(self, state: PyTree) -> str:
        """Return what a human player has to do in this episode."""
        return ""


class HostVectorEnv(ABC):
    """Environments outside jit that are stepped together. Returned arrays may be overwritten by the next call."""

    num_envs: int

    @abstractmethod
    def reset(self) -> TimeStep:
        """Begin new episodes in all environments. Returns time steps [E, ...]."""

    @abstractmethod
    def step(self, action: Action) -> TimeStep:
        """Step all environments.

        Args:
          action: [E, D] and [E, C]; ignored where the last time step ended an episode.

        Returns:
          Time steps [E, ...]: the first of a new episode where the action was ignored.
        """

    @abstractmethod
    def render(self) -> np.ndarray:
        """Return an RGB picture [H, W, 3] uint8 of environment 0."""

    def task_ids(self) -> np.ndarray:
        """Return [E] int32: the task of each episode, by its place among the environments of the batch."""
        return np.zeros(self.num_envs, np.int32)

    def positions(self) -> np.ndarray:
        """Return [E, P]: the numbers named by `spec.room_fields` and `spec.position_fields`."""
        return np.zeros((self.num_envs, 0), np.int32)

    def stages_reached(self) -> np.ndarray | None:
        """Return [E, J] bool: the stages that each episode has reached; None without stages."""
        return None

    def warnings(self) -> list[str]:
        """Return warnings about the last time step that its spec cannot express."""
        return []

    def pop_faults(self) -> list[tuple[str, str]]:
        """Return line and traceback of each environment that was restarted after a fault, since the last call."""
        return []

    def abort(self) -> None:  # noqa: B027
        """End worker processes while another thread waits for them."""

    def close(self) -> None:  # noqa: B027
        """End worker processes."""


class HostEnvironment(BaseEnvironment):
    """An environment outside jit, which starts vector environments."""

    @abstractmethod
    def make_vector_env(self, num_envs: int, seed: int) -> HostVectorEnv:
        """Start environments; the caller closes them.

        Args:
          num_envs: number E of environments.
          seed: of all of them; different seeds give different episodes.
        """

    def make_random_task_env(self, others: Sequence[Any], num_envs: int, seed: int) -> HostVectorEnv | None:
        """Start environments that draw, for each episode, this task or one of `others`.

        Args:
          others: environments of the other tasks, of any class.
          num_envs: number E of environments.
          seed: of all of them, and of the draws.

        Returns:
          The environments; None if these tasks cannot share them. Then `TaskSwitch` draws the tasks, which steps the
          environments one after the other.
        """
        return None


AnyEnvironment = JitEnvironment | HostEnvironment
AnEnvironment = TypeVar("AnEnvironment")


class Task(NamedTuple):
    """A task and the environment that plays it."""

    name: str
    spec: EnvSpec
    env: Any
    index_in_env: int | None  # in a multi-task environment

    @property
    def stages(self) -> tuple[str, ...]:
        return self.env.stages


def list_tasks(names: Sequence[str], envs: Sequence[Any]) -> list[Task]:
    """List the tasks of environments with these names, in the order of `Trajectory.task_id`."""
    merged = merge_envs(envs)
    if len(merged) < len(envs):
        names = [env.spec.name for env in merged]
    tasks = []
    for name, env in zip(names, merged, strict=True):
        several = [Task(spec.name, spec, env, index) for index, spec in enumerate(env.spec.tasks)]
        tasks += several or [Task(name, env.spec, env, None)]
    return tasks


def count_tasks(envs: Sequence[Any]) -> int:
    return sum(max(1, len(env.spec.tasks)) for env in envs)


def merge_envs(envs: Sequence[AnEnvironment]) -> list[AnEnvironment]:
    """Return one multi-task environment with all tasks if the environments can be merged, else the environments."""
    first: Any = envs[0]
    is_same_class = all(type(env) is type(first) for env in envs)
    merged = first.merge(envs[1:]) if len(envs) > 1 and is_same_class else None
    return list(envs) if merged is None else [merged]


# Keyboards for human play, defined by the environment or made from its action space

_CODES = (*(f"Digit{digit}" for digit in range(10)), *(f"Key{letter}" for letter in string.ascii_uppercase))
_PAIRS = tuple(zip("QWERTYUIOP", "ASDFGHJKLZ", strict=True))  # keys that raise and lower one dimension


class Key(NamedTuple):
    """Part of an action while some keys are held. Key codes are those of browsers, such as KeyW."""

    key_codes: tuple[str, ...]
    label: str  # shown to the player
    discrete: tuple[tuple[int, int], ...] = ()  # (component, category) pairs
    continuous: tuple[tuple[int, float], ...] = ()  # (dimension, amount added) pairs


class Keyboard(NamedTuple):
    """All keys of an environment."""

    keys: tuple[Key, ...]
    steps_per_second: float = 0.0  # 0: the environment waits for a key
    mouse: tuple[tuple[int, float], tuple[int, float]] | None = None  # (dimension, gain) of moving right and down
    goal: str = ""  # of the game, for the player


def keyboard_for(env: BaseEnvironment) -> Keyboard:
    """Return the environment's own keyboard, or one made from its action space."""
    return env.keys or default_keyboard(env.spec.action, env.spec.name)


def action_from_keys(
    keys: Keyboard, spec: ActionSpec, held: Iterable[str], mouse: tuple[float, float] = (0.0, 0.0)
) -> Action:
    """Return the action [1, ...] while keys are held.

    If several keys set one component, the combination of more keys wins, then the one that was pressed last.
    """
    order = {code: index for index, code in enumerate(held)}
    pressed = [key for key in keys.keys if all(code in order for code in key.key_codes)]
    pressed.sort(key=lambda key: (len(key.key_codes), max(order[code] for code in key.key_codes)))
    categories, numbers = np.zeros((1, len(spec.discrete)), np.int32), np.zeros((1, spec.continuous), np.float32)
    for key in pressed:
        for component, category in key.discrete:
            categories[0, component] = category
        for dimension, number in key.continuous:
            numbers[0, dimension] += number
    for (dimension, gain), moved in zip(keys.mouse or (), mouse, strict=False):
        numbers[0, dimension] += gain * moved
    return Action(categories, np.clip(numbers, -1.0, 1.0))


def default_keyboard(spec: ActionSpec, name: str) -> Keyboard:
    """Make a key for each category and two for each dimension; a UserError if there are not enough keys."""
    codes, keys = iter(_CODES), []
    if spec.continuous:
        codes = iter(_CODES[:10])  # letters are for dimensions
    for component, categories in enumerate(spec.discrete):
        which = f" of part {component + 1}" if len(spec.discrete) > 1 else ""
        for category in range(categories):
            if (code := next(codes, None)) is None:
                raise UserError(f"{name} has more actions than keys: it cannot be played by hand")
            keys.append(Key((code,), f"action {category}{which}", discrete=((component, category),)))
    if spec.continuous > len(_PAIRS):
        raise UserError(f"{name} has {spec.continuous} dimensions of actions: more than {len(_PAIRS)} have no keys")
    for dimension, letters in zip(range(spec.continuous), _PAIRS, strict=False):
        for letter, number in zip(letters, (1.0, -1.0), strict=True):
            words = f"dimension {dimension + 1} {'up' if number > 0 else 'down'}"
            keys.append(Key((f"Key{letter}",), words, continuous=((dimension, number),)))
    return Keyboard(tuple(keys), steps_per_second=10.0 if spec.continuous else 0.0)
