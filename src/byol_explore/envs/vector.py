"""Vector environments inside jit: auto-reset, and several environments with fixed or random tasks in one batch.

A `JitEnvironment` describes one episode: `reset` and `step`, unbatched and pure. `AutoReset` batches it and begins new
episodes like dm_env and Gymnasium's NEXT_STEP mode: the last observation of an episode stays in the stream, the action
after it is ignored, and the next time step is the first observation of the next episode.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.host_vector import stack_positions, stack_stages
from byol_explore.envs.interface import JitEnvironment, merge_envs
from byol_explore.ops.arrays import where_batch
from byol_explore.types import Action, Array, PyTree, TimeStep

MAX_RESETS = 8  # environments that are reset at once


class EpisodeState(NamedTuple):
    """State of an environment between two steps, and the key of its next reset."""

    env_state: PyTree  # of the environment itself
    is_last: Array  # [] whether the episode has ended
    key: Array  # []


class AutoReset:
    """A batch of one environment with automatic resets.

    A multi-task environment draws a task per episode, unless `tasks` gives the task that each element always plays.
    """

    def __init__(self, env: JitEnvironment, num_envs: int, tasks: Any = None) -> None:
        self.env, self.num_envs = env, num_envs
        self.spec = env.spec
        self.tasks = None if tasks is None else jnp.broadcast_to(jnp.asarray(tasks, jnp.int32), (num_envs,))
        self._resets_at_once = min(num_envs, MAX_RESETS)

    def reset(self, keys: Array) -> tuple[EpisodeState, TimeStep]:
        return self._start(keys, self.tasks)

    def step(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        return self.reset_done(state.is_last, self.step_without_reset(state, action))

    def step_without_reset(self, state: EpisodeState, action: Action) -> tuple[EpisodeState, TimeStep]:
        """Step every environment. Results are undefined where the episode had ended."""
        env_state, timestep = jax.vmap(self.env.step)(state.env_state, action)
        return EpisodeState(env_state, timestep.is_last, state.key), timestep

    def task_id(self, state: EpisodeState) -> Array:
        """[E] int32 task of each environment's episode, numbered among the tasks of this environment."""
        if not self.spec.tasks:
            return jnp.zeros((self.num_envs,), jnp.int32)
        return jax.vmap(self.env.task_id)(state.env_state)

    def positions(self, state: EpisodeState) -> Array:
        """[E, 2] uint8 rows and columns, [E, 0] without a floor plan."""
        if self.env.floor_shape is None:
            return jnp.zeros((self.num_envs, 0), jnp.uint8)
        return jax.vmap(self.env.position)(state.env_state).astype(jnp.uint8)

    def stages_reached(self, state: EpisodeState) -> Array | None:
        """[E, J] bool stages that each episode has reached, None without stages."""
        return jax.vmap(self.env.stages_reached)(state.env_state) if self.env.stages else None

    def _start(self, keys: Array, tasks: Array | None) -> tuple[EpisodeState, TimeStep]:
        def start(key: Array, task: Array | None) -> tuple[EpisodeState, TimeStep]:
            key, reset_key = jax.random.split(key)
            env_state, timestep = self.env.reset(reset_key) if task is None else self.env.reset_task(reset_key, task)
            return EpisodeState(env_state, timestep.is_last, key), timestep

        return jax.vmap(start)(keys, tasks)

    def reset_done(self, ended: Array, batch: PyTree) -> PyTree:
        """Begin new episodes where `ended` [E], `MAX_RESETS` at a time.

        Args:
          ended: [E] bool.
          batch: pair of the states [E, ...] and time steps [E, ...].

        Returns:
          The pair, with the state and the first time step of a new episode where `ended`.
        """

        # A reset costs much more than a step, so a vmapped `where` over all environments would waste most of it.
        def any_left(carry: tuple[Array, PyTree]) -> Array:
            return jnp.any(carry[0])

        def reset_some(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            left, batch = carry
            index = jnp.nonzero(left, size=self._resets_at_once, fill_value=self.num_envs)[0]
            existing = jnp.minimum(index, self.num_envs - 1)
            fresh = self._start(batch[0].key[existing], None if self.tasks is None else self.tasks[existing])
            batch = jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), batch, fresh)
            return left.at[index].set(False, mode="drop"), batch

        return jax.lax.while_loop(any_left, reset_some, (ended, batch))[1]


