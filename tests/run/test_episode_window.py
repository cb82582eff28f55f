"""The window of episodes: by hand, against a slow reference, and where quick successes would flatter."""

import json
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byol_explore.evaluation.success import SuccessRule
from byol_explore.run.episode_window import EpisodeWindow
from byol_explore.runtime.base import Episodes, Steps
from byol_explore.types import UNSAID
from references import fair_samples

INFINITY = float("inf")


class Played(NamedTuple):
    """An episode of a script."""

    length: int
    value: float  # its return
    told: int = UNSAID  # by the environment


def script(lives: list[list[Played]], steps: int) -> Episodes:
    """[T, E] what environments answer that play their lives from step 0 on; noise where no episode ends."""
    shape = steps, len(lives)
    stream = Episodes(np.zeros(shape, bool), np.full(shape, 99.0), np.full(shape, 99), np.full(shape, 1, np.int8))
    for env, life in enumerate(lives):
        end = -1
        for episode in life:
            end += episode.length + 1  # one step is the reset
            if end <= steps:
                for field, value in zip(stream, (True, episode.value, episode.length, episode.told), strict=True):
                    field[end - 1, env] = value
    return stream


def feed(window: EpisodeWindow, stream: Episodes, first: int, last: int) -> None:
    """A rollout of all environments; environment i plays task i mod tasks."""
    episodes = Episodes(*(field[first:last] for field in stream))
    envs = np.arange(episodes.ended.shape[1])
    task = np.broadcast_to(envs % len(window.tasks), episodes.ended.shape)
    places = np.zeros((*task.shape, 0), np.uint8)
    window.add(Steps(envs, task, episodes, places, np.zeros(task.shape)), at=0)


def window_of(num_envs: int, size: int = 3, above: tuple[float, ...] = (0.0,), max_steps: int = 1000) -> EpisodeWindow:
    tasks = ["maze", "cave", "well"][: len(above)]
    return EpisodeWindow(tasks, size, [SuccessRule(value) for value in above], [max_steps] * len(above), num_envs)


def after(window: EpisodeWindow, lives: list[list[Played]], steps: int) -> EpisodeWindow:
    feed(window, script(lives, steps), 0, steps)
    return window


# Quick successes and slow failures

QUICK, SLOW = Played(2, 1.0), Played(20, 0.0)


def test_failures_that_still_run_are_waited_for() -> None:
    """One environment of four succeeds again and again while the others fail slowly: what has ended says 1.000."""
    lives = [[QUICK] * 9, [SLOW, QUICK], [SLOW, SLOW], [SLOW, QUICK]]
    window, stream = window_of(4, size=100), script(lives, 30)
    for step in range(19):
        feed(window, stream, step, step + 1)
        assert window.summary()["success_rate"] is None, step
        assert window.lowest_success() is window.score() is None
    assert window.summary() == {
        "success_rate": None, "return_mean": None, "episode_length": None, "best_return": 1.0, "episodes": 6,
    }  # fmt: skip
    feed(window, stream, 19, 20)
    assert window.summary()["success_rate"] == pytest.approx(1 / 4), "of all that began at step 0"
    feed(window, stream, 20, 30)
    assert window.summary()["success_rate"] == pytest.approx(4 / 7), "and at 3, 6 and 9: 20 steps before"


def test_a_window_is_full_of_what_counts() -> None:
    lives = [[QUICK] * 12, [SLOW, SLOW]]
    assert not after(window_of(2, size=3), lives, 22).is_full()
    full = after(window_of(2, size=3), lives, 23)
    assert full.is_full()
    assert full.lowest_success() == pytest.approx(2 / 3), "two that began at step 0 and one at step 3"


def test_successes_between_two_failures_that_run_are_not_counted_before_them() -> None:
    """The second environment fails from step 2 on, the fourth from step 9 on; four began in between and succeeded."""
    lives = [[SLOW, SLOW], [Played(1, 0.0), SLOW], [QUICK] * 9, [Played(8, 0.0), SLOW]]
    window, stream = window_of(4, size=100), script(lives, 40)
    feed(window, stream, 0, 20)
    assert window.summary()["success_rate"] == pytest.approx(1 / 4)
    feed(window, stream, 20, 22)
    assert window.summary()["success_rate"] == pytest.approx(1 / 5), "the failure that began at step 2, and no more"


def test_the_share_of_successes_is_right_at_any_time() -> None:
    """A quarter succeeds, within 2 steps; the others fail within 20. Whatever ends first is far from a quarter."""
    random = np.random.default_rng(0)
    lives = [[QUICK if win else SLOW for win in random.random(20) < 0.25] for _ in range(400)]
    stream = script(lives, 45)
    window = window_of(400, size=10_000)
    feed(window, stream, 0, 19)
    for step in range(19, 45):
        feed(window, stream, step, step + 1)
        assert window.summary()["success_rate"] == pytest.approx(0.25, abs=0.06)
    first = stream.ended[:19]
    assert np.mean(stream.episode_return[:19][first] > 0) == 1.0


