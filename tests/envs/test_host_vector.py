"""Vector environments outside jit: episode boundaries, and several tasks in one batch."""

import numpy as np
import pytest

from byol_explore.envs.host_vector import FixedTaskBatch, TimeStepBuilder, make_host_vector_env
from byol_explore.envs.interface import HostEnvironment
from byol_explore.envs.probes.worlds import PROBES
from byol_explore.spaces import ActionSpec
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep
from host_worlds import EPISODES, Outside, Scripted, ScriptedBatch, crash, payment, seen, timeline

NOTHING = np.zeros(4, bool)
TERMINATED, TRUNCATED, BOTH, RUNNING = np.eye(4, dtype=bool)  # one environment of each kind


def ended() -> tuple[TimeStepBuilder, TimeStep]:
    """Build the step at which the first three environments end, each in another way."""
    boundaries = TimeStepBuilder(4)
    boundaries.on_reset(np.zeros(4))
    reward = np.array([1.0, 2.0, 3.0, 4.0])
    return boundaries, boundaries.on_step(np.arange(4), reward, TERMINATED | BOTH, TRUNCATED | BOTH)


def assert_step(step: TimeStep, reward: list[float], discount: list[float], is_first: np.ndarray,
                is_last: np.ndarray) -> None:  # fmt: skip
    np.testing.assert_array_equal(step.reward, np.float32(reward))
    np.testing.assert_array_equal(step.discount, np.float32(discount))
    np.testing.assert_array_equal(step.is_first, is_first)
    np.testing.assert_array_equal(step.is_last, is_last)
    assert (step.reward.dtype, step.discount.dtype) == (np.float32, np.float32)
    assert (step.is_first.dtype, step.is_last.dtype) == (bool, bool)


def test_reset_begins_episodes_in_all_environments() -> None:
    step = TimeStepBuilder(4).on_reset(np.arange(4))
    assert_step(step, [0, 0, 0, 0], [1, 1, 1, 1], ~NOTHING, NOTHING)
    np.testing.assert_array_equal(step.observation, np.arange(4))


def test_only_termination_sets_the_discount_to_zero() -> None:
    _, step = ended()
    assert_step(step, [1, 2, 3, 4], [0, 1, 0, 1], NOTHING, ~RUNNING)
    np.testing.assert_array_equal(step.observation, np.arange(4))


def test_the_step_after_an_end_only_begins_the_next_episode() -> None:
    boundaries, _ = ended()
    step = boundaries.on_step(np.arange(4) + 10, np.array([5.0, 6.0, 7.0, 8.0]), NOTHING, NOTHING)
    assert_step(step, [0, 0, 0, 8], [1, 1, 1, 1], ~RUNNING, NOTHING)
    np.testing.assert_array_equal(step.observation, np.arange(4) + 10)
    step = boundaries.on_step(np.arange(4), np.ones(4), NOTHING, NOTHING)
    assert_step(step, [1, 1, 1, 1], [1, 1, 1, 1], NOTHING, NOTHING)


@pytest.mark.parametrize("reward", [99.0, np.nan, np.inf])
def test_results_of_the_resetting_step_are_ignored(reward: float) -> None:
    """Rewards and ends: an episode does not end at its first observation."""
    boundaries, _ = ended()
    step = boundaries.on_step(np.zeros(4), np.full(4, reward), ~RUNNING, ~RUNNING)
    assert_step(step, [0, 0, 0, reward], [1, 1, 1, 1], ~RUNNING, NOTHING)
    step = boundaries.on_step(np.zeros(4), np.ones(4), TERMINATED, NOTHING)
    assert_step(step, [1, 1, 1, 1], [0, 1, 1, 1], NOTHING, TERMINATED)


def test_success_counts_at_the_end_of_an_episode() -> None:
    boundaries, last = ended()
    assert (last.success.tolist(), last.success.dtype) == ([UNKNOWN_SUCCESS] * 4, np.int8)
    said = np.array([1, 0, UNKNOWN_SUCCESS, 1])
    assert boundaries.on_step(np.zeros(4), np.ones(4), NOTHING, NOTHING, said).success.tolist() == [UNKNOWN_SUCCESS] * 4
    assert boundaries.on_step(np.zeros(4), np.ones(4), ~RUNNING, NOTHING, said).success.tolist() == [
        1,
        0,
        UNKNOWN_SUCCESS,
        UNKNOWN_SUCCESS,
    ]
    assert boundaries.on_reset(np.zeros(4)).success.tolist() == [UNKNOWN_SUCCESS] * 4


def test_an_episode_of_one_step_can_follow_another() -> None:
    boundaries = TimeStepBuilder(1)
    boundaries.on_reset(np.zeros(1))
    always = np.ones(1, bool)
    steps = [boundaries.on_step(np.zeros(1), np.ones(1), always, ~always) for _ in range(6)]
    np.testing.assert_array_equal([step.is_last[0] for step in steps], [True, False] * 3)
    np.testing.assert_array_equal([step.is_first[0] for step in steps], [False, True] * 3)
    np.testing.assert_array_equal([step.reward[0] for step in steps], [1, 0] * 3)
    np.testing.assert_array_equal([step.discount[0] for step in steps], [0, 1] * 3)


def test_reset_clears_earlier_ends() -> None:
    boundaries, _ = ended()
    assert_step(boundaries.on_reset(np.zeros(4)), [0, 0, 0, 0], [1, 1, 1, 1], ~NOTHING, NOTHING)
    step = boundaries.on_step(np.zeros(4), np.ones(4), NOTHING, NOTHING)
    assert_step(step, [1, 1, 1, 1], [1, 1, 1, 1], NOTHING, NOTHING)


