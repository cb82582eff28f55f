"""Where a configuration runs: its tasks, its devices, and the runtime that fits them."""

import dataclasses
from collections.abc import Sequence

from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import Runtime
from byol_explore.runtime.devices import choose_actor_devices, choose_devices
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.settings.config import Config


def resolve_devices(config: Config) -> Config:
    """With the number of devices that a run really uses: its results depend on it, in the last bits."""
    runtime = dataclasses.replace(config.runtime, devices=len(choose_devices(config)))
    return dataclasses.replace(config, runtime=runtime)


def make_runtime(config: Config, envs: Sequence[AnyEnvironment]) -> Runtime:
    """The runtime for these environments."""
    if isinstance(envs[0], HostEnvironment):
        return Sebulba(config, envs, choose_devices(config), choose_actor_devices(config))  # pyright: ignore[reportArgumentType]
    return Anakin(config, envs, choose_devices(config))  # pyright: ignore[reportArgumentType]


def training_envs(config: Config) -> Sequence[AnyEnvironment]:
    """The tasks of a run, as its actors play them."""
    return make_envs(config.env_ids, config.env_settings, actors=config.runtime.actors)
