"""The episode window: by hand, against a slow reference, and where quick successes would bias it."""

import json
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byol_explore.evaluation.rollouts import SuccessRule
from byol_explore.runtime.base import EpisodeStats, RolloutStats
from byol_explore.training.episode_window import EpisodeWindow
from byol_explore.types import UNKNOWN_SUCCESS
from references import fair_samples

INFINITY = float("inf")


class Played(NamedTuple):
    """An episode of a script."""

    length: int
    value: float  # its return
    flag: int = UNKNOWN_SUCCESS  # by the environment


def script(lives: list[list[Played]], steps: int) -> EpisodeStats:
    """Return statistics [T, E] of environments that play these episodes from step 0; noise where no episode ends."""
    shape = steps, len(lives)
    stream = EpisodeStats(np.zeros(shape, bool), np.full(shape, 99.0), np.full(shape, 99), np.full(shape, 1, np.int8))
    for env, life in enumerate(lives):
        end = -1
        for episode in life:
            end += episode.length + 1  # one step is the reset
            if end <= steps:
                for field, value in zip(stream, (True, episode.value, episode.length, episode.flag), strict=True):
                    field[end - 1, env] = value
    return stream


def feed(window: EpisodeWindow, stream: EpisodeStats, first: int, last: int) -> None:
    """Give the window a rollout of all environments; environment i plays task i mod tasks."""
    episodes = EpisodeStats(*(field[first:last] for field in stream))
    envs = np.arange(episodes.ended.shape[1])
    task = np.broadcast_to(envs % len(window.tasks), episodes.ended.shape)
    places = np.zeros((*task.shape, 0), np.uint8)
    window.on_rollout(RolloutStats(envs, task, episodes, places, np.zeros(task.shape)), at=0)


def window_of(num_envs: int, size: int = 3, above: tuple[float, ...] = (0.0,), max_steps: int = 1000) -> EpisodeWindow:
    tasks = ["maze", "cave", "well"][: len(above)]
    return EpisodeWindow(tasks, size, [SuccessRule(value) for value in above], [max_steps] * len(above), num_envs)


def play_steps(window: EpisodeWindow, lives: list[list[Played]], steps: int) -> EpisodeWindow:
    feed(window, script(lives, steps), 0, steps)
    return window


# Quick successes and slow failures

QUICK, SLOW = Played(2, 1.0), Played(20, 0.0)


def test_the_window_waits_for_running_failures() -> None:
    """One environment of four succeeds again and again, the others fail slowly: all ended episodes are successes."""
    lives = [[QUICK] * 9, [SLOW, QUICK], [SLOW, SLOW], [SLOW, QUICK]]
    window, stream = window_of(4, size=100), script(lives, 30)
    for step in range(19):
        feed(window, stream, step, step + 1)
        assert window.metrics()["success_rate"] is None, step
        assert window.min_success() is window.score() is None
    assert window.metrics() == {
        "success_rate": None, "return_mean": None, "episode_length": None, "episode_return_max": 1.0, "num_episodes": 6,
    }  # fmt: skip
    feed(window, stream, 19, 20)
    assert window.metrics()["success_rate"] == pytest.approx(1 / 4), "of all that began at step 0"
    feed(window, stream, 20, 30)
    assert window.metrics()["success_rate"] == pytest.approx(4 / 7), "and at 3, 6 and 9: 20 steps before"


def test_only_counted_episodes_fill_the_window() -> None:
    lives = [[QUICK] * 12, [SLOW, SLOW]]
    assert not play_steps(window_of(2, size=3), lives, 22).is_full()
    full = play_steps(window_of(2, size=3), lives, 23)
    assert full.is_full()
    assert full.min_success() == pytest.approx(2 / 3), "two that began at step 0 and one at step 3"


