"""Tests of Ray actors: the same rollouts as from actor threads, and faults of workers."""

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
from byol_explore.runtime.cluster import actor_pool
from byol_explore.runtime.cluster.ray_sources import COUNTERS
from byol_explore.runtime.make import make_runtime, make_training_envs
from cluster.ray_runs import config_for, counts, pids, play, play_until, start
from host_worlds import BATCH, ENVS, LOADS, QuickSebulba, Scripted
from unruly import LENGTH as EPISODE

NO_FAULTS = dict.fromkeys(COUNTERS, 0)

pytestmark = pytest.mark.usefixtures("cluster")


# Without faults


@pytest.mark.parametrize(("actors", "num_envs"), [(1, 4), (2, 8)])
def test_synchronous_run_equals_that_of_actor_threads_bit_for_bit(actors: int, num_envs: int) -> None:
    runtime = {"synchronous": True, "num_actors": actors, "num_envs": num_envs}
    env = "gymnasium:CartPole-v1"
    threads = QuickSebulba(config_for(env, actor_backend="threads", **runtime), make_training_envs(config_for(env)))  # type: ignore[arg-type]
    try:
        state, outputs = play(threads, 3)
    finally:
        threads.close()
    other_state, others = play(start(env, **runtime), 3)
    arrays, other_arrays = leaves_with_names(state), leaves_with_names(other_state)
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)
    for output, other in zip(outputs, others, strict=True):
        assert other.actor_counters == NO_FAULTS
        for name in output.metrics.keys() - LOADS:
            np.testing.assert_array_equal(output.metrics[name], other.metrics[name], err_msg=name)
        for steps, other_steps in zip(output.rollouts, other.rollouts, strict=True):
            jax.tree.map(np.testing.assert_array_equal, steps, other_steps)


def test_rollouts_of_small_actors_are_merged_and_continue_episodes() -> None:
    """Four actors have an environment each; episode ends must be one episode length apart."""
    runtime = start(num_actors=4, num_envs=4, rounds_per_dispatch=4)
    _, outputs = play(runtime, 2)
    ended: dict[int, list[bool]] = {env: [] for env in range(4)}
    for output in outputs:
        for steps in output.rollouts:
            assert len(steps.env_ids) == BATCH
            assert steps.task_ids.shape == steps.intrinsic_reward.shape == (3, BATCH)
            for column, env in enumerate(steps.env_ids.tolist()):
                ended[env] += steps.episodes.ended[:, column].tolist()
    assert sum(map(len, ended.values())) == 2 * 4 * ENVS * 3
    for flags in ended.values():
        expected = [(step + 1) % (EPISODE + 1) == EPISODE for step in range(len(flags))]
        assert flags == expected
    assert counts(outputs) == NO_FAULTS
    assert 0 <= max(output.metrics["policy_lag"].max() for output in outputs) <= 2 * 4 * 2


def test_closed_source_can_start_again() -> None:
    runtime = start()
    state, _ = play(runtime, 1)
    runtime.close()
    state, output = runtime.dispatch(state)
    assert int(state.rollouts_per_env) == 2
    assert output.actor_counters == NO_FAULTS


# Faults


def test_killed_actor_is_replaced_and_counted() -> None:
    runtime = start(num_actors=2, num_envs=4)
    state, outputs = play(runtime, 2)
    os.kill(pids(runtime)[0], signal.SIGKILL)
    state = play_until(runtime, state, "actor_restarts", outputs)
    for _ in range(20):
        state, output = runtime.dispatch(state)
        outputs.append(output)
    assert counts(outputs) == {**NO_FAULTS, "actor_faults": 1, "actor_restarts": 1}
    assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"


@pytest.mark.parametrize("how", ["raise", "hang", "leave"])
def test_failing_or_hanging_environment_restarts_only_its_actor(how: str, tmp_path: Path) -> None:
    kwargs = {"how": how, "at": 8, "once": str(tmp_path / "once")}
    runtime = start(kwargs=kwargs, num_actors=2, num_envs=4, step_timeout=1.0)
    state, outputs = play(runtime, 1)
    play_until(runtime, state, "actor_restarts", outputs)
    assert counts(outputs) == {**NO_FAULTS, "actor_faults": 1, "actor_restarts": 1}


def test_stopped_actor_does_not_answer_a_ping_and_is_replaced() -> None:
    runtime = start(num_actors=2, num_envs=4, step_timeout=1.0)
    state, outputs = play(runtime, 1)
    victim = pids(runtime)[1]
    os.kill(victim, signal.SIGSTOP)
    state = play_until(runtime, state, "actor_restarts", outputs)
    assert counts(outputs) == {**NO_FAULTS, "actor_faults": 1, "actor_restarts": 1}
    assert runtime.source._pool is not None
    assert "has not answered" in runtime.source._pool.last_failure


def test_repeated_failures_end_the_run_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "MAX_FAILURES", 2)
    runtime = start(kwargs={"how": "raise", "at": 2})
    with pytest.raises(EnvironmentFailure) as raised:
        play(runtime, 1)
    assert str(raised.value).startswith("the only actor failed 2 times in a row; the last failure: ")
    assert "failed in step 2: environment 0 of the batch: ValueError: injected fault" in str(raised.value)
    assert dict(runtime.source.pop_counters()) == {
        **NO_FAULTS, "actor_faults": 2, "actor_restarts": 1, "actors_abandoned": 1,
    }  # fmt: skip


def test_stale_rollouts_are_dropped_and_counted() -> None:
    """The learner takes two steps per rollout and the actor works ahead: every second rollout is too old."""
    runtime = start(max_policy_lag=1, queue_size=3)
    state, outputs = play(runtime, 1)
    state = play_until(runtime, state, "sequences_dropped", outputs)
    assert counts(outputs)["sequences_dropped"] % ENVS == 0
    assert max(output.metrics["policy_lag"].max() for output in outputs) <= 1


# User errors


def test_user_error_of_a_worker_is_raised_unchanged() -> None:
    runtime = start()
    object.__setattr__(runtime.source.config, "env", "gymnasium:NoSuch-v0")
    with pytest.raises(UserError, match=r"^unknown environment 'gymnasium:NoSuch-v0'"):
        play(runtime, 1)


def test_more_actors_than_cpus_are_refused() -> None:
    with pytest.raises(UserError, match=r"runtime.num_actors 64 need a CPU each, and the Ray cluster has \d"):
        play(start(num_actors=64, num_envs=64), 1)


def test_environment_registered_in_this_process_is_refused() -> None:
    register_env("scripted", Scripted, replace=True)
    with pytest.raises(
        UserError, match="'scripted' is registered in this process alone: Ray actors need its import path"
    ):
        start("scripted")


def test_environments_inside_jit_refuse_ray() -> None:
    config = dataclasses.replace(config_for(), env="probe:memory", env_kwargs=())
    with pytest.raises(
        UserError, match=r"runtime.actor_backend ray is for environments outside jit, and probe:memory is inside jit"
    ):
        make_runtime(config, make_training_envs(config))
