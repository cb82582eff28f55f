"""Tasks that are drawn for each episode outside jit."""

import jax
import numpy as np
import pytest

from byol_explore.envs.host_vector import FixedTaskBatch, TaskSwitch, TimeStepBuilder, make_host_vector_env
from byol_explore.envs.interface import HostEnvironment, HostVectorEnv
from byol_explore.types import Action, TimeStep
from envs.test_vector import ACTIONS, Scripted
from envs.test_vector_random_tasks import LONGEST, TOLERANCE, assert_one_task_per_episode, frequencies
from host_worlds import Scripted as HostScripted
from host_worlds import ScriptedBatch, crash


class Outside(HostEnvironment):
    """An environment of the tests inside jit, with positions."""

    def __init__(self, world: int) -> None:
        self.world, self.batches = world, []
        self.spec = Scripted(world).spec._replace(room_fields=("world",), position_fields=("time",))

    def make_vector_env(self, num_envs: int, seed: int) -> HostVectorEnv:
        self.batches.append(OutsideBatch(self.world, num_envs, seed))
        return self.batches[-1]


class OutsideBatch(HostVectorEnv):
    def __init__(self, world: int, num_envs: int, seed: int) -> None:
        self.world, self.num_envs, self.steps = world, num_envs, 0
        self._random = np.random.default_rng([seed, world])
        self._boundaries = TimeStepBuilder(num_envs)
        self.seen = {name: np.zeros(num_envs, np.int32) for name in ("world", "episode", "time", "action")}
        self._ended = np.ones(num_envs, bool)

    def _move(self, action: np.ndarray) -> np.ndarray:
        fresh, going = self._ended, ~self._ended
        self.seen["world"][:] = self.world
        self.seen["episode"][fresh] = self._random.integers(0, 2**30, fresh.sum())
        self.seen["time"][fresh], self.seen["action"][fresh] = 0, -1
        self.seen["time"][going] += 1
        self.seen["action"][going] = action[going]
        self._ended = going & (self.seen["time"] == self.seen["episode"] % LONGEST[self.world] + 1)
        self.steps += self.num_envs
        return self._ended

    def reset(self) -> TimeStep:
        self._ended[:] = True
        self._move(np.zeros(self.num_envs, int))
        return self._boundaries.on_reset(self.seen)

    def step(self, action: Action) -> TimeStep:
        ended = self._move(action.discrete[:, 0])
        return self._boundaries.on_step(self.seen, action.discrete[:, 0] + 1.0, ended, np.zeros_like(ended))

    def positions(self) -> np.ndarray:
        return np.stack([self.seen["world"], self.seen["time"]], axis=1)

    def render(self) -> np.ndarray:
        return np.full((1, 1, 3), self.world, np.uint8)


def play_outside(batch: HostVectorEnv, steps: int) -> tuple[TimeStep, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, ACTIONS, (steps, batch.num_envs), np.int32)
    timesteps, tasks = [jax.tree.map(np.array, batch.reset())], [batch.task_ids().copy()]
    for action in actions:
        answer = batch.step(Action(action[:, None], np.zeros((batch.num_envs, 0))))
        timesteps.append(jax.tree.map(np.array, answer))
        tasks.append(batch.task_ids().copy())
        expected = np.stack([answer.observation["world"], answer.observation["time"]], axis=1)
        np.testing.assert_array_equal(batch.positions(), expected)
        assert batch.render()[0, 0, 0] == tasks[-1][0]
    return jax.tree.map(lambda *xs: np.stack(xs), *timesteps), actions, np.stack(tasks)


def test_each_episode_has_a_random_task() -> None:
    envs = [Outside(world) for world in range(3)]
    steps, actions, tasks = play_outside(TaskSwitch(envs, 12, seed=3), 400)
    assert_one_task_per_episode(steps, actions, tasks)
    np.testing.assert_allclose(frequencies(steps), 1 / 3, atol=TOLERANCE)
    assert sum(batch.steps for env in envs for batch in env.batches) == 12 * 401, "an unplayed task was stepped"


def test_tasks_and_episodes_depend_on_the_seed() -> None:
    def play(seed: int) -> TimeStep:
        return play_outside(TaskSwitch([Outside(world) for world in range(3)], 12, seed), 20)[0]

    one, again, other = play(3), play(3), play(4)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert (one.observation["world"] != other.observation["world"]).any()


def test_reset_begins_new_episodes_in_all_elements() -> None:
    batch = TaskSwitch([Outside(world) for world in range(3)], 6, seed=0)
    one, _, _ = play_outside(batch, 30)
    two, actions, tasks = play_outside(batch, 30)
    assert two.is_first[0].all()
    assert_one_task_per_episode(two, actions, tasks)
    assert not set(one.observation["episode"].ravel().tolist()) & set(two.observation["episode"].ravel().tolist())


def test_class_of_a_batch_by_task_sampling() -> None:
    envs: list[HostEnvironment] = [Outside(world) for world in range(2)]
    assert isinstance(make_host_vector_env(envs, 4, 0, "random"), TaskSwitch)
    fixed = make_host_vector_env(envs, 4, 0)
    assert isinstance(fixed, FixedTaskBatch)
    assert fixed.task_ids().tolist() == [0, 1, 0, 1]
    alone = make_host_vector_env(envs[:1], 3, 0, "random")
    assert isinstance(alone, OutsideBatch)
    assert alone.task_ids().tolist() == [0, 0, 0]


def test_failed_start_of_one_environment_closes_the_others() -> None:
    good, bad = HostScripted(), HostScripted(crash("batch", 2, OSError("no such game")))
    with pytest.raises(OSError, match="no such game"):
        TaskSwitch([good, bad], 4, seed=0)
    assert (len(good.batches), good.still_open) == (3, 0)
    assert (len(bad.batches), bad.still_open) == (2, 0)


@pytest.mark.parametrize("kind", [FixedTaskBatch, TaskSwitch])
def test_tasks_with_different_positions_have_none(kind: type[FixedTaskBatch] | type[TaskSwitch]) -> None:
    class Nowhere(ScriptedBatch):
        def positions(self) -> np.ndarray:
            return np.zeros((self.num_envs, 0), np.int32)

    class Unmapped(HostScripted):
        def __init__(self) -> None:
            super().__init__()
            self.spec = self.spec._replace(room_fields=(), position_fields=())

        def make_vector_env(self, num_envs: int, seed: int) -> ScriptedBatch:
            return Nowhere(self, num_envs, seed)

    batch = kind([HostScripted(), Unmapped()], 4, seed=0)
    batch.reset()
    assert batch.positions().shape == (4, 0)