def test_equal_beginnings_are_ordered_by_environment_not_by_end() -> None:
    lives = [[Played(5, 1.0)], [Played(1, 2.0)], [Played(3, 3.0)]]
    assert after(window_of(3, size=2), lives, 5).summary()["return_mean"] == 2.5


def test_what_runs_longer_than_possible_is_not_waited_for() -> None:
    """Nor forgotten, should it end after all."""
    lives = [[Played(1, 1.0)] * 5, [Played(9, 0.0)]]
    window, stream = window_of(2, size=20, max_steps=6), script(lives, 10)
    feed(window, stream, 0, 6)
    assert window.summary()["success_rate"] is None
    feed(window, stream, 6, 7)
    assert window.summary()["success_rate"] == 1.0
    feed(window, stream, 7, 10)
    assert window.summary()["success_rate"] == pytest.approx(4 / 5)


# By hand


def test_before_the_first_episode_nothing_is_known() -> None:
    window = after(window_of(2), [[Played(9, 1.0)], [Played(9, 1.0)]], 8)
    assert window.summary() == {
        "success_rate": None, "return_mean": None, "episode_length": None, "best_return": None, "episodes": 0,
    }  # fmt: skip
    assert not window.is_full()


def test_means_over_the_last_episodes_by_hand() -> None:
    """By the time they began: 0, 0, 3, 6 and 7; the first two of five episodes have left the window."""
    lives = [
        [Played(2, 7.0), Played(3, 1.0), Played(5, 0.0), Played(90, 9.0)],
        [Played(5, 0.0), Played(4, 0.5), Played(90, 9.0)],
    ]
    window = after(window_of(2, above=(0.5,)), lives, 12)
    assert window.is_full()
    assert window.summary() == {
        "success_rate": pytest.approx(1 / 3),  # a return of 0.5 is not above 0.5
        "return_mean": pytest.approx(0.5),
        "episode_length": pytest.approx(4.0),
        "best_return": 7.0,
        "episodes": 5,
    }
    assert window.score() == pytest.approx(1 / 3 + 0.0005)


def test_the_best_return_may_be_negative() -> None:
    window = after(window_of(1), [[Played(1, -3.0), Played(1, -1.0), Played(1, -2.0)]], 6)
    assert window.summary()["best_return"] == -1.0


def test_tasks_have_windows_of_their_own_and_count_the_same() -> None:
    """Environment i plays task i mod 2; the second task has few episodes and still counts half."""
    lives = [
        [Played(2, 1.0), Played(2, 0.0), Played(90, 1.0)], [Played(6, 4.0), Played(2, 11.0), Played(90, 1.0)],
        [Played(4, 1.0), Played(90, 0.0)], [Played(7, 4.0), Played(1, 4.0), Played(90, 1.0)],
    ]  # fmt: skip
    window, stream = window_of(4, size=2, above=(0.0, 10.0)), script(lives, 15)
    feed(window, stream, 0, 6)
    assert (window.summary()["tasks"]["cave"], window.lowest_success()) == (None, None)
    assert window.summary()["success_rate"] is None, "the mean over tasks is of all of them"
    feed(window, stream, 6, 7)
    summary = window.summary()
    assert summary["tasks"] == {
        "maze": {"success_rate": 0.5, "return_mean": 0.5, "episode_length": 3.0},
        "cave": {"success_rate": 0.0, "return_mean": 4.0, "episode_length": 6.5},
    }
    assert summary["return_mean"] == pytest.approx((0.5 + 4.0) / 2)
    assert (summary["success_rate"], window.lowest_success()) == (0.25, 0.0)
    feed(window, stream, 7, 15)
    assert window.summary()["tasks"]["cave"]["return_mean"] == 7.5
    assert window.lowest_success() == 0.5


# Where success is not defined


def test_without_a_threshold_there_is_no_success_but_a_return() -> None:
    window = after(window_of(1, size=2, above=(INFINITY,)), [[Played(1, 5.0), Played(1, -7.0)]], 4)
    summary = window.summary()
    assert (summary["success_rate"], summary["return_mean"], summary["episodes"]) == (None, -1.0, 2)
    assert window.is_full()
    assert window.lowest_success() is None
    assert window.score() == pytest.approx(-1e-3)
    assert window.without_threshold() == ["maze"]


