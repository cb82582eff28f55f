"""Environments inside jit whose task is drawn at the beginning of each episode (section 4 of the paper)."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from byol_explore.envs.base import (
    AutoReset,
    Environment,
    EnvSpec,
    EpisodeState,
    VectorEnv,
    places_of,
    reached_in_all,
    tasks_of_all,
)
from byol_explore.envs.tasks import join
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

    def reached(self, state: PyTree, /) -> Array | None:
        """[E, S] which stages episodes have reached, None where no world has any."""
        ...


class DrawnState(NamedTuple):
    """All worlds for every environment, of which one is played."""

    worlds: tuple[EpisodeState, ...]  # [E, ...] each
    played: Array  # [E] the number of that one
    is_last: Array  # [E] whether its episode has ended
    key: Array  # [E] of the draws to come


class DrawnTasks:
    """A batch of environments, each of which draws its world uniformly at the beginning of each episode.

    In one program all environments do the same, so all worlds are stepped for every environment and one answer is
    taken: a step costs the sum over the worlds, where a fixed assignment costs their mean. With rooms-4 and rooms-6
    acting takes 15% longer, and acting and learning together as long as before. Worlds that are not played stand still.
    Tasks that can be one world (`Joinable`) need none of this.
    """

    def __init__(self, envs: list[Environment], num_envs: int) -> None:
        self.worlds = [AutoReset(env, num_envs) for env in envs]
        self.num_envs = num_envs
        self.spec = envs[0].spec

    def reset(self, key: Array) -> tuple[DrawnState, TimeStep]:
        keys, draw_keys, *world_keys = jax.random.split(key, (2 + len(self.worlds), self.num_envs))
        starts = [world.reset(k) for world, k in zip(self.worlds, world_keys, strict=True)]
        played = self._draw(draw_keys)
        timestep = _chosen(played, [timestep for _, timestep in starts])
        return DrawnState(tuple(state for state, _ in starts), played, timestep.is_last, keys), timestep

    def step(self, state: DrawnState, action: Action) -> tuple[DrawnState, TimeStep]:
        keys, draw_keys = jnp.moveaxis(jax.vmap(jax.random.split)(state.key), 1, 0)
        played = jnp.where(state.is_last, self._draw(draw_keys), state.played)
        answers = []
        for index, (world, old) in enumerate(zip(self.worlds, state.worlds, strict=True)):
            moved, timestep = world.advance(old, action)
            moved = jax.tree.map(lambda new, kept, mine=played == index: _where(mine, new, kept), moved, old)
            answers.append(world.reset_where(state.is_last & (played == index), (moved, timestep)))
        timestep = _chosen(played, [timestep for _, timestep in answers])
        return DrawnState(tuple(world for world, _ in answers), played, timestep.is_last, keys), timestep

    def task(self, state: DrawnState) -> Array:
        """[E] int32, of the episode that each environment is in."""
        if not any(world.spec.tasks for world in self.worlds):
            return state.played
        return jnp.take_along_axis(tasks_of_all(self.worlds, state.worlds), state.played[:, None], axis=1)[:, 0]

    def places(self, state: DrawnState) -> Array:
        """[E, 2] rows and columns, or [E, 0] unless every world has a floor plan."""
        return _of_played(places_of(self.worlds, state.worlds), state)

    def reached(self, state: DrawnState) -> Array | None:
        """[E, S] which stages episodes have reached, None where no world has any."""
        reached = reached_in_all(self.worlds, state.worlds)
        return None if reached is None else _of_played(reached, state)

    def _draw(self, keys: Array) -> Array:
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, len(self.worlds)))(keys)


def make_vector(envs: list[Environment], num_envs: int, tasks: str) -> Environments:
    """A batch over one or several environments, whose tasks are fixed or drawn; in one world if they can be one."""
    worlds, is_drawn = join(envs), tasks == "drawn"
    if is_drawn and len(worlds) > 1:
        return DrawnTasks(worlds, num_envs)
    return VectorEnv(worlds, num_envs, splits_tasks=len(worlds) < len(envs) and not is_drawn)


def _of_played(everywhere: Array, state: DrawnState) -> Array:
    """[E, ...] of [E, worlds, ...]."""
    return jnp.take_along_axis(everywhere, state.played[:, None, None], axis=1)[:, 0]


def _chosen(played: Array, trees: list[PyTree]) -> PyTree:
    """[E, ...] of the tree of the world that each environment plays."""

    def choose(*xs: Array) -> Array:
        result = xs[0]
        for index, x in enumerate(xs[1:], start=1):
            result = _where(played == index, x, result)
        return result

    return jax.tree.map(choose, *trees)


def _where(mask: Array, new: Array, old: Array) -> Array:
    """By a mask [E] of the leading axis."""
    return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
