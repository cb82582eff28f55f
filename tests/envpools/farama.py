"""Farama's MiniGrid in the state of one of EnvPool's environments, and a player that solves it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import gymnasium
import minigrid  # noqa: F401  # registers its environments
import numpy as np
from minigrid.core.constants import DIR_TO_VEC, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Box, WorldObj
from minigrid.minigrid_env import MiniGridEnv

__all__ = ["Unsolvable", "copy_state", "crop", "make", "solve", "way_to_goal"]

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
Cell = tuple[int, int]


class Unsolvable(Exception):
    """The player finds no way, for example because random actions have put something into it."""


def make(env_id: str) -> MiniGridEnv:
    """Make Farama's environment of this ID, without wrappers."""
    env = gymnasium.make(env_id).unwrapped
    assert isinstance(env, MiniGridEnv)
    return env


def copy_state(env: MiniGridEnv, state: Any) -> None:
    """Put Farama's environment into a state at the start of an episode, as EnvPool's `debug_states` describes it."""
    env.reset(seed=0)
    objects, contents = (crop(env, state, each) for each in (state.grid, state.grid_contains))
    env.grid = Grid(env.width, env.height)
    for x, y in np.ndindex(objects.shape[:2]):
        thing = WorldObj.decode(*map(int, objects[x, y]))
        if isinstance(thing, Box) and contents[x, y, 0] > OBJECT_TO_IDX["empty"]:
            thing.contains = WorldObj.decode(*map(int, contents[x, y]))
        if thing is not None:
            env.put_obj(thing, x, y)
    env.agent_pos, env.agent_dir = tuple(state.agent_pos), int(state.agent_dir)
    env.mission, env.carrying, env.step_count = state.mission, None, 0
    if tuple(state.target_pos) != (-1, -1):  # to be picked up
        env.obj = env.grid.get(*state.target_pos)


def crop(env: MiniGridEnv, state: Any, cells: Any) -> np.ndarray:
    """Return EnvPool's cells [W, H, 3], in the size of Farama's grid.

    EnvPool's ObstructedMaze-1Dl, -1Dlh and -1Dlhb have 3 x 3 rooms, of which seven have no door; Farama's have the two
    others alone.
    """
    whole = np.asarray(cells).reshape(state.width, state.height, 3)
    assert (state.width, state.height) == (env.width, env.height) or "obstructed_maze" in state.env_name
    return whole[: env.width, : env.height]


def solve(env: MiniGridEnv) -> Iterator[int]:
    """Yield the actions that solve the task; the environment must take each before the next is asked for."""
    target = getattr(env, "obj", None)
    while True:
        goal = target.cur_pos if target is not None else _find(env, "goal")
        if (path := _path(env, tuple(goal))) is not None:
            break
        yield from _unlock(env)
    if target is not None and env.carrying is not None:
        yield from _put_down(env)
        path = _path(env, tuple(goal))
    if path is None:
        raise Unsolvable
    yield from _walk(env, path)
    yield PICKUP if target is not None else FORWARD


def way_to_goal(env: MiniGridEnv) -> list[Cell] | None:
    """Return the shortest way to the goal through doors that are not locked; None without one."""
    return _path(env, _find(env, "goal"))


def _unlock(env: MiniGridEnv) -> Iterator[int]:
    """Open a locked door within reach whose key is within reach, alone or in a box."""
    for door in _things(env, "door"):
        if not door.is_locked or _path(env, door.cur_pos) is None:
            continue
        held = env.carrying
        if held is None or held.type != "key" or held.color != door.color:
            key = next((each for each in _keys(env, door.color) if _path(env, each) is not None), None)
            if key is None:
                continue
            yield from _fetch(env, key)
        path = _path(env, door.cur_pos)
        if path is None:
            raise Unsolvable
        yield from _walk(env, path)
        yield TOGGLE
        return
    raise Unsolvable


def _fetch(env: MiniGridEnv, cell: Cell) -> Iterator[int]:
    if env.carrying is not None:
        yield from _put_down(env)
    path = _path(env, cell)
    if path is None:
        raise Unsolvable
    yield from _walk(env, path)
    if env.grid.get(*cell).type == "box":
        yield TOGGLE
    yield PICKUP


def _put_down(env: MiniGridEnv) -> Iterator[int]:
    for _ in range(4):
        if env.grid.get(*env.front_pos) is None:
            yield DROP
            return
        yield RIGHT
    raise Unsolvable


def _walk(env: MiniGridEnv, path: list[Cell]) -> Iterator[int]:
    """Yield the actions until the agent stands before the last cell of a path and looks at it."""
    for cell in path:
        step = tuple(np.subtract(cell, env.agent_pos))
        way = next(index for index, vector in enumerate(DIR_TO_VEC) if tuple(vector) == step)
        while env.agent_dir != way:
            yield LEFT if (env.agent_dir - way) % 4 == 1 else RIGHT
        if cell == path[-1]:
            return
        thing = env.grid.get(*cell)
        if thing is not None and thing.type == "door" and not thing.is_open:
            yield TOGGLE
        yield FORWARD


def _path(env: MiniGridEnv, goal: Cell) -> list[Cell] | None:
    """Return the shortest way to a cell through free cells and doors that are not locked; None without one."""
    start = tuple(map(int, env.agent_pos))
    before: dict[Cell, Cell] = {start: start}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        if cell == goal:
            path = []
            while cell != start:
                path.append(cell)
                cell = before[cell]
            return path[::-1]
        thing = env.grid.get(*cell)
        if thing is not None and not (thing.type == "door" and not thing.is_locked) and cell != start:
            continue
        for vector in DIR_TO_VEC:
            neighbor = cell[0] + int(vector[0]), cell[1] + int(vector[1])
            if neighbor not in before:
                before[neighbor] = cell
                queue.append(neighbor)
    return None


def _things(env: MiniGridEnv, kind: str) -> list[Any]:
    found = []
    for x in range(env.grid.width):
        for y in range(env.grid.height):
            thing = env.grid.get(x, y)
            if thing is not None and thing.type == kind:
                thing.cur_pos = (x, y)
                found.append(thing)
    return found


def _find(env: MiniGridEnv, kind: str) -> Cell:
    return _things(env, kind)[0].cur_pos


def _keys(env: MiniGridEnv, color: str) -> list[Cell]:
    """Return the cells of keys of a colour, and of boxes with one."""
    keys = [key.cur_pos for key in _things(env, "key") if key.color == color]
    boxes = [box for box in _things(env, "box") if box.contains is not None and box.contains.type == "key"]
    return keys + [box.cur_pos for box in boxes if box.contains.color == color]
