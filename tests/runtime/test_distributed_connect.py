"""Tests of connecting processes, and of the share that each has of devices and environments."""

import dataclasses
import socket
from typing import Any

import jax
import pytest

from builders import make_spec, small_actor, small_config
from byol_explore.config.config import Config
from byol_explore.config.sections import DistributedConfig, RuntimeConfig
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.distributed import SINGLE_PROCESS, join_process_group
from byol_explore.runtime.make import choose_actor_devices, choose_devices
from byol_explore.runtime.sebulba import Sebulba, process_share
from child_processes import free_port
from host_worlds import Scripted
from learning_together import FixedRollouts


def test_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        coordinator = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            UserError, match=f"{coordinator}, but process 0 cannot listen there: Address already in use"
        ):
            join_process_group(DistributedConfig(coordinator, 2, 0)).__enter__()


def test_unknown_coordinator_is_named() -> None:
    with pytest.raises(
        UserError, match=r"distributed.coordinator_address is nowhere.invalid:1, which cannot be reached"
    ):
        join_process_group(DistributedConfig("nowhere.invalid:1", 2, 1)).__enter__()


def test_processes_must_connect_before_jax_is_used() -> None:
    jax.devices()
    with free_port() as port, pytest.raises(UserError, match="must be called before any JAX calls"):
        join_process_group(DistributedConfig(f"127.0.0.1:{port}", 2, 0)).__enter__()


def test_installed_jax_has_the_private_names_that_are_used() -> None:
    from jax._src import distributed as jax_distributed
    from jax._src import xla_bridge

    library: Any = xla_bridge._jax  # pyright: ignore[reportPrivateImportUsage]
    used = {jax_distributed.global_state: ["client"], library: ["make_gloo_tcp_collectives"]}
    used[library.DistributedRuntimeClient] = [
        "key_value_set", "blocking_key_value_get", "key_value_delete", "key_value_dir_get"
    ]  # fmt: skip
    for owner, names in used.items():
        missing = [name for name in names if not hasattr(owner, name)]
        assert not missing, f"jax {jax.__version__} has no {missing} in {owner}: adapt runtime/distributed.py"
    assert "hostname" in library.make_gloo_tcp_collectives.__doc__, f"adapt _gloo_hostname to jax {jax.__version__}"


# Shares


def test_every_process_contributes_equally_many_devices_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert chosen(6, num_actor_devices=2) == chosen(2) == [(0, 0), (1, 0)]
    with pytest.raises(UserError, match=r"runtime.num_devices 3 cannot share .*: 0 \(automatic\), 2, 6"):
        chosen(6, num_devices=3)
    acting = dataclasses.replace(Config(), runtime=RuntimeConfig(num_actor_devices=2))
    assert choose_actor_devices(acting) == [Device(1, 1), Device(1, 2)]


def test_each_process_has_its_share_of_environments_and_its_own_seed() -> None:
    config = small_config()
    assert process_share(config, SINGLE_PROCESS) is config
    shares = [process_share(dataclasses.replace(config, runtime=RuntimeConfig(num_envs=12)), each) for each in _three()]
    assert [each.runtime.num_envs for each in shares] == [4, 4, 4]
    assert len({each.seed for each in shares}) == 3


class ScriptedPeer:
    """Two processes; the other one always sends the same object."""

    index, count = 0, 2

    def __init__(self, sent: Any) -> None:
        self.sent = sent

    def all_gather_objects(self, value: Any) -> list[Any]:
        return [value, self.sent]


def test_rollout_is_used_only_if_every_process_has_one() -> None:
    runtime = Sebulba(small_config(), [Scripted()])
    runtime.source = FixedRollouts(SINGLE_PROCESS)
    runtime.source.start(small_actor(make_spec("vector")), 0, 0)
    runtime.processes = ScriptedPeer(["scripted failure", None])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(EnvironmentFailure, match="process 1: scripted failure"):
        runtime._next()
    runtime.processes = ScriptedPeer([None, 3])  # pyright: ignore[reportAttributeAccessIssue]
    assert runtime._next().params_step == 1.5
    runtime._failure = EnvironmentFailure("mine")
    with pytest.raises(EnvironmentFailure, match="mine"):
        runtime._next()


def _three() -> list[Any]:
    @dataclasses.dataclass
    class Process:
        index: int
        count: int = 3

    return [Process(index) for index in range(3)]
