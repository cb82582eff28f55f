"""Which devices a run uses."""

import dataclasses
from typing import Any

import jax
import pytest

from byol_explore.errors import UserError
from byol_explore.runtime.devices import choose_devices
from byol_explore.settings.config import Config
from byol_explore.settings.parts import RuntimeConfig


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
