"""Runs whose actors are those of Ray, as the learner sees them: what the tests of both kinds of inference share."""

import dataclasses
import time
from collections import Counter
from typing import Any

from byol_explore.runtime.base import DispatchOutput
from byol_explore.runtime.choosing import training_envs
from byol_explore.runtime.cluster.central import CentralActors
from byol_explore.runtime.cluster.source import RayActors
from byol_explore.runtime.sebulba import Sebulba, SebulbaState
from byol_explore.settings.config import Config
from host_worlds import QuickSebulba, host_config

UNRULY = "gymnasium:unruly:Unruly-v0"

started: list[Sebulba] = []  # and to be closed after a test


class Quick(QuickSebulba):
    source: Any

    def __init__(self, config: Config) -> None:
        envs: Any = training_envs(config)
        super().__init__(config, envs)
        self.source = (CentralActors if config.runtime.inference == "central" else RayActors)(config, envs[0].spec)


def start(env: str = UNRULY, words: dict[str, Any] | None = None, **runtime: Any) -> Quick:
    quick = Quick(config_for(env, words, **runtime))
    started.append(quick)
    return quick


def config_for(env: str = UNRULY, words: dict[str, Any] | None = None, **runtime: Any) -> Config:
    settings = tuple(f"{name}={value}" for name, value in (words or {}).items())
    config = dataclasses.replace(host_config(**{"engine": "ray", **runtime}), env=env, env_settings=settings)
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
        total.update(output.counts)
    return dict(total)


def pids(runtime: Quick) -> list[int]:
    assert runtime.source._crew is not None
    return [member.joined.pid for member in runtime.source._crew.members if member.joined is not None]


def play_until(runtime: Quick, state: SebulbaState, name: str, outputs: list[DispatchOutput]) -> SebulbaState:
    """Until something has been counted."""
    deadline = time.monotonic() + 120
    while counts(outputs).get(name, 0) == 0:
        assert time.monotonic() < deadline, f"no {name} was ever counted"
        state, output = runtime.dispatch(state)
        outputs.append(output)
    return state
