"""Central inference with Ray: actors without JAX, and what happens when they or the server die."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import ray

from byol_explore.errors import UserError
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.cluster.central import CENTRAL_COUNTS
from byol_explore.runtime.sebulba import SebulbaState
from cluster.crews import Quick, counts, pids, play, play_until
from cluster.crews import start as start_any

NOTHING = dict.fromkeys(CENTRAL_COUNTS, 0)

pytestmark = pytest.mark.usefixtures("cluster")


def start(**runtime: Any) -> Quick:
    return start_any(**{"inference": "central", **runtime})


def goes_on(runtime: Quick, state: SebulbaState, outputs: list[DispatchOutput], dispatches: int = 10) -> None:
    for _ in range(dispatches):
        state, output = runtime.dispatch(state)
        outputs.append(output)
    assert int(state.learner.step) == 2 * len(outputs), "no dispatch was short"


def test_actors_have_no_jax_and_everything_survives_the_death_of_an_actor_and_of_the_server() -> None:
    """One cluster, one run: a worker of each kind is killed, and both are replaced and counted."""
    runtime = start(actors=2, num_envs=4)
    state, outputs = play(runtime, 3)  # type: ignore[arg-type]
    assert counts(outputs) == NOTHING
    assert runtime.source._crew is not None
    assert runtime.source._server is not None
    for member in runtime.source._crew.members:
        modules = ray.get(member.worker.modules.remote())
        assert "byol_explore.runtime.cluster.stepping" in modules
        assert not {"jax", "jaxlib", "equinox", "optax"} & set(modules)
    os.kill(pids(runtime)[0], signal.SIGKILL)  # type: ignore[arg-type]
    state = play_until(runtime, state, "actor_restarts", outputs)  # type: ignore[arg-type]
    assert counts(outputs) == {**NOTHING, "actor_faults": 1, "actor_restarts": 1}
    server = runtime.source._server.members[0].joined
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    state = play_until(runtime, state, "server_restarts", outputs)  # type: ignore[arg-type]
    goes_on(runtime, state, outputs)
    total = counts(outputs)
    assert (total["server_faults"], total["server_restarts"], total["actor_faults"]) == (1, 1, 1)
    statistics = runtime.source.statistics()
    assert statistics.steps > 0
    assert np.all(np.asarray(statistics.waits) >= 0.0)


def test_lock_step_is_refused() -> None:
    with pytest.raises(UserError, match=r"runtime\.inference central needs runtime\.engine ray, and cannot be"):
        start(deterministic=True)
