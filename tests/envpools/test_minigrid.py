"""EnvPool's MiniGrid against Farama's, step for step.

EnvPool draws its layouts with another generator, so no seed gives both the same one. Every episode therefore begins in
EnvPool; Farama's environment gets its layout, and both take the same actions: random ones, then those of a player that
solves the task. Compared at every step: the observation as our networks get it (image, direction, mission), the reward,
the discount, the end of the episode and its kind, and the place of the agent. Layouts are compared by statistics.
"""

from collections.abc import Iterator
from typing import Any

import envpool
import numpy as np
import pytest
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX

from byol_explore.envs.envpool_env import MINIGRID_SYMBOLS, EnvPoolEnv
from byol_explore.envs.gymnasium_env import GymnasiumEnv
from byol_explore.envs.gymnasium_spaces import tokenize
from byol_explore.errors import UserError
from byol_explore.types import Action, TimeStep
from envpools.farama import Unsolvable, copy_state, crop, make, solve, way_to_goal

TASKS = (
    "MiniGrid-KeyCorridorS3R2-v0",
    "MiniGrid-KeyCorridorS3R3-v0", "MiniGrid-KeyCorridorS4R3-v0", "MiniGrid-ObstructedMaze-1Dlh-v0",
    "MiniGrid-ObstructedMaze-2Dlh-v0", "MiniGrid-LockedRoom-v0", "MiniGrid-DoorKey-16x16-v0",
)  # fmt: skip
EPISODES = 24
LAYOUTS = 400


class Pair:
    """One environment of EnvPool through our adapter, and Farama's in the same state."""

    def __init__(self, env_id: str, seed: int) -> None:
        self.env = EnvPoolEnv(env_id, {"num_threads": 1})
        self.pool = self.env.make_vector_env(1, seed)
        self.farama = make(env_id)
        self.compare_start(self.pool.reset())

    def compare_start(self, timestep: TimeStep) -> None:
        """Give Farama's environment the new layout; compare the first time step."""
        [state] = self.pool._pool.debug_states([0])
        copy_state(self.farama, state)
        assert self.farama.max_steps == state.max_steps == self.env.spec.max_steps
        assert timestep.is_first[0]
        assert (timestep.reward[0], timestep.discount[0]) == (0.0, 1.0)
        assert not timestep.is_last[0]
        self._compare(timestep, self.farama.gen_obs())

    def step(self, choice: int) -> TimeStep:
        """Step both with an action and compare everything that they answer."""
        timestep = self._act(choice)
        observation, reward, terminated, truncated, _ = self.farama.step(choice)
        # EnvPool computes 1 - 0.9 t / T in single precision: the last bit may differ.
        assert abs(timestep.reward[0] - np.float32(reward)) <= np.spacing(np.float32(1.0)) / 2
        assert timestep.is_last[0] == (terminated or truncated)
        assert timestep.discount[0] == (0.0 if terminated else 1.0)
        assert not timestep.is_first[0]
        self._compare(timestep, observation)
        return timestep

    def next_episode(self) -> None:
        self.compare_start(self._act(0))

    def _act(self, choice: int) -> TimeStep:
        return self.pool.step(Action(np.asarray([[choice]], np.int32), np.zeros((1, 0), np.float32)))

    def _compare(self, timestep: TimeStep, observation: dict[str, Any]) -> None:
        ours = timestep.observation
        np.testing.assert_array_equal(ours["image"][0], observation["image"])
        assert np.argmax(ours["direction"][0]) == observation["direction"]
        assert ours["direction"][0].sum() == 1.0
        np.testing.assert_array_equal(ours["mission"][0], tokenize([observation["mission"]])[0])
        [state] = self.pool._pool.debug_states([0])
        assert tuple(state.agent_pos) == tuple(self.farama.agent_pos)
        assert state.mission == observation["mission"]


def choices(pair: Pair, random: np.random.Generator, explore: int) -> Iterator[int]:
    """Yield some random actions, then those of the player, and random ones if it finds no way."""
    for _ in range(explore):
        yield int(random.integers(7))
    try:
        yield from solve(pair.farama)
    except Unsolvable:
        while True:
            yield int(random.integers(7))


