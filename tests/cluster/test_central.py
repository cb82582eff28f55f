"""Tests of central inference with Ray: actors without JAX, and killed workers."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import ray

from byol_explore.errors import UserError
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.cluster.ray_sources import CENTRAL_COUNTERS
from byol_explore.runtime.sebulba import SebulbaState
from cluster.ray_runs import RayRun, counts, pids, play, play_until
from cluster.ray_runs import start as start_any

NO_FAULTS = dict.fromkeys(CENTRAL_COUNTERS, 0)

pytestmark = pytest.mark.usefixtures("cluster")


def start(**runtime: Any) -> RayRun:
    return start_any(**{"inference": "central", **runtime})


def dispatch_whole(runtime: RayRun, state: SebulbaState, outputs: list[DispatchOutput], dispatches: int = 10) -> None:
    for _ in range(dispatches):
        state, output = runtime.dispatch(state)
        outputs.append(output)
    assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"


def test_killed_actor_and_server_are_replaced_and_counted() -> None:
    """In one run, because clusters start slowly. Actors must not have imported JAX."""
    runtime = start(num_actors=2, num_envs=4)
    state, outputs = play(runtime, 3)  # type: ignore[arg-type]
    assert counts(outputs) == NO_FAULTS
    assert runtime.source._pool is not None
    assert runtime.source._server is not None
    for slot in runtime.source._pool.slots:
        modules = ray.get(slot.worker.modules.remote())
        assert "byol_explore.runtime.cluster.env_stepper" in modules
        assert not {"jax", "jaxlib", "equinox", "optax"} & set(modules)
    os.kill(pids(runtime)[0], signal.SIGKILL)  # type: ignore[arg-type]
    state = play_until(runtime, state, "actor_restarts", outputs)  # type: ignore[arg-type]
    assert counts(outputs) == {**NO_FAULTS, "actor_faults": 1, "actor_restarts": 1}
    server = runtime.source._server.slots[0].join_reply
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    state = play_until(runtime, state, "server_restarts", outputs)  # type: ignore[arg-type]
    dispatch_whole(runtime, state, outputs)
    total = counts(outputs)
    assert (total["server_faults"], total["server_restarts"], total["actor_faults"]) == (1, 1, 1)
    statistics = runtime.source.server_stats()
    assert statistics.steps > 0
    assert np.all(np.asarray(statistics.waits) >= 0.0)


def test_synchronous_is_refused() -> None:
    with pytest.raises(UserError, match=r"runtime\.inference central needs runtime\.actor_backend ray, and cannot be"):
        start(synchronous=True)
