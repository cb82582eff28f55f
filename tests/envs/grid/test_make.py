"""The default task of the XLand worlds can be solved in rooms of every kind, and pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xminigrid.core.constants import Tiles

from byol_explore.envs.grid.make import BALL, SQUARE, STAR
from byol_explore.envs.grid.minigrid import MiniGrid
from byol_explore.envs.registry import make_env
from byol_explore.types import Action, TimeStep
from envs.planner import MOVES, PICK_UP, PUT_DOWN, Cell, ahead, find, walk_up_to


class Player:
    """One episode and its time steps so far."""

    def __init__(self, env: MiniGrid, seed: int) -> None:
        self._step = jax.jit(env.step)
        self.state, first = jax.jit(env.reset)(jax.random.key(seed))
        self.steps = [first]

    @property
    def grid(self) -> np.ndarray:
        return np.asarray(self.state.state.grid)

    @property
    def carried(self) -> tuple[int, ...]:
        return tuple(self.state.state.agent.pocket.tolist())

    def act(self, choice: int) -> TimeStep:
        self.state, timestep = self._step(self.state, Action(jnp.array([choice]), jnp.zeros(0)))
        self.steps.append(timestep)
        return timestep

    def face(self, target: Cell) -> None:
        agent = self.state.state.agent
        for choice in walk_up_to(self.grid, tuple(agent.position.tolist()), int(agent.direction), target):
            self.act(choice)
        agent = self.state.state.agent
        assert ahead(tuple(agent.position.tolist()), int(agent.direction)) == target

    def free_beside(self, cell: Cell) -> list[Cell]:
        standing = tuple(self.state.state.agent.position.tolist())
        around = [(cell[0] + row, cell[1] + column) for row, column in MOVES]
        return [place for place in around if self.grid[place][0] == Tiles.FLOOR and place != standing]


@pytest.mark.parametrize(("name", "seed"), [("R1-9x9", 0), ("R4-9x9", 1), ("R9-16x16", 3)])
def test_star_can_be_made_and_pays(name: str, seed: int) -> None:
    env = make_env(f"XLand-MiniGrid-{name}")
    player = Player(env, seed)
    player.face(find(player.grid, BALL))
    player.act(PICK_UP)
    assert player.carried == BALL

    square = find(player.grid, SQUARE)
    player.face(player.free_beside(square)[0])
    player.act(PUT_DOWN)
    assert find(player.grid, STAR) == square
    assert not np.isin(player.grid[..., 0], (BALL[0], SQUARE[0])).any()

    player.face(square)
    assert all(step.reward == 0.0 and not step.is_last for step in player.steps)
    last = player.act(PICK_UP)
    taken = len(player.steps) - 1
    assert bool(last.is_last)
    assert last.discount == 0.0
    assert last.reward == pytest.approx(1.0 - 0.9 * taken / env.spec.max_steps, abs=1e-6)
