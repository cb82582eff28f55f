"""Episodes outside jit: the masks at every kind of boundary, and several tasks in one batch."""

import numpy as np
import pytest

from byol_explore.envs.host import Boundaries, HostEnvironment
from byol_explore.envs.host_tasks import TaskBatch, make_batch
from byol_explore.envs.worlds.probes import PROBES
from byol_explore.spaces import ActionSpec
from byol_explore.types import UNSAID, Action, TimeStep
from host_worlds import EPISODES, Outside, Scripted, ScriptedBatch, crash, payment, seen, timeline

NOTHING = np.zeros(4, bool)
TERMINATED, TRUNCATED, BOTH, RUNNING = np.eye(4, dtype=bool)  # one environment of each kind


def ended() -> tuple[Boundaries, TimeStep]:
    """The first three environments have just ended, each in its way."""
    boundaries = Boundaries(4)
    boundaries.first(np.zeros(4))
    reward = np.array([1.0, 2.0, 3.0, 4.0])
    return boundaries, boundaries.next(np.arange(4), reward, TERMINATED | BOTH, TRUNCATED | BOTH)


def assert_step(step: TimeStep, reward: list[float], discount: list[float], is_first: np.ndarray,
                is_last: np.ndarray) -> None:  # fmt: skip
    np.testing.assert_array_equal(step.reward, np.float32(reward))
    np.testing.assert_array_equal(step.discount, np.float32(discount))
    np.testing.assert_array_equal(step.is_first, is_first)
    np.testing.assert_array_equal(step.is_last, is_last)
    assert (step.reward.dtype, step.discount.dtype) == (np.float32, np.float32)
    assert (step.is_first.dtype, step.is_last.dtype) == (bool, bool)


def test_a_reset_begins_episodes_everywhere() -> None:
    step = Boundaries(4).first(np.arange(4))
    assert_step(step, [0, 0, 0, 0], [1, 1, 1, 1], ~NOTHING, NOTHING)
    np.testing.assert_array_equal(step.observation, np.arange(4))


def test_an_end_keeps_its_reward_and_only_termination_takes_the_future() -> None:
    _, step = ended()
    assert_step(step, [1, 2, 3, 4], [0, 1, 0, 1], NOTHING, ~RUNNING)
    np.testing.assert_array_equal(step.observation, np.arange(4))


def test_the_step_after_an_end_only_begins_the_next_episode() -> None:
    boundaries, _ = ended()
    step = boundaries.next(np.arange(4) + 10, np.array([5.0, 6.0, 7.0, 8.0]), NOTHING, NOTHING)
    assert_step(step, [0, 0, 0, 8], [1, 1, 1, 1], ~RUNNING, NOTHING)
    np.testing.assert_array_equal(step.observation, np.arange(4) + 10)
    step = boundaries.next(np.arange(4), np.ones(4), NOTHING, NOTHING)
    assert_step(step, [1, 1, 1, 1], [1, 1, 1, 1], NOTHING, NOTHING)


@pytest.mark.parametrize("reward", [99.0, np.nan, np.inf])
def test_nonsense_that_comes_with_a_reset_is_ignored(reward: float) -> None:
    """Rewards and ends; an episode does not end where it begins, and the one after it is whole."""
    boundaries, _ = ended()
    step = boundaries.next(np.zeros(4), np.full(4, reward), ~RUNNING, ~RUNNING)
    assert_step(step, [0, 0, 0, reward], [1, 1, 1, 1], ~RUNNING, NOTHING)
    step = boundaries.next(np.zeros(4), np.ones(4), TERMINATED, NOTHING)
    assert_step(step, [1, 1, 1, 1], [0, 1, 1, 1], NOTHING, TERMINATED)


def test_what_is_said_of_success_counts_where_an_episode_ends() -> None:
    boundaries, last = ended()
    assert (last.success.tolist(), last.success.dtype) == ([UNSAID] * 4, np.int8)
    said = np.array([1, 0, UNSAID, 1])
    assert boundaries.next(np.zeros(4), np.ones(4), NOTHING, NOTHING, said).success.tolist() == [UNSAID] * 4
    assert boundaries.next(np.zeros(4), np.ones(4), ~RUNNING, NOTHING, said).success.tolist() == [1, 0, UNSAID, UNSAID]
    assert boundaries.first(np.zeros(4)).success.tolist() == [UNSAID] * 4


def test_tasks_that_judge_their_episodes_share_a_batch_with_others() -> None:
    """A world from inside jit says nothing of success in its time steps; one that does is asked in its turn."""
    batch = TaskBatch([Silent(), Scripted()], 4, seed=0)
    assert batch.reset().success.tolist() == [UNSAID] * 4
    assert batch.step(Action(np.zeros((4, 1), int), np.zeros((4, 0)))).success.dtype == np.int8


