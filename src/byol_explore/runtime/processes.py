"""Processes that learn together: how they find each other, and what they tell each other between their programs.

JAX connects them (`jax.distributed`): process 0 listens at the coordinator's address, all others come there, and arrays
may then lie on the devices of all. What is not an array goes through the coordinator's store of keys and values. JAX
ends every process whose coordinator has gone, and all of them when one is not heard of for too long.
"""

import contextlib
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.errors import DivergenceError, ProcessLost, UserError, one_line
from byol_explore.interrupts import Interrupts
from byol_explore.settings.parts import DistributedConfig
from byol_explore.types import Array, PyTree

_LOOK = 1000  # milliseconds between looks at what became of the others, while something is waited for
_PATIENCE = 3.0  # seconds in which others are to hear why process 0 ends
_FAREWELL = 10  # seconds in which all that have done their work leave together
_FOLDER = "byol_explore"
_NOT_THEIRS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # errors of a program, not of the others


class Processes(Protocol):
    """All that learn together, seen from one of them."""

    index: int
    count: int

    def everybody(self, mine: Any) -> list[Any]:
        """What each of them says now, in their order: plain data. All ask equally often, and wait for each other."""
        ...

    def same(self, tree: PyTree) -> PyTree:
        """Arrays of process 0, in all of them; the others give arrays of the same shapes."""
        ...

    def gather(self, tree: PyTree) -> PyTree:
        """Arrays of NumPy of each of them, with an axis of processes in front."""
        ...

    def noticing(self) -> contextlib.AbstractContextManager[None]:
        """While arrays of all are computed: what the loss of one makes of it is said in one line."""
        ...


class Alone:
    """One process, which learns by itself."""

    index, count = 0, 1

    def everybody(self, mine: Any) -> list[Any]:
        return [mine]

    def same(self, tree: PyTree) -> PyTree:
        return tree

    def gather(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x)[None], tree)

    def noticing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Together:
    """One of several processes that have found each other."""

    def __init__(self, settings: DistributedConfig) -> None:
        self.index, self.count = settings.process, settings.processes
        self._store = _store()
        self._round = 0

    def everybody(self, mine: Any) -> list[Any]:
        self._round += 1
        self._set(f"said/{self._round}/{self.index}", mine)
        said = [self._wait(f"said/{self._round}/{each}") for each in range(self.count)]
        self._forget(f"said/{self._round - 1}/{self.index}")  # who speaks now has heard all that was said then
        return said

    def same(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        leaves, structure = jax.tree.flatten(tree)
        plain = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in leaves]
        mine = np.frombuffer(b"".join(x.tobytes() for x in plain), np.uint8)
        with self.noticing():
            first = np.asarray(broadcast_one_to_all(mine))
        ends = np.cumsum([x.nbytes for x in plain])
        parts = [first[end - x.nbytes : end] for x, end in zip(plain, ends, strict=True)]
        taken = [np.frombuffer(part.tobytes(), x.dtype).reshape(x.shape) for x, part in zip(plain, parts, strict=True)]
        return structure.unflatten(
            jax.random.wrap_key_data(jnp.asarray(x)) if _is_key(like) else x
            for x, like in zip(taken, leaves, strict=True)
        )

    def gather(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import process_allgather

        with self.noticing():
            return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), process_allgather(tree), tree)

    @contextlib.contextmanager
    def noticing(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:  # which of them, JAX leaves to chance
            if not str(error).split(":")[0].isupper() or str(error).startswith(_NOT_THEIRS):
                raise
            raise self._lost() from error

    def fail(self, error: BaseException) -> None:
        """Tell all others why this one ends; process 0, whose store it is, waits a while until they have heard it."""
        if isinstance(error, ProcessLost) and self._failure() is not None:
            return  # it has been said by who has failed
        known = isinstance(error, UserError | DivergenceError)
        said = str(error) if known else f"{type(error).__name__} {one_line(error)}".strip()
        end = time.monotonic() + _PATIENCE
        with contextlib.suppress(RuntimeError, UserError):  # nobody listens any more
            self._set(f"failed/{self.index}", said)
            for other in range(1, self.count if self.index == 0 else 1):
                left = max(1, int(1000 * (end - time.monotonic())))
                self._store.blocking_key_value_get(f"{_FOLDER}/heard/{other}", left)

    def _set(self, key: str, value: Any) -> None:
        try:
            self._store.key_value_set(f"{_FOLDER}/{key}", json.dumps(value))
        except RuntimeError as error:
            raise self._lost() from error

    def _forget(self, key: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.key_value_delete(f"{_FOLDER}/{key}")

    def _wait(self, key: str) -> Any:
        """As long as it takes, while all are alive: process 0 may have an evaluation to play."""
        while True:
            try:
                return json.loads(self._store.blocking_key_value_get(f"{_FOLDER}/{key}", _LOOK))
            except RuntimeError as error:
                if not str(error).startswith("DEADLINE_EXCEEDED"):
                    raise self._lost() from error
            if failure := self._failure():
                raise failure

    def _failure(self) -> ProcessLost | None:
        """Why one of the others has ended, if it has said so."""
        with contextlib.suppress(RuntimeError):
            for key, said in self._store.key_value_dir_get(f"{_FOLDER}/failed"):
                number = key.rpartition("/")[2]
                if int(number) != self.index:
                    with contextlib.suppress(RuntimeError):  # it was said before
                        self._store.key_value_set(f"{_FOLDER}/heard/{self.index}", number)
                    return ProcessLost(f"process {number} has ended: {json.loads(said)}")
        return None

    def _lost(self) -> ProcessLost:
        other = f"process {1 - self.index}" if self.count == 2 else "another process"
        return self._failure() or ProcessLost(
            f"{other} has ended or cannot be reached; continue with --resume in all of them"
        )


ALONE = Alone()


@contextlib.contextmanager
def joined(settings: DistributedConfig) -> Iterator[Processes]:
    """All processes of a run, from here to the end; a failure of one is told to the others."""
    if settings.processes == 1:
        yield ALONE
        return
    _connect(settings)
    processes = Together(settings)
    try:
        yield processes
    except Interrupts.Stopped:
        jax.distributed.shutdown()
        raise
    except BaseException as error:
        processes.fail(error)
        raise
    jax.distributed.shutdown()


def _connect(settings: DistributedConfig) -> None:
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


def _store() -> Any:
    """The coordinator's store of keys and values: JAX has no public name for it, though Orbax uses it too."""
    from jax._src import distributed

    return distributed.global_state.client


def _is_key(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
