"""Which devices a run uses. On a CPU, one device per core: small programs gain nothing from threads inside them."""

import os

import jax

from byol_explore.config import Config
from byol_explore.errors import UserError
from byol_explore.types import Device


def use_cores(count: int | None = None) -> None:
    """Make each of `count` CPU cores (all, by default) a JAX device; must come before JAX's first computation.

    Accelerators are not touched: where JAX finds one, it is used.
    """
    count = available_cores() if count is None else count
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return  # the user has decided
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise UserError("use_cores must be called before JAX computes anything") from error


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_devices(config: Config) -> list[Device]:
    """As many as the configuration asks for; for 0, as many as share the batch evenly."""
    available = jax.devices()
    wanted = config.runtime.devices
    share = config.runtime.batch_size // len(config.env_ids)
    if wanted == 0:
        wanted = max(count for count in range(1, len(available) + 1) if share % count == 0)
    if wanted > len(available):
        raise UserError(f"runtime.devices is {wanted}, but JAX has {len(available)}: {', '.join(map(str, available))}")
    if share % wanted:
        raise UserError(f"runtime.devices {wanted} cannot share a batch of {share} sequences per task evenly")
    return available[:wanted]
