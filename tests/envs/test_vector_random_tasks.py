"""Random tasks inside jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.vector import RandomTaskVectorEnv, make_vector_env
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep
from envs.test_vector import Scripted, WithPosition, WithSuccess, player

LONGEST = (2, 3, 5)
TOLERANCE = 0.06  # of frequencies of about 1,000 draws, four standard deviations


def worlds() -> list[Scripted]:
    return [WithSuccess(0, LONGEST[0]), *(Scripted(world, longest) for world, longest in enumerate(LONGEST) if world)]


def assert_one_task_per_episode(steps: TimeStep, actions: np.ndarray, worlds: np.ndarray) -> None:
    """Check each step: within an episode the environment stays the same and follows its own rule."""
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


def frequencies(steps: TimeStep) -> np.ndarray:
    """Return the frequency of each task among the episodes."""
    drawn = steps.observation["world"][steps.is_first]
    assert len(drawn) > 1000
    return np.bincount(drawn, minlength=3) / len(drawn)


# Inside jit


def test_each_episode_has_a_random_task() -> None:
    envs = RandomTaskVectorEnv(worlds(), 24)  # pyright: ignore[reportArgumentType]
    steps, actions = player(envs, steps=200)(0)
    assert_one_task_per_episode(steps, actions, steps.observation["world"])
    np.testing.assert_allclose(frequencies(steps), 1 / 3, atol=TOLERANCE)
    world, ended = steps.observation["world"], steps.is_last
    np.testing.assert_array_equal(steps.success[ended & (world != 0)], UNKNOWN_SUCCESS)
    np.testing.assert_array_equal(steps.success[ended & (world == 0)], steps.discount[ended & (world == 0)] == 0.0)


def test_draws_depend_on_the_key_only() -> None:
    """Draws are independent between environments and between episodes."""
    envs = RandomTaskVectorEnv(worlds(), 24)  # pyright: ignore[reportArgumentType]
    play = player(envs, steps=200)
    (one, _), (again, _), (other, _) = play(0), play(0), play(1)
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert (one.observation["world"] != other.observation["world"]).any()
    same, pairs = 0, 0
    for env in range(24):
        drawn = one.observation["world"][:, env][one.is_first[:, env]]
        same, pairs = same + int(np.sum(drawn[1:] == drawn[:-1])), pairs + len(drawn) - 1
    assert same / pairs == pytest.approx(1 / 3, abs=TOLERANCE)
    assert len({tuple(one.observation["world"][:, env].tolist()) for env in range(24)}) == 24


def test_task_ids_and_positions_are_those_of_the_episode() -> None:
    envs = RandomTaskVectorEnv([WithPosition(world) for world in range(3)], 8)  # pyright: ignore[reportArgumentType]
    step = jax.jit(envs.step)
    state, timestep = envs.reset(jax.random.key(0))
    seen = set()
    for _ in range(12):
        task, world = np.asarray(envs.task_id(state)), np.asarray(timestep.observation["world"])
        np.testing.assert_array_equal(task, world)
        expected = np.stack([world, timestep.observation["time"]], axis=1)
        np.testing.assert_array_equal(envs.positions(state), expected)
        seen |= set(task.tolist())
        state, timestep = step(state, Action(jnp.zeros((8, 1), jnp.int32), jnp.zeros((8, 0))))
    assert seen == {0, 1, 2}
    mixed = RandomTaskVectorEnv([WithPosition(0), Scripted(1)], 4)  # pyright: ignore[reportArgumentType]
    assert mixed.positions(mixed.reset(jax.random.key(0))[0]).shape == (4, 0)


def test_environments_that_are_not_played_keep_their_state() -> None:
    envs = RandomTaskVectorEnv(worlds(), 8)  # pyright: ignore[reportArgumentType]
    state, _ = envs.reset(jax.random.key(0))
    after, _ = jax.jit(envs.step)(state, Action(jnp.ones((8, 1), jnp.int32), jnp.zeros((8, 0))))
    for index in range(3):
        moved = after.env_states[index].env_state["time"] != state.env_states[index].env_state["time"]
        np.testing.assert_array_equal(moved, state.current == index)


def test_one_task_is_not_drawn() -> None:
    assert not isinstance(make_vector_env([Scripted()], 4, "random"), RandomTaskVectorEnv)  # pyright: ignore[reportArgumentType]
    assert not isinstance(make_vector_env(worlds(), 6, "fixed"), RandomTaskVectorEnv)  # pyright: ignore[reportArgumentType]
    assert isinstance(make_vector_env(worlds(), 4, "random"), RandomTaskVectorEnv)  # pyright: ignore[reportArgumentType]