def test_successes_between_running_failures_wait_for_the_failures() -> None:
    """The second environment fails from step 2 on, the fourth from step 9 on; four began in between and succeeded."""
    lives = [[SLOW, SLOW], [Played(1, 0.0), SLOW], [QUICK] * 9, [Played(8, 0.0), SLOW]]
    window, stream = window_of(4, size=100), script(lives, 40)
    feed(window, stream, 0, 20)
    assert window.metrics()["success_rate"] == pytest.approx(1 / 4)
    feed(window, stream, 20, 22)
    assert window.metrics()["success_rate"] == pytest.approx(1 / 5), "the failure that began at step 2 is added alone"


def test_the_success_rate_is_unbiased_at_any_time() -> None:
    """A quarter succeeds within 2 steps, the others fail after 20: of the first episodes to end all are successes."""
    random = np.random.default_rng(0)
    lives = [[QUICK if win else SLOW for win in random.random(20) < 0.25] for _ in range(400)]
    stream = script(lives, 45)
    window = window_of(400, size=10_000)
    feed(window, stream, 0, 19)
    for step in range(19, 45):
        feed(window, stream, step, step + 1)
        assert window.metrics()["success_rate"] == pytest.approx(0.25, abs=0.06)
    first = stream.ended[:19]
    assert np.mean(stream.episode_return[:19][first] > 0) == 1.0


def test_episodes_with_equal_starts_are_ordered_by_environment() -> None:
    lives = [[Played(5, 1.0)], [Played(1, 2.0)], [Played(3, 3.0)]]
    assert play_steps(window_of(3, size=2), lives, 5).metrics()["return_mean"] == 2.5


def test_the_window_does_not_wait_beyond_max_steps() -> None:
    """Such an episode still counts when it ends."""
    lives = [[Played(1, 1.0)] * 5, [Played(9, 0.0)]]
    window, stream = window_of(2, size=20, max_steps=6), script(lives, 10)
    feed(window, stream, 0, 6)
    assert window.metrics()["success_rate"] is None
    feed(window, stream, 6, 7)
    assert window.metrics()["success_rate"] == 1.0
    feed(window, stream, 7, 10)
    assert window.metrics()["success_rate"] == pytest.approx(4 / 5)


# By hand


def test_before_the_first_episode_metrics_are_none() -> None:
    window = play_steps(window_of(2), [[Played(9, 1.0)], [Played(9, 1.0)]], 8)
    assert window.metrics() == {
        "success_rate": None, "return_mean": None, "episode_length": None, "episode_return_max": None,
        "num_episodes": 0,
    }  # fmt: skip
    assert not window.is_full()


def test_means_over_the_last_episodes_by_hand() -> None:
    """Episodes start at 0, 0, 3, 6 and 7; the first two of the five have left the window."""
    lives = [
        [Played(2, 7.0), Played(3, 1.0), Played(5, 0.0), Played(90, 9.0)],
        [Played(5, 0.0), Played(4, 0.5), Played(90, 9.0)],
    ]
    window = play_steps(window_of(2, above=(0.5,)), lives, 12)
    assert window.is_full()
    assert window.metrics() == {
        "success_rate": pytest.approx(1 / 3),  # a return of 0.5 is not above 0.5
        "return_mean": pytest.approx(0.5),
        "episode_length": pytest.approx(4.0),
        "episode_return_max": 7.0,
        "num_episodes": 5,
    }
    assert window.score() == pytest.approx((1 / 3, 0.5))


def test_the_best_return_may_be_negative() -> None:
    window = play_steps(window_of(1), [[Played(1, -3.0), Played(1, -1.0), Played(1, -2.0)]], 6)
    assert window.metrics()["episode_return_max"] == -1.0


