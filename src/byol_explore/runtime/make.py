"""Choose the devices and the runtime of a run."""

import dataclasses
from collections.abc import Sequence

import jax

from byol_explore.config.config import Config
from byol_explore.envs.interface import AnyEnvironment, EnvSpec, HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.runtime.actor_threads import RolloutSource
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import Runtime
from byol_explore.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from byol_explore.runtime.leader import LeaderRuntime
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.types import Device
from byol_explore.utils.packages import require_extra


def resolve_devices(config: Config, *, resume: bool = False) -> Config:
    """Set `runtime.num_devices` to the number of devices that are used; a resumed run keeps its own.

    Results depend on the number in the last bits, through the order of sums.
    """
    if resume and config.runtime.num_devices:
        return config
    runtime = dataclasses.replace(config.runtime, num_devices=len(choose_devices(config)))
    return dataclasses.replace(config, runtime=runtime)


def with_one_device(config: Config) -> Config:
    """Configure one device, to examine a run on a machine with fewer devices than it was trained on."""
    return dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, num_devices=1, num_actor_devices=0))


def make_runtime(config: Config, envs: Sequence[AnyEnvironment], processes: ProcessGroup = SINGLE_PROCESS) -> Runtime:
    """Make the runtime for these environments; process 0 of several wraps it in a `LeaderRuntime`."""
    learners, backend = learner_devices(config), config.runtime.actor_backend
    if isinstance(envs[0], HostEnvironment):
        source = _make_ray_source(config, envs[0].spec) if backend == "ray" else None
        runtime = Sebulba(config, envs, learners, choose_actor_devices(config), source, processes)  # pyright: ignore[reportArgumentType]
    elif backend == "threads":
        runtime = Anakin(config, envs, learners)  # pyright: ignore[reportArgumentType]
    else:
        raise UserError(
            f"runtime.actor_backend {backend} is for environments outside jit, and {config.env} is inside jit"
        )
    return LeaderRuntime(runtime, processes) if processes.count > 1 and processes.index == 0 else runtime


def _make_ray_source(config: Config, spec: EnvSpec) -> RolloutSource:
    with require_extra("runtime.actor_backend ray"):
        from byol_explore.runtime.cluster.ray_sources import CentralInferenceActors, RayActors
    return (CentralInferenceActors if config.runtime.inference == "central" else RayActors)(config, spec)


def make_training_envs(config: Config) -> Sequence[AnyEnvironment]:
    """Make the environments of a run, one per task."""
    return make_envs(config.env_ids, config.env_settings, actors=config.runtime.num_actors)


def choose_actor_devices(config: Config) -> list[Device]:
    """Devices of this process that only act, for environments outside jit: its last ones."""
    count = config.runtime.num_actor_devices
    return _by_process()[jax.process_index()][-count:] if count else []


def choose_devices(config: Config) -> list[Device]:
    """Choose `runtime.num_devices` devices; for 0, as many as share the batch evenly.

    Every process contributes equally many, and holds consecutive environments in the order of processes.
    """
    available, share, counts = _available(config)
    wanted = config.runtime.num_devices
    if wanted > len(available):
        raise UserError(
            f"runtime.num_devices is {wanted}, but JAX has {len(available)}: {', '.join(map(str, available))}"
        )
    if wanted not in (0, *counts):
        of_task = " per task" if config.task_sampling == "fixed" else ""
        raise UserError(
            f"runtime.num_devices {wanted} cannot share a batch of {share} sequences{of_task} evenly; "
            f"choose from: {', '.join(['0 (automatic)', *map(str, counts)])}"
        )
    return learner_devices(config)


def learner_devices(config: Config) -> list[Device]:
    """Devices that a run learns on now: `runtime.num_devices` of them, or all that share the batch evenly.

    A run may resume on another number of devices than it began with. Its results are then equal to rounding.
    """
    count = config.runtime.num_devices
    _, share, counts = _available(config)
    if not counts:
        raise UserError(
            f"distributed.num_processes is {len(_by_process())}, which cannot share a batch of {share} sequences "
            f"evenly; choose from: {', '.join(str(n) for n in range(1, share + 1) if share % n == 0)}"
        )
    count = count if count in counts else counts[-1]
    owned = _by_process()
    return [device for devices in owned for device in devices[: count // len(owned)]]


def _available(config: Config) -> tuple[list[Device], int, list[int]]:
    """Return devices that can learn, the sequences per batch and task that they share, and numbers of devices."""
    owned, acting = _by_process(), config.runtime.num_actor_devices
    least = min(map(len, owned))
    if acting >= least:
        raise UserError(
            f"runtime.num_actor_devices is {acting}, but JAX has {least} and one must learn: choose 0 to {least - 1}"
        )
    processes, available = len(owned), [device for devices in owned for device in devices[: least - acting]]
    share = config.runtime.batch_size // (len(config.env_ids) if config.task_sampling == "fixed" else 1)
    counts = [count for count in range(processes, len(available) + 1, processes) if share % count == 0]
    return available, share, counts


def _by_process() -> list[list[Device]]:
    """Group all devices by process."""
    return [[each for each in jax.devices() if each.process_index == index] for index in range(jax.process_count())]
