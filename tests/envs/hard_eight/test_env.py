"""HardEight as an environment: spec, protocol, episodes, settings."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.checks import check_jit_env
from byol_explore.envs.families import HardEightSettings
from byol_explore.envs.hard_eight import env as env_module
from byol_explore.envs.hard_eight import tasks
from byol_explore.envs.hard_eight import world as world_module
from byol_explore.envs.hard_eight.env import HardEight, HardEightState
from byol_explore.envs.hard_eight.tasks import MOVES, TASKS
from byol_explore.envs.interface import list_tasks, merge_envs
from byol_explore.envs.names import EnvSettings
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Image, Tokens, Vector
from byol_explore.types import Action, TimeStep

SMALL = HardEightSettings("32x24", "discrete")
Step = Callable[[HardEightState, Action], tuple[HardEightState, TimeStep]]


@pytest.fixture(scope="module")
def every() -> HardEight:
    env = make_env("hard-eight:all", resolution="32x24", action_set="discrete")
    assert isinstance(env, HardEight)
    return env


@pytest.fixture(scope="module")
def starts(every: HardEight) -> tuple[HardEightState, TimeStep]:
    return jax.jit(jax.vmap(every.reset))(jax.random.split(jax.random.key(0), 64))


@pytest.fixture(scope="module")
def step(every: HardEight) -> Step:
    return jax.jit(jax.vmap(every.step))


def action(move: int, grip: int, count: int = 64) -> Action:
    return Action(jnp.broadcast_to(jnp.array([move, grip]), (count, 2)), jnp.zeros((count, 0)))


def test_spec_of_observations_and_actions() -> None:
    spec = make_env("hard-eight:drawbridge").spec
    words = Tokens(tasks.MAX_INSTRUCTION_WORDS, len(tasks.VOCABULARY) + 1)
    hand = dict.fromkeys(("hand_force", "hand_is_holding", "hand_distance"), Vector(1))
    assert spec.observation == {"rgb": Image(72, 96, 3), **hand, "instruction": words}
    assert spec.action == ActionSpec(discrete=(2,), continuous=8)
    assert make_env("hard-eight:drawbridge", action_set="discrete").spec.action == ActionSpec(discrete=(7, 2))
    assert make_env("hard-eight:drawbridge", resolution="48x36").spec.observation["rgb"] == Image(36, 48, 3)


def test_env_passes_the_jit_environment_checks(every: HardEight) -> None:
    check_jit_env("hard-eight:all", every)


def test_unknown_task_or_resolution_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"'wall_sensor'.*drawbridge, remember-sensor.*all"):
        make_env("hard-eight:wall_sensor")
    with pytest.raises(UserError, match="resolution 'large'; choose from: 96x72, 48x36, 32x24"):
        make_env("hard-eight:all", resolution="large")


def test_all_tasks_are_drawn_with_distinct_instructions(starts: tuple[HardEightState, TimeStep]) -> None:
    state, first = jax.tree.map(np.asarray, starts)
    assert set(state.level.task.tolist()) == set(range(8))
    np.testing.assert_array_equal(first.observation["instruction"], tasks.instructions()[state.level.task])
    assert len(np.unique(tasks.instructions(), axis=0)) == 8


def test_task_ids_follow_the_order_of_the_names(
    every: HardEight, starts: tuple[HardEightState, TimeStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one environment with all tasks, or with the named tasks in their order."""
    names = [f"hard-eight:{name}" for name in TASKS]
    assert [task.name for task in list_tasks(["hard-eight:all"], [every])] == names
    level = starts[0].level.task
    np.testing.assert_array_equal(jax.vmap(every.task_id)(starts[0]), level)
    chosen = [names[7], names[0], names[3]]
    [world] = merge_envs(make_envs(chosen, EnvSettings(hard_eight=SMALL)))
    assert isinstance(world, HardEight)
    assert [spec.name for spec in world.spec.tasks] == chosen
    assert [spec.max_steps for spec in world.spec.tasks] == [
        HardEight(name, SMALL).spec.max_steps for name in ("baseball", "drawbridge", "wall-sensor")
    ]
    mine = np.isin(level, [7, 0, 3])
    expected = [[7, 0, 3].index(number) for number in np.asarray(level)[mine].tolist()]
    np.testing.assert_array_equal(np.asarray(jax.vmap(world.task_id)(starts[0]))[mine], expected)
    begun: list[int] = []
    monkeypatch.setattr(env_module, "sample_level", lambda task, key: begun.append(int(task)))
    monkeypatch.setattr(HardEight, "_start_episode", lambda self, level: None)
    for number in range(3):
        world.reset_task(jax.random.key(0), jnp.asarray(number))
    assert begun == [7, 0, 3]
    assert not HardEight("drawbridge", SMALL).spec.tasks