def test_each_task_has_its_own_window_and_equal_weight() -> None:
    """Environment i plays task i mod 2; the second task has few episodes and still counts half."""
    lives = [
        [Played(2, 1.0), Played(2, 0.0), Played(90, 1.0)], [Played(6, 4.0), Played(2, 11.0), Played(90, 1.0)],
        [Played(4, 1.0), Played(90, 0.0)], [Played(7, 4.0), Played(1, 4.0), Played(90, 1.0)],
    ]  # fmt: skip
    window, stream = window_of(4, size=2, above=(0.0, 10.0)), script(lives, 15)
    feed(window, stream, 0, 6)
    assert (window.metrics()["tasks"]["cave"], window.min_success()) == (None, None)
    assert window.metrics()["success_rate"] is None, "a mean over tasks needs all of them"
    feed(window, stream, 6, 7)
    summary = window.metrics()
    assert summary["tasks"] == {
        "maze": {"success_rate": 0.5, "return_mean": 0.5, "episode_length": 3.0},
        "cave": {"success_rate": 0.0, "return_mean": 4.0, "episode_length": 6.5},
    }
    assert summary["return_mean"] == pytest.approx((0.5 + 4.0) / 2)
    assert (summary["success_rate"], window.min_success()) == (0.25, 0.0)
    feed(window, stream, 7, 15)
    assert window.metrics()["tasks"]["cave"]["return_mean"] == 7.5
    assert window.min_success() == 0.5


# Undefined success


def test_without_a_threshold_there_is_a_return_but_no_success() -> None:
    window = play_steps(window_of(1, size=2, above=(INFINITY,)), [[Played(1, 5.0), Played(1, -7.0)]], 4)
    summary = window.metrics()
    assert (summary["success_rate"], summary["return_mean"], summary["num_episodes"]) == (None, -1.0, 2)
    assert window.is_full()
    assert window.min_success() is None
    assert window.score() == (0.0, -1.0)
    assert window.tasks_without_threshold() == ["maze"]


def test_the_success_flag_overrides_the_threshold() -> None:
    lives = [[Played(1, 5.0, flag=0), Played(1, 5.0), Played(1, -5.0, flag=1), Played(1, 5.0, flag=0), Played(9, 0.0)]]
    assert play_steps(window_of(1, size=9), lives, 8).metrics()["success_rate"] == 0.5


def test_unflagged_episodes_fail_if_the_env_flags_successes_only() -> None:
    lives = [[Played(1, 0.0), Played(1, 0.0, flag=1), Played(1, 0.0), Played(1, 0.0), Played(9, 0.0)]]
    window, stream = window_of(1, size=9, above=(INFINITY,)), script(lives, 8)
    feed(window, stream, 0, 2)
    assert window.metrics()["success_rate"] is None
    feed(window, stream, 2, 8)
    assert window.metrics()["success_rate"] == 0.25


def test_the_mean_success_leaves_out_tasks_without_success() -> None:
    lives = [[Played(1, 1.0), QUICK]] * 2
    window = play_steps(window_of(2, above=(0.0, INFINITY)), lives, 2)
    assert (window.metrics()["success_rate"], window.min_success()) == (1.0, None)
    assert window.metrics()["tasks"]["cave"] == {"success_rate": None, "return_mean": 1.0, "episode_length": 1.0}


# Against a slow reference

played = st.builds(
    Played, st.integers(1, 12), st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.sampled_from([UNKNOWN_SUCCESS, 0, 1])
)


@st.composite
def plays(draw: st.DrawFn) -> tuple[list[list[Played]], int, int, list[int]]:
    """Draw the episodes of all environments, the number of tasks, the window size and the ends of dispatches."""
    tasks = draw(st.integers(1, 3))
    # 25 episodes of at least one step and a reset last for 50 steps; 5 dispatches of 9 steps need 45.
    lives = [draw(st.lists(played, min_size=25, max_size=25)) for _ in range(tasks * draw(st.integers(1, 3)))]
    dispatches = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    return lives, tasks, draw(st.integers(1, 6)), np.cumsum(dispatches).tolist()


