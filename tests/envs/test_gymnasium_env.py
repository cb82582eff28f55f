"""Gymnasium's environments: episode boundaries, success, specs and seeds."""

import itertools
import math
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

from byol_explore.envs.families import GymnasiumSettings
from byol_explore.envs.gymnasium_env import GymnasiumEnv, success_from_infos
from byol_explore.envs.interface import HostEnvironment
from byol_explore.spaces import ActionSpec, ArraySpace, Image, Vector
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep
from envs.scripted import SameStep, WithInfos, number, open_batch, register_scripted


@pytest.fixture(autouse=True)
def _scripted() -> Iterator[None]:
    with register_scripted():
        yield


def assert_is_of(kind: ArraySpace, batch: np.ndarray) -> None:
    assert (batch.shape[1:], batch.dtype) == (kind.shape, kind.dtype)


def random_action(env: GymnasiumEnv, num_envs: int, rng: np.random.Generator) -> Action:
    spec = env.spec.action
    discrete = np.asarray([[rng.integers(n) for n in spec.discrete] for _ in range(num_envs)], np.int32)
    continuous = rng.normal(size=(num_envs, spec.continuous)).astype(np.float32)
    return Action(discrete.reshape(num_envs, len(spec.discrete)), continuous)


def play(env: GymnasiumEnv, num_envs: int, seed: int, steps: int = 30) -> list[TimeStep]:
    """Return copies of the time steps of random actions."""
    rng = np.random.default_rng(0)
    with open_batch(env, num_envs, seed) as batch:
        stream = [jax.tree.map(np.copy, batch.reset())]
        for _ in range(steps):
            stream.append(jax.tree.map(np.copy, batch.step(random_action(env, num_envs, rng))))
    return stream


def same(first: list[TimeStep], second: list[TimeStep]) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# Episodes

# (episode, step, reward, discount, is_first, is_last) by environment; each begins with another kind of episode.
STREAMS = {
    0: [
        (1, 0, 0, 1, True, False),
        (1, 1, 11, 1, False, False),
        (1, 2, 12, 0, False, True),  # terminated
        (2, 0, 0, 1, True, False),
        (2, 1, 21, 1, False, False),
        (2, 2, 22, 1, False, False),
        (2, 3, 23, 1, False, True),  # truncated
        (3, 0, 0, 1, True, False),
        (3, 1, 31, 0, False, True),  # terminated at once
        (4, 0, 0, 1, True, False),
    ],
    1: [
        (1, 0, 0, 1, True, False),
        (1, 1, 11, 1, False, False),
        (1, 2, 12, 1, False, False),
        (1, 3, 13, 1, False, True),
        (2, 0, 0, 1, True, False),
        (2, 1, 21, 0, False, True),
        (3, 0, 0, 1, True, False),
        (3, 1, 31, 1, False, False),
        (3, 2, 32, 0, False, True),
        (4, 0, 0, 1, True, False),
    ],
    2: [
        (1, 0, 0, 1, True, False),
        (1, 1, 11, 0, False, True),
        (2, 0, 0, 1, True, False),
        (2, 1, 21, 1, False, False),
        (2, 2, 22, 0, False, True),
        (3, 0, 0, 1, True, False),
        (3, 1, 31, 1, False, False),
        (3, 2, 32, 1, False, False),
        (3, 3, 33, 1, False, True),
        (4, 0, 0, 1, True, False),
    ],
}


def test_every_boundary_is_marked() -> None:
    """The last observation stays in the stream, and the action after it is ignored."""
    with open_batch(GymnasiumEnv("scripted/Scripted-v0"), 3) as batch:
        timestep = batch.reset()
        names = timestep.observation[:, 0].astype(int)
        assert sorted(names) == [0, 1, 2]
        for t in range(10):
            if t > 0:
                timestep = batch.step(number([10 + t, 20 + t, 30 + t]))
            for i, who in enumerate(names):
                episode, step, reward, discount, is_first, is_last = STREAMS[who][t]
                action = -1 if is_first else 10 * (i + 1) + t
                np.testing.assert_array_equal(timestep.observation[i], [who, episode, step, action], str((who, t)))
                assert (timestep.reward[i], timestep.discount[i]) == (reward, discount), (who, t)
                assert (timestep.is_first[i], timestep.is_last[i]) == (is_first, is_last), (who, t)
    for array, dtype in zip(timestep, [np.float32, np.float32, np.float32, bool, bool, np.int8], strict=True):
        assert array.dtype == dtype


def test_a_registered_limit_truncates() -> None:
    env = GymnasiumEnv("scripted/Limited-v0")
    assert (env.spec.max_steps, env.spec.success_threshold) == (2, 1.5)
    stream = play(env, 2, seed=0, steps=6)
    assert [step.is_last.tolist() for step in stream] == [[t % 3 == 2] * 2 for t in range(7)]
    assert [step.is_first.tolist() for step in stream] == [[t % 3 == 0] * 2 for t in range(7)]
    assert all(step.discount.tolist() == [1, 1] for step in stream)
    assert [step.reward[0] for step in stream] == [0, 1, 1, 0, 1, 1, 0]