def test_pictures_have_contrast(starts: tuple[HardEightState, TimeStep]) -> None:
    pictures = np.asarray(starts[1].observation["rgb"])
    assert pictures.shape == (64, 24, 32, 3)
    assert np.median([picture.reshape(-1, 3).std(0).max() for picture in pictures]) > 15


def test_episode_is_truncated_at_its_time_limit(
    every: HardEight, starts: tuple[HardEightState, TimeStep], step: Step
) -> None:
    limits = np.array([-(-tasks.max_ticks(name, "discrete") // 3) for name in TASKS])
    assert every.spec.max_steps == limits.max()
    state, _ = starts
    limit = limits[np.asarray(state.level.task)]
    for left, is_last in ((2, False), (1, True)):
        near = state._replace(time=jnp.asarray(limit - left, jnp.int32))
        timestep = step(near, action(0, 0))[1]
        assert (np.asarray(timestep.is_last) == is_last).all()
        assert (np.asarray(timestep.discount) == 1.0).all()
        assert not np.asarray(timestep.is_first).any()


def test_large_apple_pays_ten_and_terminates(starts: tuple[HardEightState, TimeStep], step: Step) -> None:
    state, _ = starts
    large = jnp.argmax(state.level.apples.reward, axis=1)
    place = jnp.take_along_axis(state.level.apples.centre, large[:, None, None], axis=2)[..., 0]
    there = state.world.agent._replace(centre=place.at[:, 2].add(0.3))
    after, timestep = step(state._replace(world=state.world._replace(agent=there)), action(2, 0))
    assert (np.asarray(timestep.reward) == 10.0).all(), "once, however many ticks an action lasts"
    assert (np.asarray(timestep.discount) == 0.0).all()
    assert np.asarray(timestep.is_last).all()
    assert (np.asarray(timestep.success) == 1).all()
    reached = np.asarray(after.stages_reached)
    assert reached[:, tasks.STAGES.index("large apple")].all()
    assert not reached[:, tasks.STAGES.index("opened")].any()


def test_discrete_moves_act_as_named(starts: tuple[HardEightState, TimeStep], step: Step) -> None:
    state, _ = starts
    before = jax.tree.map(np.asarray, state.world.agent)
    after = {move: jax.tree.map(np.asarray, step(state, action(n, 0))[0].world.agent) for n, move in enumerate(MOVES)}
    turn = np.angle(np.exp(1j * (after["turn left"].yaw - before.yaw)))
    np.testing.assert_allclose(turn, 3 * 2.6 / 15, atol=1e-3)
    np.testing.assert_allclose(after["look up"].pitch, 3 * 1.6 / 15, atol=1e-3)
    np.testing.assert_allclose(after["look down"].pitch, -3 * 1.6 / 15, atol=1e-3)
    heading = np.stack([np.cos(before.yaw), np.sin(before.yaw)], axis=1)
    for move, sign in (("forward", 1.0), ("back", -1.0)):
        gone = np.sum((after[move].centre - before.centre)[:, :2] * heading, axis=1)
        assert np.median(sign * gone) == pytest.approx(0.6, abs=0.05)


def test_continuous_actions_are_clipped_and_nans_count_as_zero() -> None:
    numbers = jnp.array([7.0, -7.0, jnp.inf, -jnp.inf, jnp.nan, 0.5, -0.5, jnp.nan])
    control = world_module.decode_action(Action(jnp.ones((1,), int), numbers), "continuous")
    assert [float(number) for number in control[:8]] == [1.0, -1.0, 1.0, -1.0, 0.0, 0.5, -0.5, 0.0]
    assert bool(control.grip)


def test_push_with_an_empty_hand_changes_nothing(starts: tuple[HardEightState, TimeStep], step: Step) -> None:
    """So the discrete set needs no separate no-op."""
    before, after = starts[0].world, step(starts[0], action(MOVES.index("push"), 0))[0].world
    for now, then in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        np.testing.assert_allclose(now, then, atol=5e-3)


def test_stages_are_reported_but_not_observed(every: HardEight, starts: tuple[HardEightState, TimeStep]) -> None:
    state, first = starts
    assert not np.asarray(jax.vmap(every.stages_reached)(state)).any()
    assert "stages" not in first.observation
