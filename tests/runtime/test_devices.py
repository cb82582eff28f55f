"""Which devices a run uses."""

import dataclasses
from typing import Any

import jax
import pytest

from byol_explore.errors import UserError
from byol_explore.runtime.choosing import resolve_devices
from byol_explore.runtime.devices import choose_devices, devices_at_hand
from byol_explore.settings.config import Config
from byol_explore.settings.parts import RuntimeConfig
from pairs import processes


def config_for(devices: int, batch_size: int = 8, env: str = "rooms-6") -> Config:
    runtime = RuntimeConfig(num_envs=2 * batch_size, batch_size=batch_size, devices=devices)
    return dataclasses.replace(Config(), env=env, runtime=runtime)


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """As if there were four."""
    devices = ["a", "b", "c", "d"]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    return devices


def test_the_real_ones() -> None:
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
def test_as_many_as_share_the_batch_evenly(
    four: list[Any], devices: int, batch_size: int, env: str, expected: int
) -> None:
    """Of every task each device must have the same number of sequences."""
    assert choose_devices(config_for(devices, batch_size, env)) == four[:expected]


@pytest.mark.usefixtures("four")
def test_more_than_there_are() -> None:
    with pytest.raises(UserError, match=r"runtime\.devices is 5, but JAX has 4: a, b, c, d"):
        choose_devices(config_for(5, batch_size=10))


@pytest.mark.usefixtures("four")
def test_an_uneven_share_says_what_is_even() -> None:
    with pytest.raises(UserError, match=r"runtime.devices 3 .* 8 sequences .*choose from: 0 \(automatic\), 1, 2, 4"):
        choose_devices(config_for(3))
    with pytest.raises(UserError, match=r"runtime.devices 4 .* 6 sequences per task .*: 0 \(automatic\), 1, 2, 3"):
        choose_devices(config_for(4, batch_size=12, env="rooms-3,rooms-4"))


@pytest.mark.parametrize(
    ("began", "inside", "expected"),
    [(4, True, 4), (2, True, 2), (8, True, 4), (6, True, 3), (0, True, 4), (1, True, 1), (6, False, 4), (2, False, 2)],
)
def test_a_run_that_goes_on_takes_as_many_as_fit_what_it_began_with(
    four: list[Any], began: int, inside: bool, expected: int
) -> None:
    """Inside jit each has equally many of its shares; outside any number will do."""
    assert devices_at_hand(config_for(began, batch_size=24), inside=inside) == four[:expected]


@pytest.mark.usefixtures("four")
def test_a_run_that_goes_on_keeps_the_number_that_it_began_with() -> None:
    config = config_for(8)
    assert resolve_devices(config, resume=True) == config
    with pytest.raises(UserError, match=r"runtime\.devices is 8, but JAX has 4"):
        resolve_devices(config)


def test_a_run_goes_on_in_any_number_of_processes_that_can_share_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [Device(process) for process in range(4)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    for inside in (True, False):
        assert devices_at_hand(config_for(2), inside=inside) == devices
        with pytest.raises(
            UserError, match=r"distributed.processes is 4, .* 6 sequences evenly; choose from: 1, 2, 3, 6"
        ):
            devices_at_hand(config_for(2, batch_size=6), inside=inside)


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int


SIX_AND_TWO = """
from byol_explore.runtime.choosing import resolve_devices
from byol_explore.runtime.devices import choose_actor_devices, choose_devices
from byol_explore.settings.presets import make_config
config = resolve_devices(make_config("dm-hard-eight-8").validate())
learners, actors = choose_devices(config), choose_actor_devices(config)
print([device.id for device in learners], [device.id for device in actors], config.runtime.batch_size % len(learners))
"""


def test_the_papers_hard_eight_has_six_devices_that_learn_and_two_that_act() -> None:
    with processes(["-c", SIX_AND_TWO], devices=8) as [one]:
        assert one.end() == (0, "[0, 1, 2, 3, 4, 5] [6, 7] 0\n", "")
