"""Two tasks in one environment: their rewards, the task of an episode, and its stages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.interface import count_tasks, list_tasks, merge_envs
from byol_explore.envs.probes.worlds import CELLS, TwoGoals
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.envs.vector import AutoReset, RandomTaskVectorEnv, VectorEnv, make_vector_env
from byol_explore.errors import UserError
from byol_explore.types import Action
from envs.test_vector import player

BOTH = ("near", "far")


def goal_of(observation: np.ndarray) -> np.ndarray:
    """Read the goal [...] from observations [..., size]: 0 near, 1 far."""
    return observation[..., CELLS:].argmax(axis=-1)


@pytest.mark.parametrize(("task", "cells", "payment"), [(0, 2, 1.0), (1, 6, 3.0)])
def test_episode_by_hand(task: int, cells: int, payment: float) -> None:
    """One step right, one back, and then to the end."""
    env = TwoGoals(BOTH)
    step = jax.jit(env.step)
    state, timestep = env.reset_task(jax.random.key(0), jnp.asarray(task))
    assert int(goal_of(np.asarray(timestep.observation))) == int(env.task_id(state)) == task
    assert env.stages_reached(state).tolist() == [False, False, False]
    results = []
    for move in [1, 0, *[1] * cells]:
        state, timestep = step(state, Action(jnp.asarray([move]), jnp.zeros(0)))
        results.append((float(timestep.reward), bool(timestep.is_last), sum(env.stages_reached(state).tolist())))
    middle = [2 if 2 * place >= cells else 1 for place in range(1, cells)]
    first = 2 if cells == 2 else 1  # the first cell is half the way to the near end
    expected = [(0.0, False, first), (0.0, False, first), *((0.0, False, max(first, one)) for one in middle)]
    assert results == [*expected, (payment, True, 3)]
    assert float(timestep.discount) == 0.0


def test_each_task_is_truncated_at_its_own_limit() -> None:
    env = TwoGoals(BOTH)
    assert [spec.max_steps for spec in env.spec.tasks] == [4, 12]
    assert env.spec.max_steps == 12
    for task, limit in enumerate((4, 12)):
        state, timestep = env.reset_task(jax.random.key(0), jnp.asarray(task))
        for _ in range(limit):
            assert not timestep.is_last
            state, timestep = env.step(state, Action(jnp.asarray([0]), jnp.zeros(0)))
        assert timestep.is_last
        assert timestep.discount == 1.0


# The names of tasks


def test_tasks_of_several_names_or_of_one_environment() -> None:
    alone = list_tasks(["mine"], [TwoGoals(("far",))])
    assert [(task.name, task.index_in_env, task.stages) for task in alone] == [("mine", None, TwoGoals.stages)]
    for names in (["probe:near-or-far"], ["probe:near", "probe:far"]):
        envs = make_envs(names)
        tasks = list_tasks(names, envs)
        assert [(task.name, task.index_in_env) for task in tasks] == [("probe:near", 0), ("probe:far", 1)]
        assert [task.spec.max_steps for task in tasks] == [4, 12]
        assert tasks[0].env is tasks[1].env, "one environment for both tasks"
        assert count_tasks(envs) == 2
    others = make_envs(["probe:truncated", "probe:terminated"])
    assert merge_envs(others) == others
    assert [task.index_in_env for task in list_tasks(["a", "b"], others)] == [None, None]


def test_repeated_tasks_are_rejected() -> None:
    with pytest.raises(UserError, match="'probe:near-or-far,probe:far' names the task 'probe:far' twice"):
        make_envs(["probe:near-or-far", "probe:far"])


# Batches


def test_a_task_is_drawn_for_each_episode() -> None:
    envs = make_vector_env(make_envs(["probe:near-or-far"]), 16, "fixed")  # pyright: ignore[reportArgumentType]
    steps, _ = player(envs, steps=60)(0)
    goal = goal_of(steps.observation)
    assert not np.any((goal[1:] != goal[:-1]) & ~steps.is_first[1:])
    began = goal[steps.is_first]
    assert len(began) > 100
    assert np.mean(began) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("probe:near-or-far", "fixed"),
        ("probe:far,probe:near", "fixed"),
        ("probe:far,probe:near", "random"),
        ("probe:near-or-far,probe:one", "random"),
    ],
)
def test_batches_number_tasks_as_they_are_listed(name: str, tasks: str) -> None:
    """Alone, merged, and beside another environment; fixed tasks stay, random ones change."""
    names = name.split(",")
    envs = [TwoGoals(("near",)) if each == "probe:one" else make_env(each) for each in names]
    if "probe:one" in names:
        envs[1] = type("Other", (TwoGoals,), {})(("near",))  # cannot be merged with the first
    listed = [task.name for task in list_tasks(names, envs)]
    batch = make_vector_env(envs, 8, tasks)  # pyright: ignore[reportArgumentType]
    assert isinstance(batch, RandomTaskVectorEnv) == (tasks == "random" and "probe:one" in names)
    state, timestep = batch.reset(jax.random.key(1))
    step, changed = jax.jit(batch.step), False
    before = np.asarray(batch.task_id(state))
    for _ in range(14):
        task, goal = np.asarray(batch.task_id(state)), goal_of(np.asarray(timestep.observation))
        shown = [["probe:near", "probe:far"][each] for each in goal]
        assert [listed[each].replace("probe:one", "probe:near") for each in task] == shown
        assert task.dtype == np.int32
        reached = batch.stages_reached(state)
        assert reached is not None
        assert reached.shape == (8, 3)
        changed = changed or not np.array_equal(task, before)
        state, timestep = step(state, Action(jnp.ones((8, 1), jnp.int32), jnp.zeros((8, 0))))
    assert changed == (tasks == "random" or "near-or-far" in name)
    if name == "probe:far,probe:near" and tasks == "fixed":
        np.testing.assert_array_equal(before, np.arange(8) % 2)


def test_fixed_tasks_stay_over_episodes() -> None:
    batch = AutoReset(TwoGoals(BOTH), 3, [1, 0, 0])
    steps, _ = player(batch, steps=40)(0)
    np.testing.assert_array_equal(goal_of(steps.observation), np.tile([1, 0, 0], (41, 1)))
    assert steps.is_first.sum(axis=0).min() >= 3


def test_stages_beside_an_environment_without_stages() -> None:
    """Stages are padded: an environment never reaches more than its own."""

    class Plain(TwoGoals):
        stages = ()

    plain = Plain(("far",))
    both = VectorEnv([plain, TwoGoals(("near",))], 4)  # pyright: ignore[reportArgumentType]
    state, _ = both.reset(jax.random.key(0))
    state, _ = both.step(state, Action(jnp.ones((4, 1), jnp.int32), jnp.zeros((4, 0))))
    reached = both.stages_reached(state)
    assert reached is not None
    assert reached.tolist() == [[False] * 3, [True, True, False]] * 2
    alone = VectorEnv([plain], 4)  # pyright: ignore[reportArgumentType]
    assert alone.stages_reached(alone.reset(jax.random.key(0))[0]) is None