def test_a_step_does_not_change_earlier_time_steps() -> None:
    boundaries, last = ended()
    first = boundaries.on_step(np.zeros(4), np.ones(4), NOTHING, NOTHING)
    boundaries.on_step(np.zeros(4), np.ones(4), ~NOTHING, NOTHING)
    assert_step(last, [1, 2, 3, 4], [0, 1, 0, 1], NOTHING, ~RUNNING)
    assert_step(first, [0, 0, 0, 1], [1, 1, 1, 1], ~RUNNING, NOTHING)


def test_the_scripted_environment_follows_its_script() -> None:
    """Check every step of every environment, over several ends of each kind."""
    batch = Scripted().make_vector_env(len(EPISODES), seed=0)
    rng, steps = np.random.default_rng(0), 60
    lives = [timeline(env, steps) for env in range(batch.num_envs)]
    answer = batch.reset()
    kinds = set()
    for t in range(1, steps + 1):
        action = rng.integers(0, 3, (batch.num_envs, 1))
        answer = batch.step(Action(action, np.zeros((batch.num_envs, 0))))
        for env, life in enumerate(lives):
            now = life[t]
            np.testing.assert_array_equal(seen(answer.observation[env]), now)
            assert answer.is_first[env] == (now.time == 0)
            assert answer.is_last[env] == (now.time == now.script.length)
            assert answer.reward[env] == (payment(int(action[env, 0]), now.time) if now.time else 0.0)
            assert answer.discount[env] == (0.0 if now.is_last and now.script.terminated else 1.0)
            kinds.add((now.is_last, now.script.terminated, now.script.truncated))
    assert len(kinds) == 6, "three kinds of ends, and the middle of each"


# Several tasks


def test_tasks_are_interleaved() -> None:
    """Environment i plays task i mod tasks, with its own action and time step."""
    worlds = [Scripted(name=str(task)) for task in range(3)]
    batch = FixedTaskBatch(worlds, num_envs=6, seed=5)
    assert [world.batches[0].num_envs for world in worlds] == [2, 2, 2]
    assert len({world.batches[0].seed for world in worlds}) == 3
    first = batch.reset()
    np.testing.assert_array_equal(first.is_first, np.ones(6, bool))
    worlds[1].batches[0].step(Action(np.zeros((2, 1), int), np.zeros((2, 0))))  # now it is one step ahead
    choices = np.array([0, 1, 2, 2, 1, 0])
    step = batch.step(Action(choices[:, None], np.zeros((6, 0))))
    moments = seen(step.observation)
    np.testing.assert_array_equal(moments[:, 0], [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(moments[:, 3], [1, 2, 1, 1, 2, 1])
    # Environment 4, the second of task 1, has ended its episode of one step and begins the next.
    np.testing.assert_array_equal(step.is_first, [False, False, False, False, True, False])
    np.testing.assert_array_equal(step.is_last, [False, False, False, True, False, True])
    expected = [payment(choice, time) if time else 0.0 for choice, time in zip(choices, moments[:, 2], strict=True)]
    np.testing.assert_array_equal(step.reward, np.float32(expected))
    np.testing.assert_array_equal(batch.positions()[:, 1], 8 * moments[:, 2])
    np.testing.assert_array_equal(batch.render(), worlds[0].batches[0].render())
    batch.close()
    assert [world.still_open for world in worlds] == [0, 0, 0]


def test_both_parts_of_an_action_are_split_by_task() -> None:
    received: list[Action] = []

    class Recorder(ScriptedBatch):
        def step(self, action: Action) -> TimeStep:
            received.append(action)
            return TimeStepBuilder(2).on_reset(np.zeros((2, 4)))

    class Recorded(Scripted):
        def make_vector_env(self, num_envs: int, seed: int) -> Recorder:
            return Recorder(self, num_envs, seed)

    batch = FixedTaskBatch([Recorded(), Recorded()], num_envs=4, seed=0)
    batch.step(Action(np.arange(4)[:, None], np.arange(8.0).reshape(4, 2)))
    for task, action in enumerate(received):
        np.testing.assert_array_equal(action.discrete, [[task], [task + 2]])
        np.testing.assert_array_equal(action.continuous, np.array([[0, 1], [4, 5]]) + 2 * task)


def test_failed_start_of_a_task_closes_the_others() -> None:
    error = OSError("no such game")
    good, bad = Scripted(), Scripted(crash("batch", 0, error))
    with pytest.raises(OSError, match="no such game") as raised:
        FixedTaskBatch([good, bad], num_envs=4, seed=0)
    assert raised.value is error
    assert (len(good.batches), good.still_open) == (1, 0)


def test_one_task_needs_no_interleaving() -> None:
    world = Scripted()
    assert make_host_vector_env([world], 3, seed=7) is world.batches[0]
    assert (world.batches[0].num_envs, world.batches[0].seed) == (3, 7)
    assert isinstance(make_host_vector_env([world, Scripted()], 4, seed=7), FixedTaskBatch)


def test_environments_inside_jit_are_not_host_environments() -> None:
    probe = PROBES["memory"]()
    assert isinstance(Scripted(), HostEnvironment)
    assert isinstance(Outside(probe), HostEnvironment)
    assert not isinstance(probe, HostEnvironment)
    assert Scripted().spec.action == ActionSpec(discrete=(3,))
