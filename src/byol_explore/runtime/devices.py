"""Which devices a run uses."""

import jax

from byol_explore.errors import UserError
from byol_explore.settings.config import Config
from byol_explore.types import Device


def choose_actor_devices(config: Config) -> list[Device]:
    """Those that only act, for environments outside jit: the last ones."""
    count = config.runtime.actor_devices
    return jax.devices()[-count:] if count else []


def choose_devices(config: Config) -> list[Device]:
    """As many as the configuration asks for; for 0, as many as share the batch evenly."""
    available = jax.devices()
    acting = config.runtime.actor_devices
    if acting >= len(available):
        raise UserError(
            f"runtime.actor_devices is {acting}, but JAX has {len(available)} and one must learn: "
            f"choose 0 to {len(available) - 1}"
        )
    available = available[: len(available) - acting]
    wanted = config.runtime.devices
    share = config.runtime.batch_size // (len(config.env_ids) if config.tasks == "fixed" else 1)
    even = [count for count in range(1, len(available) + 1) if share % count == 0]
    if wanted == 0:
        wanted = even[-1]
    if wanted > len(available):
        raise UserError(f"runtime.devices is {wanted}, but JAX has {len(available)}: {', '.join(map(str, available))}")
    if wanted not in even:
        of_task = " per task" if config.tasks == "fixed" else ""
        raise UserError(
            f"runtime.devices {wanted} cannot share a batch of {share} sequences{of_task} evenly; "
            f"choose from: 0 (automatic), {', '.join(map(str, even))}"
        )
    return available[:wanted]
