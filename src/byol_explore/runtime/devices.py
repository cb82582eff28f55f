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
    available, share, even = _at_hand(config)
    wanted = config.runtime.devices
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
    return _first(wanted)


def devices_at_hand(config: Config, *, inside: bool) -> list[Device]:
    """Those that a run learns on now, which may be others than `runtime.devices` when it goes on.

    As many as it began with, if they are there. Inside jit else as many as can have equally many of the shares that it
    began with, if processes have such a number; then, and outside, as many as share the batch evenly.
    """
    began = config.runtime.devices
    _, share, even = _at_hand(config)
    if not even:
        numbers = [count for count in range(1, share + 1) if share % count == 0]
        raise UserError(
            f"distributed.processes is {len(_by_process())}, which cannot share a batch of {share} sequences evenly; "
            f"choose from: {', '.join(map(str, numbers))}"
        )
    fitting = [count for count in even if began % count == 0] if inside or began in even else []
    return _first((fitting or even)[-1])


def _at_hand(config: Config) -> tuple[list[Device], int, list[int]]:
    """Devices that can learn, the sequences of a batch that they share, and how many of them could do so evenly."""
    owned, acting = _by_process(), config.runtime.actor_devices
    least = min(map(len, owned))
    if acting >= least:
        raise UserError(
            f"runtime.actor_devices is {acting}, but JAX has {least} and one must learn: choose 0 to {least - 1}"
        )
    processes, available = len(owned), [device for devices in owned for device in devices[: least - acting]]
    share = config.runtime.batch_size // (len(config.env_ids) if config.tasks == "fixed" else 1)
    even = [count for count in range(processes, len(available) + 1, processes) if share % count == 0]
    return available, share, even


def _first(count: int) -> list[Device]:
    """So many, equally many of each process."""
    owned = _by_process()
    return [device for devices in owned for device in devices[: count // len(owned)]]


def _by_process() -> list[list[Device]]:
    """All devices, those of each process together."""
    devices = jax.devices()
    if jax.process_count() == 1:
        return [devices]
    return [[each for each in devices if each.process_index == index] for index in range(jax.process_count())]
