"""The rooms: random layouts, the known reward, and random actions that do not find it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xminigrid.core.constants import Colors, Tiles
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.grid.minigrid import DOOR_COLORS, MiniGrid
from byol_explore.envs.registry import make_env
from byol_explore.spaces import Grid
from byol_explore.types import Action, Array, TimeStep
from envs.planner import TOGGLE, find, walk_onto

Step = Callable[[XTimeStep, Action], tuple[XTimeStep, TimeStep]]

GOAL = (Tiles.GOAL, Colors.GREEN)
LAYOUTS = 100


@pytest.fixture(scope="module")
def six_rooms() -> MiniGrid:
    return make_env("rooms-6")


@pytest.fixture(scope="module")
def step(six_rooms: MiniGrid) -> Step:
    return jax.jit(six_rooms.step)


@pytest.fixture(scope="module")
def starts(six_rooms: MiniGrid) -> XTimeStep:
    """Compute the first steps of many episodes."""
    states, _ = jax.jit(jax.vmap(six_rooms.reset))(jax.random.split(jax.random.key(0), LAYOUTS))
    return jax.device_get(states.replace(state=states.state.replace(key=None)))


def test_sizes(six_rooms: MiniGrid, starts: XTimeStep) -> None:
    assert starts.state.grid.shape == (LAYOUTS, 1 + 5 + 1, 6 * (4 + 1) + 1, 2)
    assert six_rooms.spec.max_steps == 20 * 6
    assert six_rooms.spec.observation == Grid(7, 7, (16, 16))
    assert six_rooms.spec.action.discrete == (6,)


def test_walls_stand_around_rooms_of_four_by_five(starts: XTimeStep) -> None:
    tiles = starts.state.grid[..., 0]
    wall_columns = np.arange(0, 31, 5)
    assert (tiles[:, [0, -1]] == Tiles.WALL).all()
    assert (tiles[:, :, [0, -1]] == Tiles.WALL).all()
    inside = np.delete(tiles[:, 1:-1], wall_columns, axis=2)
    assert inside.shape[1:] == (5, 6 * 4)
    assert np.isin(inside, (Tiles.FLOOR, Tiles.GOAL)).all()


def test_one_closed_door_in_each_wall_between_rooms(starts: XTimeStep) -> None:
    tiles, colors = starts.state.grid[..., 0], starts.state.grid[..., 1]
    doors = tiles == Tiles.DOOR_CLOSED
    assert (doors.sum((1, 2)) == 5).all()
    between = doors[:, :, 5:30:5]
    assert (between.sum(1) == 1).all()
    assert not np.isin(tiles, (Tiles.DOOR_OPEN, Tiles.DOOR_LOCKED)).any()
    heights = between.argmax(1)
    assert set(heights.ravel().tolist()) == {1, 2, 3, 4, 5}
    assert len({tuple(row) for row in heights.tolist()}) > LAYOUTS // 2
    assert set(colors[doors].tolist()) == {int(color) for color in DOOR_COLORS}


def test_agent_starts_in_the_first_room_and_the_goal_is_in_the_last(starts: XTimeStep) -> None:
    row, column = starts.state.agent.position.T
    assert set(row.tolist()) == {1, 2, 3, 4, 5}
    assert set(column.tolist()) == {1, 2, 3, 4}
    assert set(starts.state.agent.direction.tolist()) == {0, 1, 2, 3}
    goals = [find(grid, GOAL) for grid in starts.state.grid]
    assert {row for row, _ in goals} == {1, 2, 3, 4, 5}
    assert {column for _, column in goals} == {26, 27, 28, 29}


@pytest.mark.parametrize("episode", range(4))
def test_a_planner_gets_the_reward(episode: int, step: Step, starts: XTimeStep) -> None:
    """It opens the doors and gets 1 - 0.9 x steps / limit at the goal, and nothing before."""
    state = jax.tree.map(lambda x: x[episode], starts)
    grid, agent = state.state.grid, state.state.agent
    way = walk_onto(grid, tuple(agent.position.tolist()), int(agent.direction), find(grid, GOAL))
    assert way.count(TOGGLE) == 5
    for taken, choice in enumerate(way, start=1):
        state, timestep = step(state, Action(jnp.array([choice]), jnp.zeros(0)))
        at_goal = taken == len(way)
        assert bool(timestep.is_last) == at_goal
        assert timestep.discount == (0.0 if at_goal else 1.0)
        assert timestep.reward == pytest.approx(1.0 - 0.9 * taken / 120 if at_goal else 0.0, abs=1e-6)


def test_random_actions_never_reach_the_goal(six_rooms: MiniGrid) -> None:
    """Every episode is truncated at the limit, with discount 1."""
    count, limit = 512, six_rooms.spec.max_steps
    actions = np.random.default_rng(0).integers(0, 6, (limit, count, 1), np.int32)

    def act(state: XTimeStep, choice: Array) -> tuple[XTimeStep, TimeStep]:
        state, timestep = jax.vmap(six_rooms.step)(state, Action(choice, jnp.zeros((count, 0))))
        return state, timestep._replace(observation=None)

    @jax.jit
    def episodes(key: Array) -> TimeStep:
        state, _ = jax.vmap(six_rooms.reset)(jax.random.split(key, count))
        return jax.lax.scan(act, state, actions)[1]

    steps = jax.tree.map(np.asarray, episodes(jax.random.key(0)))
    assert (steps.reward == 0.0).all()
    assert (steps.discount == 1.0).all()
    assert not steps.is_last[:-1].any()
    assert steps.is_last[-1].all()
    assert not steps.is_first.any()


def test_picture(six_rooms: MiniGrid, starts: XTimeStep) -> None:
    picture = six_rooms.render(jax.tree.map(lambda x: x[0], starts))
    assert picture.dtype == np.uint8
    assert picture.shape == (7 * 32, 31 * 32, 3)