# Success


def odd(episode: int) -> bool:
    return episode % 2 == 1


@pytest.mark.parametrize(
    ("infos_of", "expected"),
    [
        (lambda episode: {"is_success": odd(episode)}, {1: 1, 2: 0, 3: 1}),
        (lambda episode: {"success": np.float32(odd(episode))}, {1: 1, 2: 0, 3: 1}),
        (lambda episode: {"success": np.asarray([odd(episode)])}, {1: 1, 2: 0, 3: 1}),
        (lambda episode: {"success": not odd(episode), "is_success": odd(episode)}, {1: 1, 2: 0, 3: 1}),
        (lambda episode: {"success": np.bool_(True)} if odd(episode) else {}, {1: 1, 2: UNKNOWN_SUCCESS, 3: 1}),
        (
            lambda episode: {"success": "yes", "other": 1.0} if episode == 2 else {},
            {1: UNKNOWN_SUCCESS, 2: 1, 3: UNKNOWN_SUCCESS},
        ),
        (lambda episode: {}, {1: UNKNOWN_SUCCESS, 2: UNKNOWN_SUCCESS, 3: UNKNOWN_SUCCESS}),
    ],
    ids=["is_success", "success", "array", "both", "successes only", "a text", "nothing"],
)
def test_success_of_infos_counts_at_the_end_of_an_episode(
    infos_of: Callable[[int], dict], expected: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three environments ends its episodes at other steps; infos of other steps are ignored."""
    monkeypatch.setattr(WithInfos, "infos_of", staticmethod(infos_of))
    with open_batch(GymnasiumEnv("scripted/WithInfos-v0"), 3) as batch:
        assert batch.reset().success.tolist() == [UNKNOWN_SUCCESS] * 3
        ends = 0
        for _ in range(9):
            timestep = batch.step(number([0, 0, 0]))
            episodes = timestep.observation[:, 1].astype(int)
            judged = [
                expected[who] if last else UNKNOWN_SUCCESS for who, last in zip(episodes, timestep.is_last, strict=True)
            ]
            assert timestep.success.tolist() == judged
            ends += timestep.is_last.sum()
    assert ends == 9


def test_success_is_read_with_the_masks_of_infos() -> None:
    """Also from final_info, which environments with another autoreset mode have."""
    mask = np.asarray([True, False, True])
    assert success_from_infos({"is_success": np.asarray([True, True, False]), "_is_success": mask}, 3).tolist() == [
        1,
        -1,
        0,
    ]
    assert success_from_infos({"success": np.asarray([1.0, 0.0, 0.0])}, 3).tolist() == [1, 0, 0]
    final = {"success": np.asarray([0, 1, 1]), "_success": mask}
    assert success_from_infos({"success": np.asarray([1, 1, 0]), "final_info": final}, 3).tolist() == [0, 1, 1]
    assert success_from_infos({"success": np.zeros((3, 2)), "final_info": None}, 3).tolist() == [-1, -1, -1]


def test_reset_in_the_middle_begins_other_episodes() -> None:
    with open_batch(GymnasiumEnv("CartPole-v1"), 2) as batch:
        first = batch.reset().observation.copy()
        batch.step(number([0, 1]))
        again = batch.reset()
    assert np.all(again.observation != first)
    assert again.is_first.all()
    assert not again.is_last.any()


def test_the_environments_own_vectorisation_marks_the_same_boundaries() -> None:
    env = GymnasiumEnv("CartPole-v1", GymnasiumSettings(vectorization="vector_entry_point"))
    with open_batch(env, 4) as batch:
        assert isinstance(batch._vector, CartPoleVectorEnv)
    stream = play(env, 4, seed=0, steps=80)
    assert sum(step.is_last.sum() for step in stream) > 4
    for before, step in itertools.pairwise(stream):
        np.testing.assert_array_equal(step.is_first, before.is_last)
        np.testing.assert_array_equal(step.reward, ~step.is_first)
        np.testing.assert_array_equal(step.discount, ~step.is_last)
        assert np.all(np.abs(step.observation[step.is_first]) <= 0.05)
        assert np.all(np.abs(step.observation[step.is_last][:, [0, 2]]).max(axis=1) > 12 * np.pi / 180)


def test_same_step_autoreset_falls_back_to_sync() -> None:
    env = GymnasiumEnv("scripted/SameStep-v0", GymnasiumSettings(vectorization="vector_entry_point"))
    with open_batch(env, 2) as batch:
        assert isinstance(batch._vector, SyncVectorEnv)
        assert SameStep.closed_count == 2  # one for the spec, one for the batch
    stream = play(env, 2, seed=0, steps=11)
    assert sum(step.is_last.sum() for step in stream) >= 2


def test_environment_with_only_a_vector_entry_point() -> None:
    env = GymnasiumEnv("scripted/OnlyVector-v0")
    assert (env.spec.max_steps, env.spec.action) == (9, ActionSpec((2,)))
    with open_batch(env, 3) as batch:
        assert isinstance(batch._vector, CartPoleVectorEnv)
        assert batch.reset().observation.shape == (3, 4)


# Specs


@pytest.mark.parametrize(
    ("env_id", "observation", "action", "max_steps", "success_threshold"),
    [
        ("CartPole-v1", Vector(4), ActionSpec((2,)), 500, 475.0),
        ("FrozenLake-v1", Vector(16), ActionSpec((4,)), 100, 0.7),
        ("Pendulum-v1", Vector(3), ActionSpec((), 1), 200, math.inf),
        ("Taxi-v4", Vector(500), ActionSpec((6,)), 200, 8.0),
        ("Blackjack-v1", {"0": Vector(32), "1": Vector(11), "2": Vector(2)}, ActionSpec((2,)), 100_000, math.inf),
        ("scripted/Robot-v0", {"arm/0": Vector(2), "eye": Image(12, 10, 3)}, ActionSpec((3,), 2), 100_000, math.inf),
    ],
)
def test_spec_of_an_environment(
    env_id: str, observation: object, action: ActionSpec, max_steps: int, success_threshold: float
) -> None:
    env = GymnasiumEnv(env_id)
    spec = env.spec
    assert spec.name == f"gymnasium:{env_id}"
    assert spec.observation == observation
    assert (spec.action, spec.max_steps, spec.success_threshold) == (action, max_steps, success_threshold)
    stream = play(env, 3, seed=1, steps=8)
    for step in stream:
        jax.tree.map(assert_is_of, spec.observation, step.observation)
        assert all(len(leaf) == 3 for leaf in jax.tree.leaves(step))
    assert isinstance(env, HostEnvironment)


def test_a_nested_action_reaches_the_environment() -> None:
    """The arm's parts come before the rest: Gymnasium sorts the names."""
    with open_batch(GymnasiumEnv("scripted/Robot-v0"), 2) as batch:
        batch.reset()
        action = Action(np.asarray([[0], [2]], np.int32), np.asarray([[-1.0, 1.0], [0.0, -0.5]], np.float32))
        assert batch.step(action).reward.tolist() == [104.0, 303.0]


def test_actions_may_be_arrays_of_jax() -> None:
    with open_batch(GymnasiumEnv("Pendulum-v1"), 2) as batch:
        batch.reset()
        action = jax.tree.map(jax.numpy.asarray, Action(np.zeros((2, 0), np.int32), np.ones((2, 1), np.float32)))
        assert batch.step(action).observation.shape == (2, 3)


def test_actions_span_the_bounds_of_the_torque() -> None:
    """Bounds of 2 and a gain of 3 per time step of 0.05: the angular velocity differs by 0.6 between the bounds."""
    velocities = []
    for torque in (-3.0, -1.0, 1.0, 3.0):
        with open_batch(GymnasiumEnv("Pendulum-v1"), 1) as batch:
            batch.reset()
            step = batch.step(Action(np.zeros((1, 0), np.int32), np.full((1, 1), torque, np.float32)))
            velocities.append(float(step.observation[0, 2]))
    assert velocities[0] == velocities[1]
    assert velocities[2] == velocities[3]
    assert velocities[2] - velocities[1] == pytest.approx(0.6, abs=1e-5)


def test_environments_have_no_positions() -> None:
    env = GymnasiumEnv("CartPole-v1")
    assert env.spec.room_fields == env.spec.position_fields == ()
    with open_batch(env, 3) as batch:
        batch.reset()
        places = batch.positions()
    assert places.shape == (3, 0)
    assert np.issubdtype(places.dtype, np.integer)


# Seeds


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Taxi-v4"])
def test_seeds_are_repeatable(env_id: str) -> None:
    """Also over the ends of episodes."""
    env = GymnasiumEnv(env_id)
    steps = 210 if env_id in ("Pendulum-v1", "Taxi-v4") else 60
    stream = play(env, 3, seed=5, steps=steps)
    assert any(step.is_last.any() for step in stream)
    assert same(stream, play(GymnasiumEnv(env_id), 3, seed=5, steps=steps))
    assert not same(stream, play(env, 3, seed=6, steps=steps))


def test_environments_of_consecutive_seeds_differ() -> None:
    env = GymnasiumEnv("CartPole-v1")
    firsts = np.concatenate([play(env, 4, seed=seed, steps=0)[0].observation for seed in (0, 1, 2)])
    assert len(np.unique(firsts[:, 0])) == 12


def test_processes_play_the_same_episodes() -> None:
    together = play(GymnasiumEnv("Pendulum-v1"), 2, seed=3, steps=205)
    assert same(
        together, play(GymnasiumEnv("Pendulum-v1", GymnasiumSettings(vectorization="async")), 2, seed=3, steps=205)
    )
