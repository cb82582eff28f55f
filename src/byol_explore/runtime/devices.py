"""Which devices a run uses."""

import jax

from byol_explore.errors import UserError
from byol_explore.settings.config import Config
from byol_explore.types import Device


def choose_actor_devices(config: Config) -> list[Device]:
    """Those of this process that only act, for environments outside jit: the last ones."""
    count = config.runtime.actor_devices
    return _by_process()[jax.process_index()][-count:] if count else []


def choose_devices(config: Config) -> list[Device]:
    """As many as the configuration asks for; for 0, as many as share the batch evenly.

    Processes that learn together give equally many each, and have their shares in their order.
    """
    owned, acting = _by_process(), config.runtime.actor_devices
    least = min(map(len, owned))
    if acting >= least:
        raise UserError(
            f"runtime.actor_devices is {acting}, but JAX has {least} and one must learn: choose 0 to {least - 1}"
        )
    processes, available = len(owned), [device for devices in owned for device in devices[: least - acting]]
    wanted = config.runtime.devices
    share = config.runtime.batch_size // (len(config.env_ids) if config.tasks == "fixed" else 1)
    even = [count for count in range(processes, len(available) + 1, processes) if share % count == 0]
    if wanted == 0:
        wanted = even[-1]
    if wanted > len(available):
        raise UserError(f"runtime.devices is {wanted}, but JAX has {len(available)}: {', '.join(map(str, available))}")
    if wanted not in even:
        of_task = " per task" if config.tasks == "fixed" else ""
        raise UserError(
            f"runtime.devices {wanted} cannot share a batch of {share} sequences{of_task} evenly; "
            f"choose from: {', '.join(['0 (automatic)', *map(str, even)])}"
        )
    return [device for devices in owned for device in devices[: wanted // processes]]


def _by_process() -> list[list[Device]]:
    """All devices, those of each process together."""
    devices = jax.devices()
    if jax.process_count() == 1:
        return [devices]
    return [[each for each in devices if each.process_index == index] for index in range(jax.process_count())]
