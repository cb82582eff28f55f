"""Tests of the choice of devices."""

import dataclasses
from typing import Any

import jax
import pytest

from byol_explore.config.config import Config
from byol_explore.config.sections import RuntimeConfig
from byol_explore.errors import UserError
from byol_explore.runtime.make import choose_devices, learner_devices, resolve_devices
from child_processes import processes


def config_for(devices: int, batch_size: int = 8, env: str = "rooms-6") -> Config:
    runtime = RuntimeConfig(num_envs=2 * batch_size, batch_size=batch_size, num_devices=devices)
    return dataclasses.replace(Config(), env=env, runtime=runtime)


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int
    name: str = ""

    def __str__(self) -> str:
        return self.name


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace JAX's devices by four of one process."""
    devices = [Device(0, name) for name in "abcd"]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    return devices


def test_devices_of_jax_are_chosen_in_their_order() -> None:
    assert choose_devices(config_for(0)) == jax.devices()[:2]
    assert choose_devices(config_for(1)) == jax.devices()[:1]


@pytest.mark.parametrize(
    ("devices", "batch_size", "env", "expected"),
    [
        (0, 8, "rooms-6", 4),
        (0, 6, "rooms-6", 3),
        (0, 5, "rooms-6", 1),
        (0, 8, "rooms-3,rooms-4", 4),
        (0, 6, "rooms-3,rooms-4", 3),
        (0, 4, "rooms-3,rooms-4", 2),
        (2, 8, "rooms-6", 2),
        (1, 5, "rooms-6", 1),
    ],
)
def test_automatic_number_shares_the_batch_evenly(
    four: list[Any], devices: int, batch_size: int, env: str, expected: int
) -> None:
    """Each device must have the same number of sequences of every task."""
    assert choose_devices(config_for(devices, batch_size, env)) == four[:expected]


@pytest.mark.usefixtures("four")
def test_more_devices_than_jax_has() -> None:
    with pytest.raises(UserError, match=r"runtime\.num_devices is 5, but JAX has 4: a, b, c, d"):
        choose_devices(config_for(5, batch_size=10))


@pytest.mark.usefixtures("four")
def test_error_of_an_uneven_share_lists_even_ones() -> None:
    with pytest.raises(
        UserError, match=r"runtime.num_devices 3 .* 8 sequences .*choose from: 0 \(automatic\), 1, 2, 4"
    ):
        choose_devices(config_for(3))
    with pytest.raises(UserError, match=r"runtime.num_devices 4 .* 6 sequences per task .*: 0 \(automatic\), 1, 2, 3"):
        choose_devices(config_for(4, batch_size=12, env="rooms-3,rooms-4"))


@pytest.mark.parametrize(("began", "expected"), [(4, 4), (2, 2), (8, 4), (6, 4), (0, 4), (1, 1)])
def test_resumed_run_takes_its_devices_or_all_that_share_the_batch(four: list[Any], began: int, expected: int) -> None:
    assert learner_devices(config_for(began, batch_size=24)) == four[:expected]


@pytest.mark.usefixtures("four")
def test_resumed_run_keeps_its_configured_number() -> None:
    config = config_for(8)
    assert resolve_devices(config, resume=True) == config
    with pytest.raises(UserError, match=r"runtime\.num_devices is 8, but JAX has 4"):
        resolve_devices(config)


def test_run_resumes_in_any_number_of_processes_that_shares_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [Device(process) for process in range(4)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    assert learner_devices(config_for(2)) == devices
    with pytest.raises(
        UserError, match=r"distributed.num_processes is 4, .* 6 sequences evenly; choose from: 1, 2, 3, 6"
    ):
        learner_devices(config_for(2, batch_size=6))


SIX_AND_TWO = """
from byol_explore.config.presets import make_config
from byol_explore.runtime.make import choose_actor_devices, choose_devices, resolve_devices
config = resolve_devices(make_config("dm-hard-eight-8").validate())
learners, actors = choose_devices(config), choose_actor_devices(config)
print([device.id for device in learners], [device.id for device in actors], config.runtime.batch_size % len(learners))
"""


def test_hard_eight_preset_has_six_learning_and_two_acting_devices() -> None:
    with processes(["-c", SIX_AND_TWO], devices=8) as [one]:
        assert one.end() == (0, "[0, 1, 2, 3, 4, 5] [6, 7] 0\n", "")
