"""The probe environments, against returns computed by hand."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.interface import JitEnvironment
from byol_explore.envs.probes.base import CELL
from byol_explore.envs.probes.worlds import LEFT, PROBES, RIGHT, WATCH
from byol_explore.envs.vector import AutoReset
from byol_explore.types import Action, Array, TimeStep

GAMMA = 0.9
STAY = WATCH


@partial(jax.jit, static_argnums=0)
def episode(env: JitEnvironment, actions: Action, key: Array) -> TimeStep:
    """Return the time steps of one episode, one more than actions."""
    state, first = env.reset(key)
    _, rest = jax.lax.scan(env.step, state, actions)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, rest)


def play(
    env: JitEnvironment, discrete: Sequence[int] = (), continuous: Sequence[float] = (), seed: int = 0
) -> TimeStep:
    """Play an episode; `discrete` and `continuous` are the two parts of the actions, one of which may be empty."""
    length = max(len(discrete), len(continuous))
    choices = np.asarray(discrete, np.int32).reshape(length, -1)
    numbers = np.asarray(continuous, np.float32).reshape(length, -1)
    return jax.device_get(episode(env, Action(choices, numbers), jax.random.key(seed)))


def values(steps: TimeStep, last_value: float = 0.0) -> list[float]:
    """Compute the discounted return at each time; `last_value` is the value of the last observation."""
    value, found = last_value, []
    for reward, discount in zip(steps.reward[:0:-1], steps.discount[:0:-1], strict=True):
        value = float(reward + GAMMA * discount * value)
        found.append(value)
    return found[::-1]


def assert_one_episode(steps: TimeStep, length: int, *, terminated: bool) -> None:
    np.testing.assert_array_equal(steps.is_first, np.arange(length + 1) == 0)
    np.testing.assert_array_equal(steps.is_last, np.arange(length + 1) == length)
    assert steps.reward[0] == 0.0
    assert (steps.discount[:-1] == 1.0).all()
    assert steps.discount[-1] == (0.0 if terminated else 1.0)


@pytest.mark.parametrize("name", PROBES)
def test_shapes_names_and_pictures(name: str) -> None:
    """A batch with automatic resets has the shapes and dtypes of the spec; states can be rendered."""
    env = PROBES[name]()
    assert env.spec.name == f"probe:{name}"
    assert env.spec.observation.dtype == jnp.float32
    batch = AutoReset(env, 2)
    action = jax.tree.map(lambda x: jnp.stack([x, x]), env.spec.action.zero())
    state, first = jax.eval_shape(batch.reset, jax.random.split(jax.random.key(0), 2))
    after, second = jax.eval_shape(batch.step, state, action)
    assert jax.tree.structure(state) == jax.tree.structure(after)
    for steps in (first, second):
        assert (steps.observation.shape, steps.observation.dtype) == ((2, *env.spec.observation.shape), jnp.float32)
        assert steps.reward.dtype == steps.discount.dtype == jnp.float32
        assert steps.is_first.dtype == steps.is_last.dtype == jnp.bool_
    picture = env.render(env.reset(jax.random.key(0))[0])
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert (picture.shape[0] % CELL, picture.shape[1] % CELL, picture.shape[2]) == (0, 0, 3)


def test_one_step_is_worth_one() -> None:
    steps = play(PROBES["one-step"](), [0])
    assert_one_episode(steps, 1, terminated=True)
    assert values(steps) == [1.0]


@pytest.mark.parametrize("arm", [0, 1])
def test_two_armed_pays_for_action_one(arm: int) -> None:
    steps = play(PROBES["two-armed"](), [arm])
    assert_one_episode(steps, 1, terminated=True)
    assert values(steps) == [float(arm)]


def test_delayed_reward_is_discounted() -> None:
    steps = play(PROBES["delayed"](), [0, 1, 0, 1, 1])
    assert_one_episode(steps, 5, terminated=True)
    assert values(steps) == pytest.approx([GAMMA**4, GAMMA**3, GAMMA**2, GAMMA, 1.0])
    np.testing.assert_array_equal(steps.observation, np.eye(6))


def test_truncated_constant_reward_has_the_value_of_an_endless_one() -> None:
    """The constant value is the fixed point of bootstrapping, and observations do not have the time."""
    steps = play(PROBES["truncated"](), [0] * 8)
    assert_one_episode(steps, 8, terminated=False)
    endless = 1.0 / (1.0 - GAMMA)
    assert values(steps, last_value=endless) == pytest.approx([endless] * 8)
    assert (steps.observation == steps.observation[0]).all()


def test_terminated_constant_reward_is_a_finite_sum() -> None:
    steps = play(PROBES["terminated"](), [0] * 8)
    assert_one_episode(steps, 8, terminated=True)
    expected = [(1.0 - GAMMA ** (8 - t)) / (1.0 - GAMMA) for t in range(8)]
    assert values(steps, last_value=123.0) == pytest.approx(expected)
    np.testing.assert_array_equal(steps.observation, np.eye(9))


def test_memory_pays_for_the_cue() -> None:
    """Only the last action counts; the cue is in the first observation only."""
    env = PROBES["memory"]()
    cues = set()
    for seed, choice in product(range(6), (0, 1)):
        steps = play(env, [0, 1, 1, 0, 1, choice], seed=seed)
        assert_one_episode(steps, 6, terminated=True)
        cue = float(steps.observation[0, 0])
        cues.add(cue)
        assert (steps.observation[1:] == 0.0).all()
        payment = 1.0 if choice == cue else -1.0
        assert values(steps) == pytest.approx([payment * GAMMA ** (5 - t) for t in range(6)])
    assert cues == {0.0, 1.0}


def test_corridor_pays_at_its_end() -> None:
    steps = play(PROBES["corridor"](), [LEFT, RIGHT, LEFT, STAY] + [RIGHT] * 29)
    assert_one_episode(steps, 33, terminated=True)
    place = steps.observation.argmax(-1)
    np.testing.assert_array_equal(place, [0, 0, 1, 0, *range(30)])
    assert values(steps)[4:] == pytest.approx([GAMMA ** (distance - 1) for distance in range(29, 0, -1)])


def test_corridor_is_truncated_at_the_limit() -> None:
    steps = play(PROBES["corridor"](), [RIGHT, LEFT] * 30)
    assert_one_episode(steps, 60, terminated=False)
    assert (steps.reward == 0.0).all()


def test_random_actions_do_not_reach_the_end_of_the_corridor() -> None:
    """Compute the exact probability from the transition matrix of the random walk."""
    cells, steps = 30, 60
    walk = np.zeros((cells, cells))
    for place in range(cells - 1):
        for after in (max(place - 1, 0), place, place + 1):
            walk[place, after] += 1 / 3
    walk[-1, -1] = 1.0  # the end
    assert np.linalg.matrix_power(walk, steps)[0, -1] < 1e-5


def test_television_shows_noise_after_the_watch_action() -> None:
    """Each watch action draws new pixels, also in another episode; after other actions they are 0."""
    env = PROBES["noisy-tv"]()
    actions = np.array([WATCH, RIGHT, WATCH, WATCH, LEFT, WATCH] * 10)
    steps, others = play(env, actions), play(env, actions, seed=1)
    place, screen = steps.observation[1:, :30], steps.observation[1:, 30:]
    watched = actions == WATCH
    np.testing.assert_array_equal(place.argmax(-1), [0, 1, 1, 1, 0, 0] * 10)
    assert (screen[~watched] == 0.0).all()
    assert set(screen[watched].ravel().tolist()) == {0.0, 1.0}
    assert screen[watched].mean() == pytest.approx(0.5, abs=0.1)
    assert len({tuple(look) for look in screen[watched].tolist()}) > 20
    assert (screen[watched] != others.observation[1:, 30:][watched]).any(-1).mean() > 0.9


def test_continuous_pays_for_the_target() -> None:
    """Actions beyond the bounds count as the bounds."""
    env = PROBES["continuous"]()
    for seed, aim in enumerate([-3.0, -1.0, 0.25, 1.0]):
        steps = play(env, continuous=[aim], seed=seed)
        assert_one_episode(steps, 1, terminated=True)
        target = steps.observation[0, 0]
        assert -0.8 <= target <= 0.8
        assert steps.reward[1] == pytest.approx(-((np.clip(aim, -1.0, 1.0) - target) ** 2), abs=1e-6)


def test_hybrid_needs_both_parts_of_the_action() -> None:
    env = PROBES["hybrid"]()
    shown = play(env, [0], [0.0]).observation[0]
    category, target = int(shown[:3].argmax()), float(shown[3])
    assert 0.4 <= abs(target) <= 0.8

    def reward(choice: int, aim: float) -> float:
        steps = play(env, [choice], [aim])
        assert_one_episode(steps, 1, terminated=True)
        return float(steps.reward[1])

    assert reward(category, target) == pytest.approx(1.0)
    assert reward(category, 0.0) == pytest.approx(1.0 - target**2, abs=1e-6)
    assert reward((category + 1) % 3, target) == pytest.approx(0.0, abs=1e-6)
    assert 1.0 - 0.4**2 < env.spec.success_threshold < 1.0