class Silent(Scripted):
    """Leaves success out of its time steps."""

    def batch(self, num_envs: int, seed: int) -> "SilentBatch":
        return SilentBatch(self, num_envs, seed)


class SilentBatch(ScriptedBatch):
    def _give(self, answer: TimeStep) -> TimeStep:
        return answer._replace(success=None)


def test_an_episode_of_one_step_can_follow_another() -> None:
    boundaries = Boundaries(1)
    boundaries.first(np.zeros(1))
    always = np.ones(1, bool)
    steps = [boundaries.next(np.zeros(1), np.ones(1), always, ~always) for _ in range(6)]
    np.testing.assert_array_equal([step.is_last[0] for step in steps], [True, False] * 3)
    np.testing.assert_array_equal([step.is_first[0] for step in steps], [False, True] * 3)
    np.testing.assert_array_equal([step.reward[0] for step in steps], [1, 0] * 3)
    np.testing.assert_array_equal([step.discount[0] for step in steps], [0, 1] * 3)


def test_a_reset_forgets_the_ends_before_it() -> None:
    boundaries, _ = ended()
    assert_step(boundaries.first(np.zeros(4)), [0, 0, 0, 0], [1, 1, 1, 1], ~NOTHING, NOTHING)
    step = boundaries.next(np.zeros(4), np.ones(4), NOTHING, NOTHING)
    assert_step(step, [1, 1, 1, 1], [1, 1, 1, 1], NOTHING, NOTHING)


def test_a_step_does_not_change_the_ones_before_it() -> None:
    boundaries, last = ended()
    first = boundaries.next(np.zeros(4), np.ones(4), NOTHING, NOTHING)
    boundaries.next(np.zeros(4), np.ones(4), ~NOTHING, NOTHING)
    assert_step(last, [1, 2, 3, 4], [0, 1, 0, 1], NOTHING, ~RUNNING)
    assert_step(first, [0, 0, 0, 1], [1, 1, 1, 1], ~RUNNING, NOTHING)


def test_a_scripted_world_is_what_its_script_says() -> None:
    """Every step of every environment, through all kinds of ends several times."""
    batch = Scripted().batch(len(EPISODES), seed=0)
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
    """Environment i plays task i mod tasks and gets its own action and its own answer."""
    worlds = [Scripted(name=str(task)) for task in range(3)]
    batch = TaskBatch(worlds, num_envs=6, seed=5)
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
    np.testing.assert_array_equal(batch.places()[:, 1], 8 * moments[:, 2])
    np.testing.assert_array_equal(batch.render(), worlds[0].batches[0].render())
    batch.close()
    assert [world.still_open for world in worlds] == [0, 0, 0]


def test_both_parts_of_an_action_reach_their_task() -> None:
    received: list[Action] = []

    class Recorder(Scripted):
        def batch(self, num_envs: int, seed: int) -> "Recorder":  # pyright: ignore[reportIncompatibleMethodOverride]
            return self

        def step(self, action: Action) -> TimeStep:
            received.append(action)
            return Boundaries(2).first(np.zeros((2, 4)))

    batch = TaskBatch([Recorder(), Recorder()], num_envs=4, seed=0)
    batch.step(Action(np.arange(4)[:, None], np.arange(8.0).reshape(4, 2)))
    for task, action in enumerate(received):
        np.testing.assert_array_equal(action.discrete, [[task], [task + 2]])
        np.testing.assert_array_equal(action.continuous, np.array([[0, 1], [4, 5]]) + 2 * task)


def test_when_a_task_cannot_start_the_others_end() -> None:
    error = OSError("no such game")
    good, bad = Scripted(), Scripted(crash("batch", 0, error))
    with pytest.raises(OSError, match="no such game") as raised:
        TaskBatch([good, bad], num_envs=4, seed=0)
    assert raised.value is error
    assert (len(good.batches), good.still_open) == (1, 0)


def test_one_task_needs_no_interleaving() -> None:
    world = Scripted()
    assert make_batch([world], 3, seed=7) is world.batches[0]
    assert (world.batches[0].num_envs, world.batches[0].seed) == (3, 7)
    assert isinstance(make_batch([world, Scripted()], 4, seed=7), TaskBatch)


def test_worlds_inside_jit_are_told_from_those_outside() -> None:
    probe = PROBES["memory"]()
    assert isinstance(Scripted(), HostEnvironment)
    assert isinstance(Outside(probe), HostEnvironment)
    assert not isinstance(probe, HostEnvironment)
    assert Scripted().spec.action == ActionSpec(discrete=(3,))