def test_the_environments_word_goes_before_its_threshold() -> None:
    lives = [[Played(1, 5.0, told=0), Played(1, 5.0), Played(1, -5.0, told=1), Played(1, 5.0, told=0), Played(9, 0.0)]]
    assert after(window_of(1, size=9), lives, 8).summary()["success_rate"] == 0.5


def test_who_tells_of_successes_only_has_failures_too() -> None:
    lives = [[Played(1, 0.0), Played(1, 0.0, told=1), Played(1, 0.0), Played(1, 0.0), Played(9, 0.0)]]
    window, stream = window_of(1, size=9, above=(INFINITY,)), script(lives, 8)
    feed(window, stream, 0, 2)
    assert window.summary()["success_rate"] is None
    feed(window, stream, 2, 8)
    assert window.summary()["success_rate"] == 0.25


def test_a_mean_over_tasks_leaves_out_those_that_have_no_success() -> None:
    lives = [[Played(1, 1.0), QUICK]] * 2
    window = after(window_of(2, above=(0.0, INFINITY)), lives, 2)
    assert (window.summary()["success_rate"], window.lowest_success()) == (1.0, None)
    assert window.summary()["tasks"]["cave"] == {"success_rate": None, "return_mean": 1.0, "episode_length": 1.0}


# Against a slow reference

played = st.builds(Played, st.integers(1, 12), st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.sampled_from([UNSAID, 0, 1]))


@st.composite
def plays(draw: st.DrawFn) -> tuple[list[list[Played]], int, int, list[int]]:
    """Lives of all environments, the number of tasks, the size of a window and the ends of dispatches."""
    tasks = draw(st.integers(1, 3))
    # Twenty-five episodes of a step and a reset are as long as the longest play.
    lives = [draw(st.lists(played, min_size=25, max_size=25)) for _ in range(tasks * draw(st.integers(1, 3)))]
    dispatches = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    return lives, tasks, draw(st.integers(1, 6)), np.cumsum(dispatches).tolist()


def spans(life: list[Played]) -> list[tuple[int, int]]:
    ends = np.cumsum([episode.length + 1 for episode in life]) - 1
    return [(int(end) - episode.length, int(end)) for end, episode in zip(ends, life, strict=True)]


def expected(lives: list[list[Played]], size: int, ends: list[int]) -> list[dict[str, float] | None]:
    """A task's figures after each dispatch."""
    samples = fair_samples([spans(life) for life in lives], ends, size)
    return [figures_of([lives[env][i] for _, env, i in sample[-size:]]) for sample in samples]


def figures_of(found: list[Played]) -> dict[str, float] | None:
    if not found:
        return None
    wins = [episode.value > 0.0 if episode.told == UNSAID else episode.told for episode in found]
    return {
        "success_rate": pytest.approx(np.mean(wins)),
        "return_mean": pytest.approx(np.mean([episode.value for episode in found])),
        "episode_length": pytest.approx(np.mean([episode.length for episode in found])),
    }


@given(plays())
def test_the_window_is_that_of_the_slow_reference(play: tuple[list[list[Played]], int, int, list[int]]) -> None:
    """After every dispatch; a checkpoint in between changes nothing."""
    lives, tasks, size, ends = play
    window, stream, before = window_of(len(lives), size, (0.0,) * tasks), script(lives, ends[-1]), 0
    right = [expected(lives[task::tasks], size, ends) for task in range(tasks)]
    for look, now in enumerate(ends):
        feed(window, stream, before, now)
        summary = window.summary()
        figures = list(summary["tasks"].values()) if tasks > 1 else [_figures(summary)]
        assert figures == [of_task[look] for of_task in right]
        assert summary["episodes"] == sum(end <= now for life in lives for _, end in spans(life))
        saved, before = json.loads(json.dumps(window.to_meta())), now
        window = window_of(len(lives), size, (0.0,) * tasks)
        window.load_meta(saved)
        assert window.to_meta() == saved


def _figures(summary: dict[str, float]) -> dict[str, float] | None:
    figures = {name: summary[name] for name in ("success_rate", "return_mean", "episode_length")}
    return None if figures["return_mean"] is None else figures


# Checkpoints


def test_environments_that_begin_anew_take_no_early_successes_with_them() -> None:
    """What waited for the lost episodes is lost with them; what counted stays, and new episodes count when due."""
    lives = [[QUICK] * 9, [SLOW]]
    window = after(window_of(2, size=100), [[Played(1, 5.0), *lives[0]], [Played(1, 5.0), *lives[1]]], 15)
    assert (window.summary()["return_mean"], window.summary()["episodes"]) == (5.0, 6)
    window.begin_anew()
    stream = script(lives, 20)
    feed(window, stream, 0, 19)
    assert (window.summary()["return_mean"], window.summary()["episodes"]) == (5.0, 12)
    feed(window, stream, 19, 20)
    assert window.summary()["return_mean"] == pytest.approx((5.0 + 5.0 + 1.0 + 0.0) / 4)


