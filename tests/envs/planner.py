"""A planner for the grid worlds: shortest action sequences to a cell, through closed doors."""

from collections import deque

import numpy as np
from xminigrid.core.constants import Tiles

FORWARD, CLOCKWISE, COUNTERCLOCKWISE, PICK_UP, PUT_DOWN, TOGGLE = range(6)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left

Cell = tuple[int, int]


def find(grid: np.ndarray, tile: tuple[int, int]) -> Cell:
    """Return the only cell with this tile and colour."""
    ((row, column),) = np.argwhere((grid == np.asarray(tile)).all(-1))
    return int(row), int(column)


def ahead(position: Cell, direction: int) -> Cell:
    """Return the cell in front of the agent."""
    row, column = MOVES[direction]
    return position[0] + row, position[1] + column


def walk_onto(grid: np.ndarray, position: Cell, direction: int, target: Cell) -> list[int]:
    """Return the shortest action sequence onto a cell, through doors; raise an AssertionError without one."""
    return _search(grid, position, direction, target, onto=True)


def walk_up_to(grid: np.ndarray, position: Cell, direction: int, target: Cell) -> list[int]:
    """Return the shortest action sequence to the front of a cell, facing it."""
    return _search(grid, position, direction, target, onto=False)


def _search(grid: np.ndarray, position: Cell, direction: int, target: Cell, *, onto: bool) -> list[int]:
    """Search breadth first over (cell, direction). A closed door counts as one step, although it takes two."""
    start = (position, direction)
    ways: dict[tuple[Cell, int], list[int]] = {start: []}
    queue = deque([start])
    while queue:
        here, facing = queue.popleft()
        way = ways[here, facing]
        if (here if onto else ahead(here, facing)) == target:
            return way
        for actions, after in _choices(grid, here, facing):
            if after not in ways:
                ways[after] = way + actions
                queue.append(after)
    raise AssertionError(f"no path from {position} to {target}")


def _choices(grid: np.ndarray, here: Cell, facing: int) -> list[tuple[list[int], tuple[Cell, int]]]:
    turns = [([CLOCKWISE], (here, (facing + 1) % 4)), ([COUNTERCLOCKWISE], (here, (facing - 1) % 4))]
    front = ahead(here, facing)
    if not all(0 <= i < size for i, size in zip(front, grid.shape[:2], strict=True)):
        return turns
    tile = grid[front][0]
    if tile in (Tiles.FLOOR, Tiles.GOAL, Tiles.DOOR_OPEN):
        return [([FORWARD], (front, facing)), *turns]
    if tile == Tiles.DOOR_CLOSED:
        return [([TOGGLE, FORWARD], (front, facing)), *turns]
    return turns
