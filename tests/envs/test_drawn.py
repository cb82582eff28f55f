"""Tasks that are drawn for each episode, inside and outside jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.drawn import DrawnTasks, make_vector
from byol_explore.envs.host import Boundaries, HostBatch, HostEnvironment, Partial
from byol_explore.envs.host_tasks import DrawnBatch, TaskBatch, make_batch, tasks_of
from byol_explore.types import UNSAID, Action, TimeStep
from envs.test_base import ACTIONS, Judging, OnAFloor, Scripted, player
from host_worlds import Scripted as HostScripted
from host_worlds import ScriptedBatch, crash

LONGEST = (2, 3, 5)
SHARE = 0.06  # that shares of about 1,000 draws may be off, four standard deviations


def worlds() -> list[Scripted]:
    return [Judging(0, LONGEST[0]), *(Scripted(world, longest) for world, longest in enumerate(LONGEST) if world)]


def assert_one_task_per_episode(steps: TimeStep, actions: np.ndarray, worlds: np.ndarray) -> None:
    """Walked by hand: within an episode the world stays and moves by its own rule; behind an end any may follow."""
    longest = np.asarray(LONGEST)
    for t, i in np.ndindex(actions.shape):
        seen = {name: values[t + 1, i] for name, values in steps.observation.items()}
        before = {name: values[t, i] for name, values in steps.observation.items()}
        assert steps.is_first[t + 1, i] == steps.is_last[t, i]
        if steps.is_first[t + 1, i]:
            assert (seen["time"], steps.reward[t + 1, i], steps.discount[t + 1, i]) == (0, 0.0, 1.0)
            continue
        assert (seen["world"], seen["episode"]) == (before["world"], before["episode"])
        assert (seen["time"], seen["action"]) == (before["time"] + 1, actions[t, i])
        assert steps.reward[t + 1, i] == actions[t, i] + 1
        assert steps.is_last[t + 1, i] == (seen["time"] == seen["episode"] % longest[seen["world"]] + 1)
    started = steps.observation["episode"][steps.is_first]
    assert len(set(started.tolist())) == len(started), "an episode is played twice"
    np.testing.assert_array_equal(worlds, steps.observation["world"])


def shares(steps: TimeStep) -> np.ndarray:
    """Of the tasks among the episodes that begin."""
    drawn = steps.observation["world"][steps.is_first]
    assert len(drawn) > 1000
    return np.bincount(drawn, minlength=3) / len(drawn)


# Inside jit


def test_episodes_inside_jit_have_drawn_tasks() -> None:
    envs = DrawnTasks(worlds(), 24)  # pyright: ignore[reportArgumentType]
    steps, actions = player(envs, steps=200)(0)
    assert_one_task_per_episode(steps, actions, steps.observation["world"])
    np.testing.assert_allclose(shares(steps), 1 / 3, atol=SHARE)
    world, ended = steps.observation["world"], steps.is_last
    np.testing.assert_array_equal(steps.success[ended & (world != 0)], UNSAID)
    np.testing.assert_array_equal(steps.success[ended & (world == 0)], steps.discount[ended & (world == 0)] == 0.0)


def test_draws_depend_on_the_key_and_on_nothing_that_is_done() -> None:
    """Environments draw apart from each other, and each draw apart from the one before it."""
    envs = DrawnTasks(worlds(), 24)  # pyright: ignore[reportArgumentType]
    play = player(envs, steps=200)
    (one, _), (again, _), (other, _) = play(0), play(0), play(1)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert (one.observation["world"] != other.observation["world"]).any()
    same, pairs = 0, 0
    for env in range(24):
        drawn = one.observation["world"][:, env][one.is_first[:, env]]
        same, pairs = same + int(np.sum(drawn[1:] == drawn[:-1])), pairs + len(drawn) - 1
    assert same / pairs == pytest.approx(1 / 3, abs=SHARE)
    assert len({tuple(one.observation["world"][:, env].tolist()) for env in range(24)}) == 24


def test_the_task_is_that_of_the_episode_and_places_are_its_worlds() -> None:
    envs = DrawnTasks([OnAFloor(world) for world in range(3)], 8)  # pyright: ignore[reportArgumentType]
    step = jax.jit(envs.step)
    state, timestep = envs.reset(jax.random.key(0))
    seen = set()
    for _ in range(12):
        task, world = np.asarray(envs.task(state)), np.asarray(timestep.observation["world"])
        np.testing.assert_array_equal(task, world)
        expected = np.stack([world, timestep.observation["time"]], axis=1)
        np.testing.assert_array_equal(envs.places(state), expected)
        seen |= set(task.tolist())
        state, timestep = step(state, Action(jnp.zeros((8, 1), jnp.int32), jnp.zeros((8, 0))))
    assert seen == {0, 1, 2}
    mixed = DrawnTasks([OnAFloor(0), Scripted(1)], 4)  # pyright: ignore[reportArgumentType]
    assert mixed.places(mixed.reset(jax.random.key(0))[0]).shape == (4, 0)


def test_worlds_that_are_not_played_stand_still() -> None:
    envs = DrawnTasks(worlds(), 8)  # pyright: ignore[reportArgumentType]
    state, _ = envs.reset(jax.random.key(0))
    after, _ = jax.jit(envs.step)(state, Action(jnp.ones((8, 1), jnp.int32), jnp.zeros((8, 0))))
    for index in range(3):
        moved = after.worlds[index].inner["time"] != state.worlds[index].inner["time"]
        np.testing.assert_array_equal(moved, state.played == index)


def test_one_task_needs_no_draw() -> None:
    assert not isinstance(make_vector([Scripted()], 4, "drawn"), DrawnTasks)  # pyright: ignore[reportArgumentType]
    assert not isinstance(make_vector(worlds(), 6, "fixed"), DrawnTasks)  # pyright: ignore[reportArgumentType]
    assert isinstance(make_vector(worlds(), 4, "drawn"), DrawnTasks)  # pyright: ignore[reportArgumentType]


# Outside jit


class Outside:
    """The same worlds outside jit, environment by environment."""

    def __init__(self, world: int) -> None:
        self.world, self.batches = world, []
        self.spec = Scripted(world).spec

    def batch(self, num_envs: int, seed: int) -> HostBatch:
        self.batches.append(OutsideBatch(self.world, num_envs, seed))
        return self.batches[-1]


class OutsideBatch:
    def __init__(self, world: int, num_envs: int, seed: int) -> None:
        self.world, self.num_envs, self.steps = world, num_envs, 0
        self._random = np.random.default_rng([seed, world])
        self._boundaries = Boundaries(num_envs)
        self.seen = {name: np.zeros(num_envs, np.int32) for name in ("world", "episode", "time", "action")}
        self._ended = np.ones(num_envs, bool)

    def _move(self, action: np.ndarray, moving: np.ndarray) -> np.ndarray:
        fresh, going = moving & self._ended, moving & ~self._ended
        self.seen["world"][:] = self.world
        self.seen["episode"][fresh] = self._random.integers(0, 2**30, fresh.sum())
        self.seen["time"][fresh], self.seen["action"][fresh] = 0, -1
        self.seen["time"][going] += 1
        self.seen["action"][going] = action[going]
        ended = going & (self.seen["time"] == self.seen["episode"] % LONGEST[self.world] + 1)
        self._ended = np.where(moving, ended, self._ended)
        self.steps += int(moving.sum())
        return ended

    def reset(self) -> TimeStep:
        self._ended[:] = True
        self._move(np.zeros(self.num_envs, int), np.ones(self.num_envs, bool))
        return self._boundaries.first(self.seen)

    def step(self, action: Action) -> TimeStep:
        return self._step(action, np.ones(self.num_envs, bool))

    def _step(self, action: Action, moving: np.ndarray) -> TimeStep:
        ended = self._move(action.discrete[:, 0], moving)
        reward = action.discrete[:, 0] + 1.0
        return self._boundaries.next(self.seen, reward, ended, np.zeros_like(ended), moving=moving)

    def places(self) -> np.ndarray:
        return np.stack([self.seen["world"], self.seen["time"]], axis=1)

    def render(self) -> np.ndarray:
        return np.full((1, 1, 3), self.world, np.uint8)

    def close(self) -> None: ...


class PartialBatch(OutsideBatch):
    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        return self._step(action, moving)


class Standing(Outside):
    """Its batches can leave some environments out."""

    def batch(self, num_envs: int, seed: int) -> HostBatch:
        self.batches.append(PartialBatch(self.world, num_envs, seed))
        return self.batches[-1]


def play_outside(batch: HostBatch, steps: int) -> tuple[TimeStep, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, ACTIONS, (steps, batch.num_envs), np.int32)
    timesteps, tasks = [jax.tree.map(np.array, batch.reset())], [tasks_of(batch).copy()]
    for action in actions:
        answer = batch.step(Action(action[:, None], np.zeros((batch.num_envs, 0))))
        timesteps.append(jax.tree.map(np.array, answer))
        tasks.append(tasks_of(batch).copy())
        expected = np.stack([answer.observation["world"], answer.observation["time"]], axis=1)
        np.testing.assert_array_equal(batch.places(), expected)
        assert batch.render()[0, 0, 0] == tasks[-1][0]
    return jax.tree.map(lambda *xs: np.stack(xs), *timesteps), actions, np.stack(tasks)


@pytest.mark.parametrize("kind", [Outside, Standing])
def test_episodes_outside_jit_have_drawn_tasks(kind: type[Outside]) -> None:
    kinds = [kind(world) for world in range(3)]
    steps, actions, tasks = play_outside(DrawnBatch(kinds, 12, seed=3), 400)
    assert_one_task_per_episode(steps, actions, tasks)
    np.testing.assert_allclose(shares(steps), 1 / 3, atol=SHARE)
    stepped = sum(batch.steps for world in kinds for batch in world.batches)
    assert stepped <= 12 * 400 + 3 * 12, "worlds were stepped that nobody played"
    again, _, _ = play_outside(DrawnBatch([kind(world) for world in range(3)], 12, seed=3), 20)
    other, _, _ = play_outside(DrawnBatch([kind(world) for world in range(3)], 12, seed=4), 20)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:21], y), steps, again)
    assert (again.observation["world"] != other.observation["world"]).any()


def test_a_reset_begins_new_episodes_everywhere() -> None:
    batch = DrawnBatch([Standing(world) for world in range(3)], 6, seed=0)
    one, _, _ = play_outside(batch, 30)
    two, actions, tasks = play_outside(batch, 30)
    assert two.is_first[0].all()
    assert_one_task_per_episode(two, actions, tasks)
    assert not set(one.observation["episode"].ravel().tolist()) & set(two.observation["episode"].ravel().tolist())


def test_batches_by_the_way_tasks_are_chosen() -> None:
    kinds: list[HostEnvironment] = [Outside(world) for world in range(2)]
    assert isinstance(make_batch(kinds, 4, 0, "drawn"), DrawnBatch)
    fixed = make_batch(kinds, 4, 0)
    assert isinstance(fixed, TaskBatch)
    assert tasks_of(fixed).tolist() == [0, 1, 0, 1]
    alone = make_batch(kinds[:1], 3, 0, "drawn")
    assert isinstance(alone, OutsideBatch)
    assert tasks_of(alone).tolist() == [0, 0, 0]
    assert not isinstance(alone, Partial)


def test_when_one_of_many_cannot_start_all_others_end() -> None:
    good, bad = HostScripted(), HostScripted(crash("batch", 2, OSError("no such game")))
    with pytest.raises(OSError, match="no such game"):
        DrawnBatch([good, bad], 4, seed=0)
    assert (len(good.batches), good.still_open) == (4, 0)
    assert (len(bad.batches), bad.still_open) == (2, 0)


@pytest.mark.parametrize("kind", [TaskBatch, DrawnBatch])
def test_tasks_that_name_places_differently_are_nowhere(kind: type[TaskBatch] | type[DrawnBatch]) -> None:
    class Nowhere(ScriptedBatch):
        def places(self) -> np.ndarray:
            return np.zeros((self.num_envs, 0), np.int32)

    class Unmapped(HostScripted):
        def batch(self, num_envs: int, seed: int) -> ScriptedBatch:
            return Nowhere(self, num_envs, seed)

    batch = kind([HostScripted(), Unmapped()], 4, seed=0)
    batch.reset()
    assert batch.places().shape == (4, 0)
