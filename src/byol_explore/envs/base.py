"""The protocol of JAX-native environments, and the episode convention they all share.

An environment describes one episode: `reset` and `step`, unbatched and pure. `AutoReset` strings episodes
together the way dm_env and Gymnasium's NEXT_STEP mode do: the last observation of an episode stays in the
stream, the action after it is ignored, and the answer is the first observation of the next episode.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, PyTree, TimeStep


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


class Environment(Protocol):
    """One episode of one world."""

    @property
    def spec(self) -> EnvSpec: ...
    def reset(self, key: Array) -> tuple[PyTree, TimeStep]: ...
    def step(self, state: PyTree, action: Action) -> tuple[PyTree, TimeStep]: ...
    def render(self, state: PyTree) -> np.ndarray:
        """An RGB picture [H, W, 3] uint8 of a state on the host."""
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


class EpisodeState(NamedTuple):
    """An environment's state between two steps, and what its next reset needs."""

    inner: PyTree  # the environment's own
    is_last: Array  # []
    key: Array


class AutoReset:
    """A batch of one environment whose episodes are strung together."""

    def __init__(self, env: Environment, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs
        self.spec = env.spec
        self._resets_at_once = min(num_envs, 8)

    def reset(self, keys: Array) -> tuple[EpisodeState, TimeStep]:
        return jax.vmap(self._reset_one)(keys)

    def step(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        return self.reset_where(state.is_last, self.advance(state, action))

    def advance(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        """A step of every episode; what it leads to behind an episode's end means nothing."""
        inner, timestep = jax.vmap(self.env.step)(state.inner, action)
        return EpisodeState(inner, timestep.is_last, state.key), timestep.with_success()

    def _reset_one(self, key: Array) -> tuple[EpisodeState, TimeStep]:
        key, reset_key = jax.random.split(key)
        inner, timestep = self.env.reset(reset_key)
        return EpisodeState(inner, timestep.is_last, key), timestep.with_success()

    def reset_where(self, ended: Array, batch: PyTree) -> PyTree:
        """Fresh episodes where the last ones ended, a few at a time: making one costs much more than a step."""

        def some_left(carry: tuple[Array, PyTree]) -> Array:
            return jnp.any(carry[0])

        def reset_some(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            left, batch = carry
            index = jnp.nonzero(left, size=self._resets_at_once, fill_value=self.num_envs)[0]
            fresh = self.reset(batch[0].key[jnp.minimum(index, self.num_envs - 1)])
            batch = jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), batch, fresh)
            return left.at[index].set(False, mode="drop"), batch

        return jax.lax.while_loop(some_left, reset_some, (ended, batch))[1]


class VectorEnv:
    """A batch of environments over one or several tasks, evenly split; environment i plays task i mod tasks."""

    def __init__(self, envs: list[Environment], num_envs: int) -> None:
        if num_envs % len(envs):
            raise ValueError(f"{num_envs} environments cannot be split evenly over {len(envs)} tasks")
        self.tasks = [AutoReset(env, num_envs // len(envs)) for env in envs]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        keys = self._split(jax.random.split(key, self.num_envs))
        return self._gather([env.reset(k) for env, k in zip(self.tasks, keys, strict=True)])

    def step(self, states: tuple[EpisodeState, ...], action: Action) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        actions = self._split(action)
        return self._gather([env.step(s, a) for env, s, a in zip(self.tasks, states, actions, strict=True)])

    def task(self, states: tuple[EpisodeState, ...]) -> Array:
        """[E] int32, of the episode that each environment is in."""
        return jnp.arange(self.num_envs, dtype=jnp.int32) % len(self.tasks)

    def places(self, states: tuple[EpisodeState, ...]) -> Array:
        """[E, 2] rows and columns, or [E, 0] unless every task has a floor plan."""
        places = places_of(self.tasks, states)  # [envs of a task, tasks, P]
        return places.reshape(self.num_envs, places.shape[-1])

    def _split(self, tree: PyTree) -> list[PyTree]:
        return [jax.tree.map(lambda x, i=i: x[i :: len(self.tasks)], tree) for i in range(len(self.tasks))]

    def _gather(self, results: list[tuple[EpisodeState, TimeStep]]) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        def interleave(*xs: Array) -> Array:
            return jnp.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])

        return tuple(state for state, _ in results), jax.tree.map(interleave, *[step for _, step in results])


def places_of(tasks: list[AutoReset], states: tuple[EpisodeState, ...]) -> Array:
    """[E, tasks, 2] where the agents are in the worlds of all tasks; nowhere, [E, tasks, 0], if one has no plan."""
    if not all(isinstance(task.env, Mapped) for task in tasks):
        return jnp.zeros((tasks[0].num_envs, len(tasks), 0), jnp.uint8)
    places = [jax.vmap(task.env.place)(state.inner) for task, state in zip(tasks, states, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.stack(places, axis=1).astype(jnp.uint8)
