"""Automatic resets inside jit, with a scripted environment that observes its own state."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.interface import EnvSpec, JitEnvironment
from byol_explore.envs.vector import AutoReset, RandomTaskVectorEnv, VectorEnv
from byol_explore.spaces import ActionSpec
from byol_explore.types import UNKNOWN_SUCCESS, Action, Array, PyTree, TimeStep

ACTIONS = 100
UNKNOWN = jnp.full((), UNKNOWN_SUCCESS, jnp.int8)


class Scripted(JitEnvironment):
    """Draws an episode number, which gives the length, 1 to `longest`, and the kind of end: odd ones terminate.

    The reward is the action plus one. `world` numbers several environments.
    """

    def __init__(self, world: int = 0, longest: int = 5, *, fixed: bool = False) -> None:
        self.world, self.longest, self.fixed = world, longest, fixed
        shapes = {name: jax.ShapeDtypeStruct((), jnp.int32) for name in ("world", "episode", "time", "action")}
        self.spec = EnvSpec("scripted", shapes, ActionSpec(discrete=(ACTIONS,)), longest)

    def length(self, episode: Array) -> Array:
        return self.longest if self.fixed else episode % self.longest + 1

    def reset(self, key: Array) -> tuple[dict[str, Array], TimeStep]:
        episode = jax.random.bits(key) >> 2
        state = {"world": self.world, "episode": episode, "time": 0, "action": -1}
        state = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), state)
        return state, TimeStep(state, jnp.zeros(()), jnp.ones(()), jnp.array(True), jnp.array(False), UNKNOWN)

    def step(self, state: dict[str, Array], action: Action) -> tuple[dict[str, Array], TimeStep]:
        choice = action.discrete[0]
        state = state | {"time": state["time"] + 1, "action": choice}
        ended = state["time"] == self.length(state["episode"])
        discount = jnp.where(ended & (state["episode"] % 2 == 1), 0.0, 1.0)
        return state, TimeStep(state, choice + 1.0, discount, jnp.array(False), ended, UNKNOWN)

    def render(self, state: dict[str, Array]) -> np.ndarray:
        return np.zeros((1, 1, 3), np.uint8)


Stream = tuple[TimeStep, np.ndarray]  # time steps [T, B], and the actions [T-1, B] between them
Player = Callable[[int], Stream]


def player(envs: AutoReset | VectorEnv | RandomTaskVectorEnv, steps: int) -> Player:
    """Return a function that plays a batch from a seed; the random actions are the same for every seed."""
    actions = np.random.default_rng(0).integers(0, ACTIONS, (steps, envs.num_envs), np.int32)

    def step(state: PyTree, choice: Array) -> tuple[PyTree, TimeStep]:
        return envs.step(state, Action(choice[:, None], jnp.zeros((envs.num_envs, 0))))

    @jax.jit
    def run(key: Array) -> TimeStep:
        start = jax.random.split(key, envs.num_envs) if isinstance(envs, AutoReset) else key
        state, first = envs.reset(start)
        _, rest = jax.lax.scan(step, state, actions)
        return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, rest)

    return lambda seed: (jax.tree.map(np.asarray, run(jax.random.key(seed))), actions)


@pytest.fixture(scope="module")
def play() -> Player:
    return player(AutoReset(Scripted(), num_envs=12), steps=60)


@pytest.fixture(scope="module")
def random_ends(play: Player) -> Stream:
    return play(0)


def test_every_step_is_the_scripted_one(random_ends: Stream) -> None:
    """Compute each step from the one before and the action."""
    steps, actions = random_ends
    seen = steps.observation
    for t, i in np.ndindex(actions.shape):
        after = t + 1
        if steps.is_last[t, i]:
            assert seen["time"][after, i] == 0
            assert (steps.is_first[after, i], steps.is_last[after, i]) == (True, False)
            assert (steps.reward[after, i], steps.discount[after, i]) == (0.0, 1.0)
            continue
        assert seen["episode"][after, i] == seen["episode"][t, i]
        assert seen["time"][after, i] == seen["time"][t, i] + 1
        assert not steps.is_first[after, i]
        assert steps.reward[after, i] == actions[t, i] + 1
        ended = seen["time"][after, i] == seen["episode"][t, i] % 5 + 1
        assert steps.is_last[after, i] == ended
        assert steps.discount[after, i] == (0.0 if ended and seen["episode"][t, i] % 2 else 1.0)


def test_both_kinds_of_end_keep_their_last_observation(random_ends: Stream) -> None:
    steps, _ = random_ends
    episode, time = steps.observation["episode"], steps.observation["time"]
    np.testing.assert_array_equal(time[steps.is_last], episode[steps.is_last] % 5 + 1)
    assert set(steps.discount[steps.is_last]) == {0.0, 1.0}
    assert (steps.discount[~steps.is_last] == 1.0).all()


def test_action_after_the_last_observation_is_ignored(random_ends: Stream) -> None:
    steps, actions = random_ends
    dummy = steps.is_last[:-1]
    assert dummy.any()
    assert (steps.observation["action"][1:][dummy] == -1).all()
    np.testing.assert_array_equal(steps.observation["action"][1:][~dummy], actions[~dummy])


def test_all_episodes_differ(random_ends: Stream) -> None:
    """Between environments and within each."""
    steps, _ = random_ends
    started = steps.observation["episode"][steps.is_first]
    assert len(set(started.tolist())) == len(started) > 100


@pytest.mark.parametrize("num_envs", [1, 37])
def test_all_may_end_in_one_step(num_envs: int) -> None:
    """There are more ends than environments that are reset at once."""
    steps, _ = player(AutoReset(Scripted(longest=3, fixed=True), num_envs), steps=9)(0)
    expected = np.tile(np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])[:, None], num_envs)
    np.testing.assert_array_equal(steps.observation["time"], expected)
    np.testing.assert_array_equal(steps.is_last, expected == 3)
    np.testing.assert_array_equal(steps.is_first, expected == 0)
    started = steps.observation["episode"][steps.is_first]
    assert len(set(started.tolist())) == 3 * num_envs


def test_stream_depends_on_the_key_alone(play: Player, random_ends: Stream) -> None:
    (again, _), (other, _) = play(0), play(1)
    jax.tree.map(np.testing.assert_array_equal, random_ends[0], again)
    assert (again.observation["episode"] != other.observation["episode"]).all()


def test_tasks_are_interleaved() -> None:
    """Environment i plays task i mod tasks, with its own actions and episodes."""
    lengths = (2, 3, 5)
    envs = VectorEnv([Scripted(world, longest, fixed=True) for world, longest in enumerate(lengths)], 12)
    steps, actions = player(envs, steps=30)(0)
    task = np.arange(12) % 3
    np.testing.assert_array_equal(envs.task_id(envs.reset(jax.random.key(0))[0]), task)
    np.testing.assert_array_equal(steps.observation["world"], np.broadcast_to(task, (31, 12)))
    period = np.asarray(lengths)[task] + 1  # the last observation of an episode and the next first are two steps
    np.testing.assert_array_equal(steps.observation["time"], np.arange(31)[:, None] % period)
    valid = ~steps.is_first[1:]
    np.testing.assert_array_equal(steps.observation["action"][1:][valid], actions[valid])
    np.testing.assert_array_equal(steps.reward[1:][valid], actions[valid] + 1)
    same_episode = steps.observation["episode"][1:] == steps.observation["episode"][:-1]
    np.testing.assert_array_equal(same_episode, valid)


class WithSuccess(Scripted):
    """Episodes that terminate are successes, as all observations but the first say."""

    def step(self, state: dict[str, Array], action: Action) -> tuple[dict[str, Array], TimeStep]:
        state, timestep = super().step(state, action)
        return state, timestep._replace(success=(state["episode"] % 2 == 1).astype(jnp.int8))


def test_tasks_with_and_without_success_in_one_batch() -> None:
    steps, _ = player(VectorEnv([WithSuccess(0), Scripted(1)], 6), steps=30)(0)
    assert (steps.success.shape, steps.success.dtype) == ((31, 6), np.int8)
    np.testing.assert_array_equal(steps.success[:, 1::2], UNKNOWN_SUCCESS)
    ended, success = steps.is_last[:, ::2], steps.success[:, ::2]
    assert ended.any()
    np.testing.assert_array_equal(success[ended], steps.discount[:, ::2][ended] == 0.0)
    assert set(success[ended].tolist()) == {0, 1}


def test_tasks_must_share_the_environments_evenly() -> None:
    with pytest.raises(ValueError, match=r"10 environments .* 3 tasks"):
        VectorEnv([Scripted(world) for world in range(3)], 10)


def test_a_zero_action_has_the_shapes_of_its_space() -> None:
    action = ActionSpec(discrete=(3, 4), continuous=5).zero()
    assert (action.discrete.shape, action.discrete.dtype) == ((2,), jnp.int32)
    assert (action.continuous.shape, action.continuous.dtype) == ((5,), jnp.float32)


class WithPosition(Scripted):
    """Has the position (world, time)."""

    floor_shape = (3, 6)

    def position(self, state: dict[str, Array]) -> Array:
        return jnp.stack([state["world"], state["time"]])

    def floor_plan(self) -> list[str]:
        return ["......"] * 3


def test_positions_are_in_the_order_of_the_environments() -> None:
    envs = VectorEnv([WithPosition(world) for world in range(3)], 6)
    states, timestep = envs.reset(jax.random.key(0))
    for _ in range(3):
        places = np.asarray(envs.positions(states))
        expected = np.stack([timestep.observation["world"], timestep.observation["time"]], axis=1)
        np.testing.assert_array_equal(places, expected)
        states, timestep = envs.step(states, Action(jnp.zeros((6, 1), jnp.int32), jnp.zeros((6, 0))))
    assert places.any()


def test_positions_are_empty_unless_every_task_has_a_floor_plan() -> None:
    envs = VectorEnv([WithPosition(0), Scripted(1)], 4)
    states, _ = envs.reset(jax.random.key(0))
    assert envs.positions(states).shape == (4, 0)
