"""Where processes find each other, and what each has then."""

import dataclasses
import socket
from typing import Any

import jax
import pytest

from builders import make_spec, small_actor, small_config
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.devices import choose_actor_devices, choose_devices
from byol_explore.runtime.processes import ALONE, joined
from byol_explore.runtime.sebulba import Sebulba, share_of
from byol_explore.settings.config import Config
from byol_explore.settings.parts import DistributedConfig, RuntimeConfig
from host_worlds import Scripted
from learning_together import Given
from pairs import free_port


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            UserError, match=f"{coordinator}, but process 0 cannot listen there: Address already in use"
        ):
            joined(DistributedConfig(coordinator, 2, 0)).__enter__()


def test_a_coordinator_that_nobody_knows_is_named() -> None:
    with pytest.raises(UserError, match=r"distributed.coordinator is nowhere.invalid:1, which is not to be reached"):
        joined(DistributedConfig("nowhere.invalid:1", 2, 1)).__enter__()


def test_processes_must_come_together_before_jax_is_used() -> None:
    jax.devices()
    with free_port() as port, pytest.raises(UserError, match="must be called before any JAX calls"):
        joined(DistributedConfig(f"127.0.0.1:{port}", 2, 0)).__enter__()


# What each has


def test_every_process_gives_equally_many_devices_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Device:
        process_index: int
        number: int

    devices = [Device(process, number) for process in (1, 0) for number in range(3)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)

    def chosen(batch: int, **settings: int) -> list[tuple[int, int]]:
        config = dataclasses.replace(Config(), runtime=RuntimeConfig(batch_size=batch, num_envs=batch, **settings))
        return [(device.process_index, device.number) for device in choose_devices(config)]

    assert chosen(6) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert chosen(8) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert chosen(6, actor_devices=2) == chosen(2) == [(0, 0), (1, 0)]
    with pytest.raises(UserError, match=r"runtime.devices 3 cannot share .*: 0 \(automatic\), 2, 6"):
        chosen(6, devices=3)
    acting = dataclasses.replace(Config(), runtime=RuntimeConfig(actor_devices=2))
    assert choose_actor_devices(acting) == [Device(1, 1), Device(1, 2)]


def test_actors_of_each_process_have_a_share_of_the_environments_and_seeds_of_their_own() -> None:
    config = small_config()
    assert share_of(config, ALONE) is config
    shares = [share_of(dataclasses.replace(config, runtime=RuntimeConfig(num_envs=12)), one) for one in _three()]
    assert [each.runtime.num_envs for each in shares] == [4, 4, 4]
    assert len({each.seed for each in shares}) == 3


class Telling:
    """Two processes, of which the other says always the same."""

    index, count = 0, 2

    def __init__(self, said: Any) -> None:
        self.said = said

    def everybody(self, mine: Any) -> list[Any]:
        return [mine, self.said]


def test_a_rollout_is_learned_from_only_if_every_process_has_one() -> None:
    runtime = Sebulba(small_config(), [Scripted()])
    runtime.source = Given(ALONE)
    runtime.source.start(small_actor(make_spec("vector")), 0, 0)
    runtime.processes = Telling(["the world has ended", None])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(EnvironmentFailure, match="process 1: the world has ended"):
        runtime._next()
    runtime.processes = Telling([None, 3])  # pyright: ignore[reportAttributeAccessIssue]
    assert runtime._next().pulled_at == 1.5
    runtime._failure = EnvironmentFailure("mine")
    with pytest.raises(EnvironmentFailure, match="mine"):
        runtime._next()


def _three() -> list[Any]:
    @dataclasses.dataclass
    class One:
        index: int
        count: int = 3

    return [One(index) for index in range(3)]
