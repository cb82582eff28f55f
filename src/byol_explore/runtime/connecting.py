"""How processes that learn together find each other, with `jax.distributed`.

Process 0 listens at the coordinator's address, and all others come there.
"""

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from byol_explore.errors import UserError, one_line
from byol_explore.settings.parts import DistributedConfig

_FAREWELL = 60  # seconds in which all that have done their work leave together: longer than who fails waits to be heard


def connect(settings: DistributedConfig) -> None:
    """Find all others; collectives between CPUs use the way that leads to the coordinator."""
    host, _, port = settings.coordinator.rpartition(":")
    own = _own_address(host.strip("[]"), int(port))
    if settings.process == 0:
        _check_port(own, int(port), settings.coordinator)
    bound = settings.coordinator if own.startswith("127.") or own == "::1" else None  # else by all its addresses
    jax.config.update("jax_enable_preemption_service", False)  # which would take SIGTERM
    try:
        jax.distributed.initialize(
            settings.coordinator, settings.processes, settings.process, cluster_detection_method="deactivate",
            initialization_timeout=settings.start_timeout, heartbeat_timeout_seconds=settings.timeout,
            shutdown_timeout_seconds=_FAREWELL, coordinator_bind_address=bound,
        )  # fmt: skip
    except RuntimeError as error:
        raise UserError(f"distributed.processes is {settings.processes}, but {one_line(error)}") from error
    with _gloo_at(own):
        devices = Counter(device.process_index for device in jax.devices())
    if len(set(devices.values())) == 1:  # else they will not fit together
        _meet()


def _own_address(host: str, port: int) -> str:
    """By which this host is seen on the way to the coordinator; nothing is sent."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    except OSError as error:
        raise UserError(f"distributed.coordinator is {host}:{port}, which is not to be reached: {error}") from error


def _check_port(address: str, port: int, coordinator: str) -> None:
    """JAX would not survive a port that somebody else has."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UserError(
                f"distributed.coordinator is {coordinator}, but process 0 cannot listen there: {error.strerror}"
            ) from error


@contextlib.contextmanager
def _gloo_at(address: str) -> Iterator[None]:
    """Elsewhere gloo takes what the host's name stands for, which may be no address that others can reach."""
    from jax._src import xla_bridge

    library: Any = xla_bridge._jax  # pyright: ignore[reportPrivateImportUsage]
    make = library.make_gloo_tcp_collectives

    def at(**settings: Any) -> Any:
        return make(**settings, hostname=address)

    library.make_gloo_tcp_collectives = at
    try:
        yield
    finally:
        library.make_gloo_tcp_collectives = make


def _meet() -> None:
    """Connect all devices. Gloo prints a line about it, which is of no use to anybody."""
    from jax.experimental.multihost_utils import process_allgather

    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        process_allgather(np.zeros(1, np.float32))
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
