"""Corridors and memory: the layout and the reward at the end of the path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xminigrid.core.constants import Colors, Tiles

from byol_explore.envs.grid.minigrid import LEG, MiniGrid, corridor_layout
from byol_explore.envs.registry import make_env
from byol_explore.errors import UserError
from byol_explore.types import Action
from envs.planner import FORWARD, find, walk_onto

EAST = 1


@pytest.mark.parametrize("legs", [1, 2, 5])
def test_the_path_through_a_corridor_visits_all_cells(legs: int) -> None:
    layout = corridor_layout(legs)
    goal = find(layout, (Tiles.GOAL, Colors.GREEN))
    way = walk_onto(layout, (1, 1), EAST, goal)
    open_cells = int(np.sum(layout[..., 0] != Tiles.WALL))
    assert open_cells == legs * LEG + legs - 1
    assert way.count(FORWARD) == open_cells - 1


def play(env: MiniGrid, state: object, actions: list[int]) -> list[float]:
    step, rewards = jax.jit(env.step), []
    for action in actions:
        state, timestep = step(state, Action(jnp.asarray([action]), jnp.zeros((0,))))
        rewards.append(float(timestep.reward))
    assert bool(timestep.is_last)
    return rewards


def test_the_end_of_the_corridor_pays() -> None:
    env = make_env("corridor-2")
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    agent, grid = state.state.agent, np.asarray(state.state.grid)
    start = tuple(np.asarray(agent.position).tolist())
    assert start == (1, 1)
    assert tuple(np.asarray(env.position(state)).tolist()) == start
    way = walk_onto(grid, start, int(agent.direction), find(grid, (Tiles.GOAL, Colors.GREEN)))
    assert 2 * len(way) < env.spec.max_steps == 60
    rewards = play(env, state, way)
    assert rewards[-1] > 0
    assert not any(rewards[:-1])
    assert env.floor_plan() == ["###########", "#.........#", "#########.#", "#G........#", "###########"]


def test_memory_starts_beside_the_object_and_pays_for_the_same_object() -> None:
    env = make_env("memory-11")
    reset = jax.jit(env.reset)
    paid = set()
    for seed in range(6):
        state, _ = reset(jax.random.key(seed))
        grid, carry = np.asarray(state.state.grid), state.state.carry
        assert tuple(np.asarray(env.position(state)).tolist()) == (3, 1)
        choice = tuple(np.asarray(carry.success_pos).tolist())
        beside = 1 if choice[0] == 2 else 5
        assert tuple(grid[beside, choice[1]]) == tuple(grid[2, 1]), "the object of the first room is not there"
        paid.add(beside)
    assert paid == {1, 5}
    assert play(env, state, walk_onto(grid, (3, 1), EAST, choice))[-1] > 0
    assert env.spec.max_steps == 44


@pytest.mark.parametrize(
    ("name", "accepted"), [("corridor-0", "1 to 50"), ("memory-7", "8 to 128"), ("rooms-1", "2 to 50")]
)
def test_sizes_out_of_range_are_rejected(name: str, accepted: str) -> None:
    with pytest.raises(UserError, match=f"{name}.*{accepted}"):
        make_env(name)