@pytest.mark.parametrize("env_id", TASKS)
def test_equal_actions_have_equal_outcomes(env_id: str) -> None:
    pair, random = Pair(env_id, seed=5), np.random.default_rng(0)
    kinds = {"limit": iter(lambda: int(random.integers(7)), None)}  # of actions
    outcomes = dict.fromkeys(("limit", "explored", "solved"), 0)
    for episode in range(EPISODES):
        kind = "limit" if episode == 0 else "explored" if episode % 2 else "solved"
        explore = int(random.integers(pair.env.spec.max_steps // 8)) if kind == "explored" else 0
        for choice in kinds.get(kind, choices(pair, random, explore)):
            timestep = pair.step(choice)
            if timestep.is_last[0]:
                break
        assert timestep.is_last[0], "the player stopped before the end of the episode"
        outcomes[kind] += int(timestep.reward[0] > 0)
        pair.next_episode()
    pair.pool.close()
    assert outcomes["limit"] == 0
    assert outcomes["solved"] >= EPISODES // 2 - 3  # the player fails in 2 to 5% of the mazes, Farama's own as well
    assert outcomes["explored"] >= EPISODES // 4


@pytest.mark.parametrize("env_id", TASKS)
def test_spaces_are_those_of_the_gymnasium_family(env_id: str) -> None:
    ours, farama = EnvPoolEnv(env_id).spec, GymnasiumEnv(f"minigrid:{env_id}").spec
    assert ours.observation == farama.observation
    assert ours.action == farama.action


def test_symbols_are_those_of_farama() -> None:
    states = max(len(STATE_TO_IDX), len(DIR_TO_VEC))
    assert (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), states) == MINIGRID_SYMBOLS


def layout_features(grid: np.ndarray, pos: tuple[int, int], direction: int) -> list[float]:
    """Count the objects of each kind, colour and state of doors; add place and direction of the agent."""
    kinds, colors, states = grid[..., 0], grid[..., 1], grid[..., 2]
    doors = kinds == OBJECT_TO_IDX["door"]
    counts = [np.sum(kinds == kind) for kind in range(len(OBJECT_TO_IDX))]
    counts += [np.sum(doors & (colors == color)) for color in range(len(COLOR_TO_IDX))]
    counts += [np.sum(doors & (states == state)) for state in range(len(STATE_TO_IDX))]
    places = [np.mean(axis) for axis in np.nonzero(doors)]
    return [*map(float, counts), *map(float, places), *map(float, pos), *(float(direction == way) for way in range(4))]


@pytest.mark.parametrize("env_id", TASKS)
def test_layouts_have_equal_statistics(env_id: str) -> None:
    """Means of 400 layouts each differ by less than five standard errors."""
    pool = EnvPoolEnv(env_id).make_vector_env(LAYOUTS, seed=1)
    pool.reset()
    farama, ours, theirs = make(env_id), [], []
    for seed, state in enumerate(pool._pool.debug_states(list(range(LAYOUTS)))):
        ours.append(layout_features(crop(farama, state, state.grid), tuple(state.agent_pos), state.agent_dir))
        farama.reset(seed=seed)
        theirs.append(layout_features(farama.grid.encode(), tuple(farama.agent_pos), farama.agent_dir))
    pool.close()
    first, second = np.asarray(ours), np.asarray(theirs)
    error = np.sqrt((first.var(axis=0) + second.var(axis=0)) / LAYOUTS)
    difference = np.abs(first.mean(axis=0) - second.mean(axis=0))
    assert np.all(difference <= 5.0 * error), (env_id, difference / np.maximum(error, 1e-9))
    assert np.sum(first.std(axis=0) > 0) >= 3, "layouts differ from each other"


@pytest.mark.parametrize("env_id", ["MiniGrid-MultiRoom-N4-S5-v0", "MiniGrid-MultiRoom-N6-v0"])
def test_most_layouts_of_multi_room_have_no_way_to_the_goal(env_id: str) -> None:
    """The reason why these are refused: if this fails, EnvPool was mended, and `REFUSED` needs the entry no more."""
    with pytest.raises(UserError, match="most layouts have no way to the goal; Farama's own is gymnasium:minigrid:"):
        EnvPoolEnv(env_id)
    pool, farama = envpool.make(env_id, env_type="gymnasium", num_envs=LAYOUTS, seed=1), make(env_id)
    pool.reset()
    ways = {"envpool": 0, "farama": 0}
    for seed, state in enumerate(pool.debug_states(list(range(LAYOUTS)))):
        copy_state(farama, state)
        ways["envpool"] += way_to_goal(farama) is not None
        farama.reset(seed=seed)
        ways["farama"] += way_to_goal(farama) is not None
    pool.close()
    assert ways["farama"] == LAYOUTS
    assert ways["envpool"] < LAYOUTS / 2


def test_environments_of_a_pool_have_their_own_places_in_the_batch() -> None:
    """Environment i of a pool with several threads acts by row i of the actions."""
    env = EnvPoolEnv("MiniGrid-Empty-8x8-v0", {"num_threads": 2})
    pool = env.make_vector_env(8, seed=0)
    before = np.argmax(pool.reset().observation["direction"], axis=1)
    turns = np.asarray([0, 1, 0, 0, 1, 1, 0, 1])  # left, right
    for _ in range(200):
        timestep = pool.step(Action(turns[:, None].astype(np.int32), np.zeros((8, 0), np.float32)))
        before = (before + np.where(turns == 1, 1, -1)) % 4
        np.testing.assert_array_equal(np.argmax(timestep.observation["direction"], axis=1), before)
    pool.close()


def test_seeds_decide_the_layouts() -> None:
    def images(seed: int) -> np.ndarray:
        pool = EnvPoolEnv(TASKS[2]).make_vector_env(32, seed)
        image = np.array(pool.reset().observation["image"])
        pool.close()
        return image

    np.testing.assert_array_equal(images(3), images(3))
    assert not np.array_equal(images(3), images(4))
    assert not np.array_equal(images(3)[1:], images(4)[:-1]), "close seeds share no environment"


def test_box_spaces_of_other_families_are_read() -> None:
    for env_id, space in (("CartPole-v1", spaces.Box), ("Pendulum-v1", spaces.Box), ("FrozenLake-v1", spaces.Discrete)):
        env = EnvPoolEnv(env_id)
        assert isinstance(env.make_vector_env(1, 0)._pool.observation_space, space)
        pool = env.make_vector_env(3, 0)
        pool.reset()
        action = Action(np.zeros((3, len(env.spec.action.discrete)), np.int32),
                        np.full((3, env.spec.action.continuous), 0.5, np.float32))  # fmt: skip
        for _ in range(300):
            timestep = pool.step(action)
        assert timestep.observation.shape == (3, *env.spec.observation.shape)
        pool.close()