# Environments that are not in step, and tasks that change


def rollout(envs: list[int], task: list[list[int]], ended: dict[tuple[int, int], Played]) -> Steps:
    """Steps [T, E] of some environments, in which these episodes end at (step, place)."""
    shape = np.asarray(task).shape
    episodes = Episodes(np.zeros(shape, bool), np.zeros(shape), np.zeros(shape, int), np.full(shape, UNSAID, np.int8))
    for place, episode in ended.items():
        for field, value in zip(episodes, (True, episode.value, episode.length, episode.told), strict=True):
            field[place] = value
    return Steps(np.asarray(envs), np.asarray(task), episodes, np.zeros((*shape, 0)), np.zeros(shape))


def test_an_environment_that_is_behind_is_waited_for() -> None:
    """Rollouts come in any order: the first environment is two rollouts ahead of the second."""
    window = window_of(2, size=10)
    for _ in range(2):
        window.add(rollout([0], [[0]] * 3, {(1, 0): QUICK}), at=0)
    assert (window.summary()["episodes"], window.summary()["success_rate"]) == (2, None)
    window.add(rollout([1], [[0]] * 3, {(2, 0): Played(3, 0.0)}), at=0)
    assert window.summary()["success_rate"] == 0.5, "of those that began at step 0"


def test_an_episode_counts_for_the_task_that_was_drawn_for_it() -> None:
    """An environment plays the first task, then the second; the draw may be seen in the next rollout only."""
    window = window_of(1, size=10, above=(0.0, 0.0))
    window.add(rollout([0], [[0], [0], [1], [1]], {(1, 0): QUICK}), at=0)
    tasks = window.summary()["tasks"]
    assert (tasks["maze"]["success_rate"], tasks["cave"]) == (1.0, None)
    window.add(rollout([0], [[1], [1]], {(1, 0): Played(3, 0.0)}), at=4)
    window.add(rollout([0], [[0], [0], [0]], {(2, 0): QUICK}), at=6)
    tasks = window.summary()["tasks"]
    assert tasks["cave"] == {"success_rate": 0.0, "return_mean": 0.0, "episode_length": 3.0}
    assert tasks["maze"]["success_rate"] == 1.0
    assert window.summary()["episodes"] == 3


# Stages


def test_stages_are_counted_as_success_is() -> None:
    """Only quick episodes get far: as long as slow ones run, their share is not known either."""
    lives = [[QUICK] * 9, [SLOW, QUICK], [SLOW, SLOW], [SLOW, QUICK]]
    stream, known = script(lives, 30), 0
    reached = np.stack([np.ones_like(stream.ended), stream.episode_return == 1.0], axis=-1)
    window = EpisodeWindow(["maze"], 100, [SuccessRule(0.0)], [1000], 4, [("set out", "far")])
    assert window.summary()["stages"] is None
    for step in range(30):
        episodes = Episodes(*(field[step : step + 1] for field in stream))
        task = np.zeros((1, 4), int)
        places = np.zeros((1, 4, 0), np.uint8)
        window.add(Steps(np.arange(4), task, episodes, places, np.zeros((1, 4)), reached[step : step + 1]), at=0)
        summary = window.summary()
        shares = {"set out": 1.0, "far": summary["success_rate"]}
        assert summary["stages"] == (None if step < 19 else pytest.approx(shares)), step
        known += summary["stages"] is not None
    assert known == 11
    again = EpisodeWindow(["maze"], 100, [SuccessRule(0.0)], [1000], 4, [("set out", "far")])
    again.load_meta(json.loads(json.dumps(window.to_meta())))
    assert again.summary() == window.summary()


def test_tasks_have_stages_of_their_own() -> None:
    """The mean of a stage is over the tasks that have it."""
    stages = [("lifted", "opened"), ("lifted",)]
    window = EpisodeWindow(["maze", "cave"], 9, [SuccessRule(0.0)] * 2, [1000] * 2, 2, stages)
    one = np.ones((1, 2))
    episodes = Episodes(one > 0, one, one.astype(int), np.full((1, 2), UNSAID, np.int8))
    reached = np.asarray([[[False, True], [True, False]]])
    window.add(Steps(np.arange(2), np.asarray([[0, 1]]), episodes, np.zeros((1, 2, 0)), one, reached), at=0)
    summary = window.summary()
    assert summary["stages"] == {"lifted": 0.5, "opened": 1.0}
    assert [task["stages"] for task in summary["tasks"].values()] == [{"lifted": 0.0, "opened": 1.0}, {"lifted": 1.0}]
