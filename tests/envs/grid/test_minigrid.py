"""XLand-MiniGrid's worlds under our protocol: the shapes of all, steps of some."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xminigrid
from xminigrid.core.goals import EmptyGoal
from xminigrid.types import TimeStep as XTimeStep

from byol_explore.envs.grid.minigrid import MiniGrid
from byol_explore.envs.registry import make_env
from byol_explore.types import Action, Array, PyTree, TimeStep

Step = Callable[[XTimeStep, Action], tuple[XTimeStep, TimeStep]]

BATCH = 3
IDS = xminigrid.registered_environments()
NO_GOAL = {"MiniGrid-Playground"}  # empty in the original too: exploration without a reward


@pytest.fixture(scope="module")
def envs() -> dict[str, MiniGrid]:
    return {name: make_env(name) for name in IDS}


@pytest.fixture(scope="module")
def starts(envs: dict[str, MiniGrid]) -> dict[str, tuple[PyTree, TimeStep]]:
    """Compute the shapes of a batch of first steps."""
    keys = jax.random.split(jax.random.key(0), BATCH)
    return {name: jax.eval_shape(jax.vmap(env.reset), keys) for name, env in envs.items()}


def assert_timestep_shapes(env: MiniGrid, timestep: TimeStep) -> None:
    expected = env.spec.observation
    assert (timestep.observation.shape, timestep.observation.dtype) == ((BATCH, *expected.shape), expected.dtype)
    for scalar, dtype in [(timestep.reward, jnp.float32), (timestep.discount, jnp.float32),
                          (timestep.is_first, jnp.bool_), (timestep.is_last, jnp.bool_)]:  # fmt: skip
        assert (scalar.shape, scalar.dtype) == ((BATCH,), dtype)


@pytest.mark.parametrize("name", IDS)
def test_every_world_resets(name: str, envs: dict[str, MiniGrid], starts: dict[str, tuple[PyTree, TimeStep]]) -> None:
    assert_timestep_shapes(envs[name], starts[name][1])
    assert envs[name].spec.name == name
    assert envs[name].spec.action.discrete == (6,)
    assert envs[name].spec.max_steps > 0


@pytest.mark.slow
def test_every_world_steps(envs: dict[str, MiniGrid], starts: dict[str, tuple[PyTree, TimeStep]]) -> None:
    """Worlds with one grid size and view size share the program of a step, which is slow to trace: once per kind."""
    kinds = defaultdict(list)
    for name, env in envs.items():
        grid, constants = starts[name][0].state.grid.shape, tuple(env._constants)
        kinds[type(env.env).step, grid, env.params.view_size, constants].append(name)
    action = Action(jnp.zeros((BATCH, 1), jnp.int32), jnp.zeros((BATCH, 0)))
    for first, *others in kinds.values():
        state, timestep = jax.eval_shape(jax.vmap(envs[first].step), starts[first][0], action)
        assert_timestep_shapes(envs[first], timestep)
        for name in (first, *others):
            same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, starts[name][0])
            assert all(jax.tree.leaves(same)), name


@pytest.mark.parametrize("name", IDS)
def test_every_world_but_the_playground_has_a_goal(name: str, envs: dict[str, MiniGrid]) -> None:
    """Goals that are drawn for each episode are not constant; the memory worlds pay by position and not by goal."""
    goal = envs[name]._constants.get("goal_encoding")
    empty = goal is not None and np.array_equal(goal, EmptyGoal().encode())
    assert empty == (name in NO_GOAL or name.startswith("MiniGrid-Memory"))


def rollouts(env: MiniGrid, steps: list[Step], actions: np.ndarray) -> list[PyTree]:
    """Return all states and time steps of one batch under actions [T, B], for each step function."""

    def act(step: Step, state: XTimeStep, choice: Array) -> tuple[XTimeStep, PyTree]:
        state, timestep = jax.vmap(step)(state, Action(choice[:, None], jnp.zeros((len(choice), 0))))
        return state, (state.state.grid, state.state.agent, state.state.goal_encoding, timestep)

    @jax.jit
    def run(key: Array) -> list[PyTree]:
        state, _ = jax.vmap(env.reset)(jax.random.split(key, actions.shape[1]))
        return [jax.lax.scan(partial(act, step), state, actions)[1] for step in steps]

    return jax.device_get(run(jax.random.key(0)))


@pytest.mark.parametrize("name", ["MiniGrid-Empty-5x5", "MiniGrid-MemoryS8", "MiniGrid-Unlock"])
def test_constant_goals_and_rules_do_not_change_steps(name: str, envs: dict[str, MiniGrid]) -> None:
    """Compare with the engine without constants, along random actions that find some rewards."""
    env = envs[name]

    def plain_step(state: XTimeStep, action: Action) -> tuple[XTimeStep, TimeStep]:
        inner = env.env.step(env.params, state, action.discrete[0])
        return inner, env._timestep(inner)

    actions = np.random.default_rng(0).integers(0, 6, (200, 64), np.int32)
    ours, plain = rollouts(env, [env.step, plain_step], actions)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), ours, plain)  # to rounding
    assert (ours[-1].reward > 0.0).any()


def test_goals_and_rules_of_all_episodes_are_constants(envs: dict[str, MiniGrid]) -> None:
    """In Unlock the goal is a door of the episode's colour and position, elsewhere an object of the episode."""
    drawn = {name for name, env in envs.items() if set(env._constants) == {"rule_encoding"}}
    assert drawn == {"MiniGrid-Unlock", "MiniGrid-UnlockPickUp", "MiniGrid-BlockedUnlockPickUp"}
    assert all(set(envs[name]._constants) == {"goal_encoding", "rule_encoding"} for name in set(IDS) - drawn)


def test_a_smaller_view_is_padded_around_the_agent() -> None:
    """The agent's cell stays in the middle of the bottom row; the added cells are unseen."""
    name = "MiniGrid-MemoryS8"
    small = make_env(name)
    large = MiniGrid(name, small.env, small.params, view_size=7)
    assert (small.view_size, large.spec.observation.shape) == (3, (7, 7, 2))
    _, before = jax.jit(small.reset)(jax.random.key(0))
    _, after = jax.jit(large.reset)(jax.random.key(0))
    np.testing.assert_array_equal(after.observation[4:, 2:5], before.observation)
    np.testing.assert_array_equal(after.observation[6, 3], before.observation[2, 1])
    border = np.array(after.observation)
    border[4:, 2:5] = 0
    assert not border.any()
    assert before.observation.all()
