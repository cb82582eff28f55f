"""The protocol of JAX-native environments, and the episode convention they all share.

An environment describes one episode: `reset` and `step`, unbatched and pure. `AutoReset` strings episodes
together the way dm_env and Gymnasium's NEXT_STEP mode do: the last observation of an episode stays in the
stream, the action after it is ignored, and the answer is the first observation of the next episode.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.protocols import Environment as Environment
from byol_explore.envs.protocols import EnvSpec as EnvSpec
from byol_explore.envs.protocols import Evaluated as Evaluated
from byol_explore.envs.protocols import Joinable as Joinable
from byol_explore.envs.protocols import Mapped as Mapped
from byol_explore.envs.protocols import MultiTask as MultiTask
from byol_explore.envs.protocols import Staged as Staged
from byol_explore.envs.protocols import Viewed as Viewed
from byol_explore.types import Action, Array, PyTree, TimeStep


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
        return jax.vmap(lambda key: self._started(self.env.reset, key))(keys)

    def step(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        return self.reset_where(state.is_last, self.advance(state, action))

    def advance(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        """A step of every episode; what it leads to behind an episode's end means nothing."""
        inner, timestep = jax.vmap(self.env.step)(state.inner, action)
        return EpisodeState(inner, timestep.is_last, state.key), timestep.with_success()

    def task(self, state: EpisodeState) -> Array:
        """[E] int32, of the episode that each environment is in: its number among the environment's own tasks."""
        if not self.spec.tasks:
            return jnp.zeros((self.num_envs,), jnp.int32)
        return jax.vmap(cast(MultiTask, self.env).task)(state.inner)

    def reached(self, state: EpisodeState) -> Array | None:
        """[E, stages] which stages each episode has reached; None where there are none."""
        return jax.vmap(self.env.reached)(state.inner) if isinstance(self.env, Staged) else None

    def _started(self, begin: Callable[..., tuple[PyTree, TimeStep]], key: Array, *task: Array) -> Any:
        key, reset_key = jax.random.split(key)
        inner, timestep = begin(reset_key, *task)
        return EpisodeState(inner, timestep.is_last, key), timestep.with_success()

    def _again(self, state: EpisodeState, index: Array) -> tuple[EpisodeState, TimeStep]:
        """Fresh episodes of some environments."""
        return self.reset(state.key[index])

    def reset_where(self, ended: Array, batch: PyTree) -> PyTree:
        """Fresh episodes where the last ones ended, a few at a time: making one costs much more than a step."""

        def some_left(carry: tuple[Array, PyTree]) -> Array:
            return jnp.any(carry[0])

        def reset_some(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            left, batch = carry
            index = jnp.nonzero(left, size=self._resets_at_once, fill_value=self.num_envs)[0]
            fresh = self._again(batch[0], jnp.minimum(index, self.num_envs - 1))
            batch = jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), batch, fresh)
            return left.at[index].set(False, mode="drop"), batch

        return jax.lax.while_loop(some_left, reset_some, (ended, batch))[1]


class KeptTasks(AutoReset):
    """A batch of one multi-task environment in which every environment keeps its task, episode after episode."""

    def __init__(self, env: Environment, tasks: Any) -> None:
        super().__init__(env, len(tasks))
        self._tasks = jnp.asarray(tasks, jnp.int32)

    def reset(self, keys: Array) -> tuple[EpisodeState, TimeStep]:
        return self._begun(keys, self._tasks)

    def _again(self, state: EpisodeState, index: Array) -> tuple[EpisodeState, TimeStep]:
        return self._begun(state.key[index], self._tasks[index])

    def _begun(self, keys: Array, tasks: Array) -> tuple[EpisodeState, TimeStep]:
        begin = cast(MultiTask, self.env).begin
        return jax.vmap(lambda key, task: self._started(begin, key, task))(keys, tasks)