class VectorEnv:
    """A batch over one or several environments, evenly split; element i plays environment i mod environments.

    A multi-task environment draws a task for each episode, or splits its tasks evenly too (`splits_tasks`).
    """

    def __init__(self, envs: list[JitEnvironment], num_envs: int, *, splits_tasks: bool = False) -> None:
        share, rest = divmod(num_envs, len(envs))
        if rest:
            raise ValueError(f"{num_envs} environments cannot be split evenly over {len(envs)} tasks")
        self.envs = [
            AutoReset(env, share, np.arange(share) % len(env.spec.tasks) if splits_tasks and env.spec.tasks else None)
            for env in envs
        ]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        """Begin an episode in every element of the batch.

        Args:
          key: a single one; each element gets its own.

        Returns:
          The state and the first time steps [E, ...].
        """
        keys = self._split(jax.random.split(key, self.num_envs))
        return self._gather([env.reset(k) for env, k in zip(self.envs, keys, strict=True)])

    def step(self, state: PyTree, action: Action) -> tuple[PyTree, TimeStep]:
        """Step every element; where the episode has ended, begin the next one and ignore the action.

        Args:
          state: from `reset` or `step`.
          action: [E, D] and [E, C].

        Returns:
          The new state and time steps [E, ...].
        """
        actions = self._split(action)
        return self._gather([env.step(s, a) for env, s, a in zip(self.envs, state, actions, strict=True)])

    def task_id(self, state: PyTree) -> Array:
        """[E] int32 task of each episode, numbered from the first environment on."""
        first, tasks = 0, []
        for env, env_state in self._env_states(state):
            tasks.append(env.task_id(env_state) + first)
            first += max(1, len(env.spec.tasks))
        return self._select_played(jnp.stack(tasks, axis=1), state)

    def positions(self, state: PyTree) -> Array:
        """[E, 2] uint8 rows and columns, or [E, 0] unless every environment has a floor plan."""
        positions = [env.positions(env_state) for env, env_state in self._env_states(state)]
        return self._select_played(stack_positions(positions, jnp), state)

    def stages_reached(self, state: PyTree) -> Array | None:
        """[E, J] bool stages that each episode has reached, None without stages."""
        reached = stack_stages([env.stages_reached(env_state) for env, env_state in self._env_states(state)], jnp)
        return None if reached is None else self._select_played(reached, state)

    def _env_states(self, state: PyTree) -> Iterable[tuple[AutoReset, EpisodeState]]:
        return zip(self.envs, state, strict=True)

    def _select_played(self, array: Array, state: PyTree) -> Array:
        """Select [E, ...] of the environment that each element plays from one entry per environment (axis 1)."""
        return array.reshape(self.num_envs, *array.shape[2:])  # from [E / envs, envs, ...]

    def _split(self, tree: PyTree) -> list[PyTree]:
        return [jax.tree.map(lambda x, i=i: x[i :: len(self.envs)], tree) for i in range(len(self.envs))]

    def _gather(self, results: list[tuple[EpisodeState, TimeStep]]) -> tuple[tuple[EpisodeState, ...], TimeStep]:
        def interleave(*xs: Array) -> Array:
            return jnp.stack(xs, axis=1).reshape(self.num_envs, *xs[0].shape[1:])

        return tuple(state for state, _ in results), jax.tree.map(interleave, *[step for _, step in results])


class RandomTaskState(NamedTuple):
    """States of all environments for every element of the batch; each element plays one of them."""

    env_states: tuple[EpisodeState, ...]  # one [E, ...] per environment
    current: Array  # [E] number of the environment that is played
    is_last: Array  # [E] whether its episode has ended
    key: Array  # [E] for later draws


class RandomTaskVectorEnv(VectorEnv):
    """A batch in which each element draws its environment uniformly at the start of each episode.

    One program steps all environments for every element and selects one result: a step costs the sum over the
    environments, where a fixed assignment costs their mean. With rooms-4 and rooms-6 acting takes 15% longer, and
    acting and learning together the same time. Environments that are not played keep their state.
    Environments that can be merged into one (`JitEnvironment.merge`) need none of this.
    """

    def __init__(self, envs: list[JitEnvironment], num_envs: int) -> None:
        self.envs = [AutoReset(env, num_envs) for env in envs]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[RandomTaskState, TimeStep]:
        keys, draw_keys, *env_keys = jax.random.split(key, (2 + len(self.envs), self.num_envs))
        starts = [env.reset(k) for env, k in zip(self.envs, env_keys, strict=True)]
        current = self._draw(draw_keys)
        timestep = _select(current, [timestep for _, timestep in starts])
        return RandomTaskState(tuple(state for state, _ in starts), current, timestep.is_last, keys), timestep

    def step(self, state: RandomTaskState, action: Action) -> tuple[RandomTaskState, TimeStep]:
        keys, draw_keys = jnp.moveaxis(jax.vmap(jax.random.split)(state.key), 1, 0)
        current = jnp.where(state.is_last, self._draw(draw_keys), state.current)
        results = []
        for index, (env, old) in enumerate(self._env_states(state)):
            new, timestep = env.step_without_reset(old, action)
            is_current = current == index
            results.append(env.reset_done(state.is_last & is_current, (where_batch(is_current, new, old), timestep)))
        timestep = _select(current, [timestep for _, timestep in results])
        return RandomTaskState(tuple(new for new, _ in results), current, timestep.is_last, keys), timestep

    def _env_states(self, state: RandomTaskState) -> Iterable[tuple[AutoReset, EpisodeState]]:
        return zip(self.envs, state.env_states, strict=True)

    def _select_played(self, array: Array, state: RandomTaskState) -> Array:
        return array[jnp.arange(self.num_envs), state.current]  # from [E, envs, ...]

    def _draw(self, keys: Array) -> Array:
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, len(self.envs)))(keys)


def make_vector_env(envs: list[JitEnvironment], num_envs: int, tasks: str) -> VectorEnv:
    """Batch one or several environments, merged into one environment if possible.

    Args:
      envs: with equal observation and action spaces.
      num_envs: elements of the batch.
      tasks: "fixed" or "random", see `Config.task_sampling`.
    """
    merged, is_random = merge_envs(envs), tasks == "random"
    if is_random and len(merged) > 1:
        return RandomTaskVectorEnv(merged, num_envs)
    return VectorEnv(merged, num_envs, splits_tasks=len(merged) < len(envs) and not is_random)


def _select(current: Array, trees: list[PyTree]) -> PyTree:
    """Select leaves [E, ...] from the tree of the environment that each element plays."""
    result = trees[0]
    for index, tree in enumerate(trees[1:], start=1):
        result = where_batch(current == index, tree, result)
    return result
