"""Ray actors seen from the learner: the same sequences as from threads, and what happens when some of them die."""

import dataclasses
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from builders import leaves_with_names
from byol_explore.envs.registry import register_env
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.choosing import make_runtime, training_envs
from byol_explore.runtime.cluster import crew
from byol_explore.runtime.cluster.source import COUNTS
from cluster.crews import config_for, counts, pids, play, play_until, start
from host_worlds import BATCH, ENVS, LOADS, QuickSebulba, Scripted
from unruly import LENGTH as EPISODE

NOTHING = dict.fromkeys(COUNTS, 0)

pytestmark = pytest.mark.usefixtures("cluster")


# Without faults


@pytest.mark.parametrize(("actors", "num_envs"), [(1, 4), (2, 8)])
def test_in_lock_step_a_run_equals_that_of_threads_in_every_bit(actors: int, num_envs: int) -> None:
    runtime = {"deterministic": True, "actors": actors, "num_envs": num_envs}
    env = "gymnasium:CartPole-v1"
    near = QuickSebulba(config_for(env, engine="threads", **runtime), training_envs(config_for(env)))  # type: ignore[arg-type]
    try:
        state, outputs = play(near, 3)
    finally:
        near.close()
    other_state, others = play(start(env, **runtime), 3)
    arrays, other_arrays = leaves_with_names(state), leaves_with_names(other_state)
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)
    for output, other in zip(outputs, others, strict=True):
        assert other.counts == NOTHING
        for name in output.metrics.keys() - LOADS:
            np.testing.assert_array_equal(output.metrics[name], other.metrics[name], err_msg=name)
        for steps, other_steps in zip(output.steps, other.steps, strict=True):
            jax.tree.map(np.testing.assert_array_equal, steps, other_steps)


def test_small_actors_fill_a_batch_together_and_each_plays_on_where_it_stopped() -> None:
    """Four actors with an environment each: the ends of their episodes are as far apart as episodes are long."""
    runtime = start(actors=4, num_envs=4, rollouts_per_dispatch=4)
    _, outputs = play(runtime, 2)
    ended: dict[int, list[bool]] = {env: [] for env in range(4)}
    for output in outputs:
        for steps in output.steps:
            assert len(steps.envs) == BATCH
            assert steps.task.shape == steps.intrinsic_reward.shape == (3, BATCH)
            for place, env in enumerate(steps.envs.tolist()):
                ended[env] += steps.episodes.ended[:, place].tolist()
    assert sum(map(len, ended.values())) == 2 * 4 * ENVS * 3
    for flags in ended.values():
        expected = [(step + 1) % (EPISODE + 1) == EPISODE for step in range(len(flags))]
        assert flags == expected
    assert counts(outputs) == NOTHING
    assert 0 <= max(output.metrics["policy_lag"].max() for output in outputs) <= 2 * 4 * 2


def test_a_closed_source_can_start_again() -> None:
    runtime = start()
    state, _ = play(runtime, 1)
    runtime.close()
    state, output = runtime.dispatch(state)
    assert int(state.rounds) == 2
    assert output.counts == NOTHING


# Faults


def test_an_actor_that_is_killed_is_replaced_and_counted() -> None:
    runtime = start(actors=2, num_envs=4)
    state, outputs = play(runtime, 2)
    os.kill(pids(runtime)[0], signal.SIGKILL)
    state = play_until(runtime, state, "actor_restarts", outputs)
    for _ in range(20):
        state, output = runtime.dispatch(state)
        outputs.append(output)
    assert counts(outputs) == {**NOTHING, "actor_faults": 1, "actor_restarts": 1}
    assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"


@pytest.mark.parametrize("how", ["raise", "hang", "leave"])
def test_an_environment_that_fails_or_hangs_costs_its_actor_and_nothing_else(how: str, tmp_path: Path) -> None:
    words = {"kwargs.how": how, "kwargs.at": 8, "kwargs.once": tmp_path / "once"}
    runtime = start(words=words, actors=2, num_envs=4, step_timeout=1.0)
    state, outputs = play(runtime, 1)
    play_until(runtime, state, "actor_restarts", outputs)
    assert counts(outputs) == {**NOTHING, "actor_faults": 1, "actor_restarts": 1}


def test_an_actor_that_is_stopped_does_not_answer_and_is_replaced() -> None:
    runtime = start(actors=2, num_envs=4, step_timeout=1.0)
    state, outputs = play(runtime, 1)
    victim = pids(runtime)[1]
    os.kill(victim, signal.SIGSTOP)
    state = play_until(runtime, state, "actor_restarts", outputs)
    assert counts(outputs) == {**NOTHING, "actor_faults": 1, "actor_restarts": 1}
    assert runtime.source._crew is not None
    assert "has not answered" in runtime.source._crew.last_failure


def test_what_always_fails_ends_the_run_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE", 2)
    runtime = start(words={"kwargs.how": "raise", "kwargs.at": 2})
    with pytest.raises(EnvironmentFailure) as raised:
        play(runtime, 1)
    assert str(raised.value).startswith("nothing acts any more: the only actor was given up after 2 failures in a row")
    assert "failed in step 2: ValueError: " in str(raised.value)
    assert dict(runtime.source.new_counts()) == {
        **NOTHING, "actor_faults": 2, "actor_restarts": 1, "actors_given_up": 1,
    }  # fmt: skip


def test_sequences_that_are_too_old_are_dropped_and_counted() -> None:
    """The learner takes two steps per rollout, and an actor works ahead: every second sequence is too old."""
    runtime = start(max_lag=1, queue_size=3)
    state, outputs = play(runtime, 1)
    state = play_until(runtime, state, "sequences_dropped", outputs)
    assert counts(outputs)["sequences_dropped"] % ENVS == 0
    assert max(output.metrics["policy_lag"].max() for output in outputs) <= 1


# Mistakes


def test_what_a_user_did_wrong_is_said_as_it_would_be_here() -> None:
    runtime = start()
    object.__setattr__(runtime.source.config, "env", "gymnasium:NoSuch-v0")
    with pytest.raises(UserError, match=r"^unknown environment 'gymnasium:NoSuch-v0'"):
        play(runtime, 1)


def test_more_actors_than_the_cluster_has_cpus_for() -> None:
    with pytest.raises(UserError, match=r"runtime.actors 64 need a CPU each, and the Ray cluster has \d"):
        play(start(actors=64, num_envs=64), 1)


def test_an_environment_of_this_process_alone_is_refused() -> None:
    register_env("scripted", Scripted, replace=True)
    with pytest.raises(
        UserError, match="'scripted' is registered in this process alone: Ray actors need its import path"
    ):
        start("scripted")


def test_worlds_inside_jit_need_no_actors() -> None:
    config = dataclasses.replace(config_for(), env="probe:memory", env_settings=())
    with pytest.raises(UserError, match=r"runtime.engine ray is for environments outside jit, and probe:memory is not"):
        make_runtime(config, training_envs(config))