def spans(life: list[Played]) -> list[tuple[int, int]]:
    ends = np.cumsum([episode.length + 1 for episode in life]) - 1
    return [(int(end) - episode.length, int(end)) for end, episode in zip(ends, life, strict=True)]


def expected(lives: list[list[Played]], size: int, ends: list[int]) -> list[dict[str, float] | None]:
    """Return the statistics of a task after each dispatch."""
    samples = fair_samples([spans(life) for life in lives], ends, size)
    return [stats_of_episodes([lives[env][i] for _, env, i in sample[-size:]]) for sample in samples]


def stats_of_episodes(found: list[Played]) -> dict[str, float] | None:
    if not found:
        return None
    wins = [episode.value > 0.0 if episode.flag == UNKNOWN_SUCCESS else episode.flag for episode in found]
    return {
        "success_rate": pytest.approx(np.mean(wins)),
        "return_mean": pytest.approx(np.mean([episode.value for episode in found])),
        "episode_length": pytest.approx(np.mean([episode.length for episode in found])),
    }


@given(plays())
def test_the_window_equals_the_slow_reference(play: tuple[list[list[Played]], int, int, list[int]]) -> None:
    """Compare after every dispatch, and save and restore the window in between."""
    lives, tasks, size, ends = play
    window, stream, before = window_of(len(lives), size, (0.0,) * tasks), script(lives, ends[-1]), 0
    references = [expected(lives[task::tasks], size, ends) for task in range(tasks)]
    for look, now in enumerate(ends):
        feed(window, stream, before, now)
        summary = window.metrics()
        stats = list(summary["tasks"].values()) if tasks > 1 else [stats_of_summary(summary)]
        assert stats == [of_task[look] for of_task in references]
        assert summary["num_episodes"] == sum(end <= now for life in lives for _, end in spans(life))
        saved, before = json.loads(json.dumps(window.state_dict())), now
        window = window_of(len(lives), size, (0.0,) * tasks)
        window.load_state_dict(saved)
        assert window.state_dict() == saved


def stats_of_summary(summary: dict[str, float]) -> dict[str, float] | None:
    stats = {name: summary[name] for name in ("success_rate", "return_mean", "episode_length")}
    return None if stats["return_mean"] is None else stats


# Checkpoints


def test_reset_running_drops_waiting_episodes() -> None:
    """Counted episodes stay; those that waited for lost ones are dropped; new episodes count when due."""
    lives = [[QUICK] * 9, [SLOW]]
    window = play_steps(window_of(2, size=100), [[Played(1, 5.0), *lives[0]], [Played(1, 5.0), *lives[1]]], 15)
    assert (window.metrics()["return_mean"], window.metrics()["num_episodes"]) == (5.0, 6)
    window.reset_running()
    stream = script(lives, 20)
    feed(window, stream, 0, 19)
    assert (window.metrics()["return_mean"], window.metrics()["num_episodes"]) == (5.0, 12)
    feed(window, stream, 19, 20)
    assert window.metrics()["return_mean"] == pytest.approx((5.0 + 5.0 + 1.0 + 0.0) / 4)


# Asynchronous environments and changing tasks


def rollout(envs: list[int], task: list[list[int]], ended: dict[tuple[int, int], Played]) -> RolloutStats:
    """Return steps [T, E] of some environments in which these episodes end at (step, column)."""
    shape = np.asarray(task).shape
    episodes = EpisodeStats(
        np.zeros(shape, bool), np.zeros(shape), np.zeros(shape, int), np.full(shape, UNKNOWN_SUCCESS, np.int8)
    )
    for place, episode in ended.items():
        for field, value in zip(episodes, (True, episode.value, episode.length, episode.flag), strict=True):
            field[place] = value
    return RolloutStats(np.asarray(envs), np.asarray(task), episodes, np.zeros((*shape, 0)), np.zeros(shape))


