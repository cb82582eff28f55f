"""Where a configuration runs: its tasks, its devices, and the runtime that fits them."""

import dataclasses
from collections.abc import Sequence

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.extras import needed_by
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import Runtime
from byol_explore.runtime.devices import choose_actor_devices, choose_devices, devices_at_hand
from byol_explore.runtime.leading import Leading
from byol_explore.runtime.processes import ALONE, Processes
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.runtime.sources import Source
from byol_explore.settings.config import Config
from byol_explore.types import Device


def resolve_devices(config: Config, *, resume: bool = False) -> Config:
    """With the number of devices that a run really uses: its results depend on it, in the last bits.

    One that goes on keeps the number that it began with, even if there are fewer now.
    """
    if resume and config.runtime.devices:
        return config
    runtime = dataclasses.replace(config.runtime, devices=len(choose_devices(config)))
    return dataclasses.replace(config, runtime=runtime)


def on_one_device(config: Config) -> Config:
    """For whoever looks at a run on a machine that may have fewer devices than all that have trained it."""
    return dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, devices=1, actor_devices=0))


def learning_devices(config: Config, envs: Sequence[AnyEnvironment]) -> list[Device]:
    """Those that a run with these environments learns on."""
    return devices_at_hand(config, inside=not isinstance(envs[0], HostEnvironment))


def make_runtime(config: Config, envs: Sequence[AnyEnvironment], processes: Processes = ALONE) -> Runtime:
    """The runtime for these environments; where several processes learn together, the first leads."""
    learners = learning_devices(config, envs)
    if isinstance(envs[0], HostEnvironment):
        source = _ray_actors(config, envs[0].spec) if config.runtime.engine == "ray" else None
        runtime = Sebulba(config, envs, learners, choose_actor_devices(config), source, processes)  # pyright: ignore[reportArgumentType]
    else:
        _refuse_ray(config)
        runtime = Anakin(config, envs, learners, config.runtime.devices or None)  # pyright: ignore[reportArgumentType]
    return Leading(runtime, processes) if processes.count > 1 and processes.index == 0 else runtime


def _refuse_ray(config: Config) -> None:
    if config.runtime.engine != "threads":
        raise UserError(
            f"runtime.engine {config.runtime.engine} is for environments outside jit, and {config.env} is not"
        )


def _ray_actors(config: Config, spec: EnvSpec) -> Source:
    with needed_by("runtime.engine ray"):
        from byol_explore.runtime.cluster.central import CentralActors
        from byol_explore.runtime.cluster.source import RayActors
    return (CentralActors if config.runtime.inference == "central" else RayActors)(config, spec)


def training_envs(config: Config) -> Sequence[AnyEnvironment]:
    """The tasks of a run, as its actors play them."""
    return make_envs(config.env_ids, config.env_settings, actors=config.runtime.actors)
