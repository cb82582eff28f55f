"""Environments inside jit whose task is drawn at the beginning of each episode (section 4 of the paper)."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from byol_explore.envs.base import AutoReset, Environment, EnvSpec, EpisodeState, VectorEnv, places_of
from byol_explore.types import Action, Array, PyTree, TimeStep


class Environments(Protocol):
    """A batch of environments inside jit over one or several tasks."""

    num_envs: int
    spec: EnvSpec

    def reset(self, key: Array, /) -> tuple[PyTree, TimeStep]: ...
    def step(self, state: PyTree, action: Action, /) -> tuple[PyTree, TimeStep]: ...
    def task(self, state: PyTree, /) -> Array:
        """[E] int32, of the episode that each environment is in."""
        ...

    def places(self, state: PyTree, /) -> Array:
        """[E, 2] rows and columns, or [E, 0] where nobody knows."""
        ...


class DrawnState(NamedTuple):
    """A world of every task for every environment, of which one is played."""

    worlds: tuple[EpisodeState, ...]  # per task, [E, ...]
    task: Array  # [E] that is played
    is_last: Array  # [E] whether its episode has ended
    key: Array  # [E] of the draws to come


class DrawnTasks:
    """A batch of environments, each of which draws its task uniformly at the beginning of each episode.

    In one program all environments do the same, so the worlds of all tasks are stepped for every environment and one
    answer is taken: a step of the worlds costs the sum over the tasks, where a fixed assignment costs their mean. With
    rooms-4 and rooms-6 acting takes 15% longer, and acting and learning together as long as before. Worlds that are
    not played stand still.
    """

    def __init__(self, envs: list[Environment], num_envs: int) -> None:
        self.tasks = [AutoReset(env, num_envs) for env in envs]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[DrawnState, TimeStep]:
        keys, task_keys, *world_keys = jax.random.split(key, (2 + len(self.tasks), self.num_envs))
        starts = [world.reset(k) for world, k in zip(self.tasks, world_keys, strict=True)]
        task = self._draw(task_keys)
        timestep = _chosen(task, [timestep for _, timestep in starts])
        return DrawnState(tuple(state for state, _ in starts), task, timestep.is_last, keys), timestep

    def step(self, state: DrawnState, action: Action) -> tuple[DrawnState, TimeStep]:
        keys, task_keys = jnp.moveaxis(jax.vmap(jax.random.split)(state.key), 1, 0)
        task = jnp.where(state.is_last, self._draw(task_keys), state.task)
        answers = []
        for index, (world, old) in enumerate(zip(self.tasks, state.worlds, strict=True)):
            moved, timestep = world.advance(old, action)
            moved = jax.tree.map(lambda new, kept, mine=task == index: _where(mine, new, kept), moved, old)
            answers.append(world.reset_where(state.is_last & (task == index), (moved, timestep)))
        timestep = _chosen(task, [timestep for _, timestep in answers])
        return DrawnState(tuple(world for world, _ in answers), task, timestep.is_last, keys), timestep

    def task(self, state: DrawnState) -> Array:
        """[E] int32, of the episode that each environment is in."""
        return state.task

    def places(self, state: DrawnState) -> Array:
        """[E, 2] rows and columns, or [E, 0] unless every task has a floor plan."""
        return jnp.take_along_axis(places_of(self.tasks, state.worlds), state.task[:, None, None], axis=1)[:, 0]

    def _draw(self, keys: Array) -> Array:
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, len(self.tasks)))(keys)


def make_vector(envs: list[Environment], num_envs: int, tasks: str) -> Environments:
    """A batch over one or several tasks, fixed or drawn."""
    return DrawnTasks(envs, num_envs) if tasks == "drawn" and len(envs) > 1 else VectorEnv(envs, num_envs)


def _chosen(task: Array, trees: list[PyTree]) -> PyTree:
    """[E, ...] of the tree that each environment's task names."""

    def choose(*xs: Array) -> Array:
        result = xs[0]
        for index, x in enumerate(xs[1:], start=1):
            result = _where(task == index, x, result)
        return result

    return jax.tree.map(choose, *trees)


def _where(mask: Array, new: Array, old: Array) -> Array:
    """By a mask [E] of the leading axis."""
    return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
