"""Two tasks in one world: what they pay, which one an episode is of, and the stages that it reaches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.base import KeptTasks, Staged, VectorEnv
from byol_explore.envs.drawn import DrawnTasks, make_vector
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.envs.tasks import count_tasks, join, list_tasks
from byol_explore.envs.worlds.errands import CELLS, Errands
from byol_explore.errors import UserError
from byol_explore.types import Action
from envs.test_base import player

BOTH = ("near", "far")


def errand_of(observation: np.ndarray) -> np.ndarray:
    """[...] which errand an observation [..., SEEN] shows: 0 near, 1 far."""
    return observation[..., CELLS:].argmax(axis=-1)


@pytest.mark.parametrize(("task", "cells", "payment"), [(0, 2, 1.0), (1, 6, 3.0)])
def test_an_errand_by_hand(task: int, cells: int, payment: float) -> None:
    """Right, back, and then all the way."""
    env = Errands(BOTH)
    assert isinstance(env, Staged)
    step = jax.jit(env.step)
    state, timestep = env.begin(jax.random.key(0), jnp.asarray(task))
    assert int(errand_of(np.asarray(timestep.observation))) == int(env.task(state)) == task
    assert env.reached(state).tolist() == [False, False, False]
    heard = []
    for move in [1, 0, *[1] * cells]:
        state, timestep = step(state, Action(jnp.asarray([move]), jnp.zeros(0)))
        heard.append((float(timestep.reward), bool(timestep.is_last), sum(env.reached(state).tolist())))
    middle = [2 if 2 * place >= cells else 1 for place in range(1, cells)]
    first = 2 if cells == 2 else 1  # the first cell is half the way to the near end
    expected = [(0.0, False, first), (0.0, False, first), *((0.0, False, max(first, one)) for one in middle)]
    assert heard == [*expected, (payment, True, 3)]
    assert float(timestep.discount) == 0.0


def test_an_errand_that_takes_too_long_is_cut_off_by_its_own_limit() -> None:
    env = Errands(BOTH)
    assert [spec.max_steps for spec in env.spec.tasks] == [4, 12]
    assert env.spec.max_steps == 12
    for task, limit in enumerate((4, 12)):
        state, timestep = env.begin(jax.random.key(0), jnp.asarray(task))
        for _ in range(limit):
            assert not timestep.is_last
            state, timestep = env.step(state, Action(jnp.asarray([0]), jnp.zeros(0)))
        assert timestep.is_last
        assert timestep.discount == 1.0


# The names of tasks


def test_tasks_are_those_of_names_or_of_one_world() -> None:
    alone = list_tasks(["mine"], [Errands(("far",))])
    assert [(task.name, task.number, task.stages) for task in alone] == [("mine", None, Errands.stages)]
    for names in (["probe:near-or-far"], ["probe:near", "probe:far"]):
        envs = make_envs(names)
        tasks = list_tasks(names, envs)
        assert [(task.name, task.number) for task in tasks] == [("probe:near", 0), ("probe:far", 1)]
        assert [task.spec.max_steps for task in tasks] == [4, 12]
        assert tasks[0].env is tasks[1].env, "one world, whoever asks for it"
        assert count_tasks(envs) == 2
    others = make_envs(["probe:truncated", "probe:terminated"])
    assert join(others) == others
    assert [task.number for task in list_tasks(["a", "b"], others)] == [None, None]


def test_a_task_cannot_be_given_twice() -> None:
    with pytest.raises(UserError, match="'probe:near-or-far,probe:far' names the task 'probe:far' twice"):
        make_envs(["probe:near-or-far", "probe:far"])


# Batches


def test_a_world_draws_a_task_for_each_episode_and_says_which() -> None:
    envs = make_vector(make_envs(["probe:near-or-far"]), 16, "fixed")  # pyright: ignore[reportArgumentType]
    steps, _ = player(envs, steps=60)(0)
    errand = errand_of(steps.observation)
    assert not np.any((errand[1:] != errand[:-1]) & ~steps.is_first[1:])
    began = errand[steps.is_first]
    assert len(began) > 100
    assert np.mean(began) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("probe:near-or-far", "fixed"),
        ("probe:far,probe:near", "fixed"),
        ("probe:far,probe:near", "drawn"),
        ("probe:near-or-far,probe:one", "drawn"),
    ],
)
def test_batches_number_tasks_as_they_are_listed(name: str, tasks: str) -> None:
    """Alone, joined, and beside another world; fixed ones stay what they are, drawn ones change."""
    names = name.split(",")
    envs = [Errands(("near",)) if each == "probe:one" else make_env(each) for each in names]
    if "probe:one" in names:
        envs[1] = type("Other", (Errands,), {})(("near",))  # cannot be joined with the first
    listed = [task.name for task in list_tasks(names, envs)]
    batch = make_vector(envs, 8, tasks)  # pyright: ignore[reportArgumentType]
    assert isinstance(batch, DrawnTasks) == (tasks == "drawn" and "probe:one" in names)
    state, timestep = batch.reset(jax.random.key(1))
    step, changed = jax.jit(batch.step), False
    before = np.asarray(batch.task(state))
    for _ in range(14):
        task, errand = np.asarray(batch.task(state)), errand_of(np.asarray(timestep.observation))
        shown = [["probe:near", "probe:far"][each] for each in errand]
        assert [listed[each].replace("probe:one", "probe:near") for each in task] == shown
        assert task.dtype == np.int32
        reached = batch.reached(state)
        assert reached is not None
        assert reached.shape == (8, 3)
        changed = changed or not np.array_equal(task, before)
        state, timestep = step(state, Action(jnp.ones((8, 1), jnp.int32), jnp.zeros((8, 0))))
    assert changed == (tasks == "drawn" or "near-or-far" in name)
    if name == "probe:far,probe:near" and tasks == "fixed":
        np.testing.assert_array_equal(before, np.arange(8) % 2)


def test_kept_tasks_go_on_after_each_end() -> None:
    batch = KeptTasks(Errands(BOTH), [1, 0, 0])
    steps, _ = player(batch, steps=40)(0)
    np.testing.assert_array_equal(errand_of(steps.observation), np.tile([1, 0, 0], (41, 1)))
    assert steps.is_first.sum(axis=0).min() >= 3


def test_stages_beside_a_world_that_has_none() -> None:
    """Each world has its own; those behind the last of a world are never reached."""

    class Plain(Errands):
        stages = None  # pyright: ignore[reportAssignmentType]
        reached = property()  # pyright: ignore[reportAssignmentType]

    plain = Plain(("far",))
    assert not isinstance(plain, Staged)
    both = VectorEnv([plain, Errands(("near",))], 4)  # pyright: ignore[reportArgumentType]
    state, _ = both.reset(jax.random.key(0))
    state, _ = both.step(state, Action(jnp.ones((4, 1), jnp.int32), jnp.zeros((4, 0))))
    reached = both.reached(state)
    assert reached is not None
    assert reached.tolist() == [[False] * 3, [True, True, False]] * 2
    alone = VectorEnv([plain], 4)  # pyright: ignore[reportArgumentType]
    assert alone.reached(alone.reset(jax.random.key(0))[0]) is None