class VectorEnv:
    """A batch of environments over one or several worlds, evenly split; environment i plays world i mod worlds.

    A world has one task, or several: then it draws one for each episode, unless its tasks are to be evenly split too.
    """

    def __init__(self, envs: list[Environment], num_envs: int, *, splits_tasks: bool = False) -> None:
        share, rest = divmod(num_envs, len(envs))
        if rest:
            raise ValueError(f"{num_envs} environments cannot be split evenly over {len(envs)} tasks")
        self.worlds = [_split_tasks(env, share) if splits_tasks else AutoReset(env, share) for env in envs]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        keys = self._split(jax.random.split(key, self.num_envs))
        return self._gather([env.reset(k) for env, k in zip(self.worlds, keys, strict=True)])

    def step(self, states: tuple[EpisodeState, ...], action: Action) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        actions = self._split(action)
        return self._gather([env.step(s, a) for env, s, a in zip(self.worlds, states, actions, strict=True)])

    def task(self, states: tuple[EpisodeState, ...]) -> Array:
        """[E] int32, of the episode that each environment is in."""
        if not any(world.spec.tasks for world in self.worlds):
            return jnp.arange(self.num_envs, dtype=jnp.int32) % len(self.worlds)
        return tasks_of_all(self.worlds, states).reshape(self.num_envs)

    def places(self, states: tuple[EpisodeState, ...]) -> Array:
        """[E, 2] rows and columns, or [E, 0] unless every world has a floor plan."""
        places = places_of(self.worlds, states)  # [envs of a world, worlds, P]
        return places.reshape(self.num_envs, places.shape[-1])

    def reached(self, states: tuple[EpisodeState, ...]) -> Array | None:
        """[E, S] which stages episodes have reached, None where no world has any."""
        reached = reached_in_all(self.worlds, states)  # [envs of a world, worlds, S]
        return None if reached is None else reached.reshape(self.num_envs, reached.shape[-1])

    def _split(self, tree: PyTree) -> list[PyTree]:
        return [jax.tree.map(lambda x, i=i: x[i :: len(self.worlds)], tree) for i in range(len(self.worlds))]

    def _gather(self, results: list[tuple[EpisodeState, TimeStep]]) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        def interleave(*xs: Array) -> Array:
            return jnp.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])

        return tuple(state for state, _ in results), jax.tree.map(interleave, *[step for _, step in results])


def _split_tasks(env: Environment, num_envs: int) -> AutoReset:
    """Environment i plays task i mod tasks."""
    return KeptTasks(env, np.arange(num_envs) % len(env.spec.tasks)) if env.spec.tasks else AutoReset(env, num_envs)


def places_of(worlds: list[AutoReset], states: tuple[EpisodeState, ...]) -> Array:
    """[E, worlds, 2] where the agents are in all worlds; nowhere, [E, worlds, 0], if one has no plan."""
    if not all(isinstance(world.env, Mapped) for world in worlds):
        return jnp.zeros((worlds[0].num_envs, len(worlds), 0), jnp.uint8)
    places = [jax.vmap(world.env.place)(state.inner) for world, state in zip(worlds, states, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.stack(places, axis=1).astype(jnp.uint8)


def tasks_of_all(worlds: list[AutoReset], states: tuple[EpisodeState, ...]) -> Array:
    """[E, worlds] int32, numbers of tasks in all worlds: those of the first world come first."""
    sizes = [max(1, len(world.spec.tasks)) for world in worlds]
    tasks = [world.task(state) + sum(sizes[:i]) for i, (world, state) in enumerate(zip(worlds, states, strict=True))]
    return jnp.stack(tasks, axis=1)


def reached_in_all(worlds: list[AutoReset], states: tuple[EpisodeState, ...]) -> Array | None:
    """[E, worlds, S] the stages of the world that has most, False behind the last of others; None if none has any."""
    reached = [world.reached(state) for world, state in zip(worlds, states, strict=True)]
    most = max((each.shape[-1] for each in reached if each is not None), default=0)
    if most == 0:
        return None
    nothing = jnp.zeros((worlds[0].num_envs, 0), bool)
    parts = [nothing if each is None else each for each in reached]
    return jnp.stack([jnp.pad(part, ((0, 0), (0, most - part.shape[-1]))) for part in parts], axis=1)
