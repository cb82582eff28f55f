"""Runs with Ray actors, for tests of both kinds of inference."""

import dataclasses
import time
from collections import Counter
from typing import Any

from byol_explore.config.config import Config
from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.cluster.ray_sources import CentralInferenceActors, RayActors
from byol_explore.runtime.make import make_training_envs
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from host_worlds import QuickSebulba, host_config

UNRULY = "gymnasium:unruly:Unruly-v0"

started: list[Sebulba] = []  # closed after a test


class RayRun(QuickSebulba):
    source: Any

    def __init__(self, config: Config) -> None:
        envs: Any = make_training_envs(config)
        super().__init__(config, envs)
        self.source = (CentralInferenceActors if config.runtime.inference == "central" else RayActors)(
            config, envs[0].spec
        )


def start(env: str = UNRULY, kwargs: dict[str, Any] | None = None, **runtime: Any) -> RayRun:
    run = RayRun(config_for(env, kwargs, **runtime))
    started.append(run)
    return run


def config_for(env: str = UNRULY, kwargs: dict[str, Any] | None = None, **runtime: Any) -> Config:
    config = host_config(**{"actor_backend": "ray", **runtime})
    config = dataclasses.replace(config, env=env, env_kwargs=kwargs or {})
    return config.validate()


def play(runtime: Sebulba, dispatches: int) -> tuple[SebulbaState, list[DispatchOutput]]:
    state, outputs = runtime.init(0), []
    for _ in range(dispatches):
        state, output = runtime.dispatch(state)
        outputs.append(output)
    return state, outputs


def counts(outputs: list[DispatchOutput]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for output in outputs:
        total.update(output.actor_counters)
    return dict(total)


def pids(runtime: RayRun) -> list[int]:
    assert runtime.source._pool is not None
    return [slot.join_reply.pid for slot in runtime.source._pool.slots if slot.join_reply is not None]


def play_until(runtime: RayRun, state: SebulbaState, name: str, outputs: list[DispatchOutput]) -> SebulbaState:
    """Dispatch until a counter is above 0."""
    deadline = time.monotonic() + 120
    while counts(outputs).get(name, 0) == 0:
        assert time.monotonic() < deadline, f"{name} stayed 0"
        state, output = runtime.dispatch(state)
        outputs.append(output)
    return state