def test_the_window_waits_for_environments_that_are_behind() -> None:
    """The first environment is two rollouts ahead of the second."""
    window = window_of(2, size=10)
    for _ in range(2):
        window.on_rollout(rollout([0], [[0]] * 3, {(1, 0): QUICK}), at=0)
    assert (window.metrics()["num_episodes"], window.metrics()["success_rate"]) == (2, None)
    window.on_rollout(rollout([1], [[0]] * 3, {(2, 0): Played(3, 0.0)}), at=0)
    assert window.metrics()["success_rate"] == 0.5, "of those that began at step 0"


def test_an_episode_counts_for_the_task_it_was_drawn_with() -> None:
    """The task of an episode may be known only in the next rollout."""
    window = window_of(1, size=10, above=(0.0, 0.0))
    window.on_rollout(rollout([0], [[0], [0], [1], [1]], {(1, 0): QUICK}), at=0)
    tasks = window.metrics()["tasks"]
    assert (tasks["maze"]["success_rate"], tasks["cave"]) == (1.0, None)
    window.on_rollout(rollout([0], [[1], [1]], {(1, 0): Played(3, 0.0)}), at=4)
    window.on_rollout(rollout([0], [[0], [0], [0]], {(2, 0): QUICK}), at=6)
    tasks = window.metrics()["tasks"]
    assert tasks["cave"] == {"success_rate": 0.0, "return_mean": 0.0, "episode_length": 3.0}
    assert tasks["maze"]["success_rate"] == 1.0
    assert window.metrics()["num_episodes"] == 3


# Stages


def test_stages_are_averaged_over_the_same_episodes_as_success() -> None:
    """Only quick episodes reach `far`; its share is unknown while slow episodes run."""
    lives = [[QUICK] * 9, [SLOW, QUICK], [SLOW, SLOW], [SLOW, QUICK]]
    stream, known = script(lives, 30), 0
    reached = np.stack([np.ones_like(stream.ended), stream.episode_return == 1.0], axis=-1)
    window = EpisodeWindow(["maze"], 100, [SuccessRule(0.0)], [1000], 4, [("set out", "far")])
    assert window.metrics()["stages"] is None
    for step in range(30):
        episodes = EpisodeStats(*(field[step : step + 1] for field in stream))
        task = np.zeros((1, 4), int)
        places = np.zeros((1, 4, 0), np.uint8)
        window.on_rollout(
            RolloutStats(np.arange(4), task, episodes, places, np.zeros((1, 4)), reached[step : step + 1]), at=0
        )
        summary = window.metrics()
        shares = {"set out": 1.0, "far": summary["success_rate"]}
        assert summary["stages"] == (None if step < 19 else pytest.approx(shares)), step
        known += summary["stages"] is not None
    assert known == 11
    again = EpisodeWindow(["maze"], 100, [SuccessRule(0.0)], [1000], 4, [("set out", "far")])
    again.load_state_dict(json.loads(json.dumps(window.state_dict())))
    assert again.metrics() == window.metrics()


def test_each_task_has_its_own_stages() -> None:
    """The mean of a stage is over the tasks with that stage."""
    stages = [("lifted", "opened"), ("lifted",)]
    window = EpisodeWindow(["maze", "cave"], 9, [SuccessRule(0.0)] * 2, [1000] * 2, 2, stages)
    one = np.ones((1, 2))
    episodes = EpisodeStats(one > 0, one, one.astype(int), np.full((1, 2), UNKNOWN_SUCCESS, np.int8))
    reached = np.asarray([[[False, True], [True, False]]])
    window.on_rollout(
        RolloutStats(np.arange(2), np.asarray([[0, 1]]), episodes, np.zeros((1, 2, 0)), one, reached), at=0
    )
    summary = window.metrics()
    assert summary["stages"] == {"lifted": 0.5, "opened": 1.0}
    assert [task["stages"] for task in summary["tasks"].values()] == [{"lifted": 0.0, "opened": 1.0}, {"lifted": 1.0}]
