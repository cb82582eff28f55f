"""Several processes that learn together, with `jax.distributed`: connect, exchange objects and arrays, report failures.

Arrays may be spread over the devices of all processes. Other data goes through the coordinator's key-value store, as
JSON. The coordinator is in process 0. JAX ends all other processes when it is gone, and all processes when one sends no
heartbeat for too long.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.config.sections import DistributedConfig
from byol_explore.errors import DivergenceError, PeerLost, UserError
from byol_explore.types import Array, PyTree
from byol_explore.utils.formatting import one_line
from byol_explore.utils.interrupts import SignalGuard, default_sigint, sigint_handler
from byol_explore.utils.validation import parse_host_port

_POLL_MILLISECONDS = 1000  # of one request to the store: between two checks for failures, and for Ctrl-C
_FAILURE_SECONDS = 30.0  # that process 0 waits until the others have read why it ends; they may be compiling
_GRACE_SECONDS = 1.0  # for them to print the reason
_SHUTDOWN_SECONDS = 60  # for all to leave together; longer than a failing process waits for the others
_FOLDER = "byol_explore"  # of our keys
# Errors of a program, not of the connection to other processes.
_OWN_ERRORS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


class ProcessGroup(Protocol):
    """The processes that learn together, seen from one of them.

    The methods are collectives: every process must call each of them equally often and in the same order.
    """

    index: int  # of this process
    count: int

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Gather JSON data of all processes, ordered by process. Raises PeerLost if one has ended."""
        ...

    def broadcast(self, tree: PyTree) -> PyTree:
        """Return the arrays of process 0 in every process; the others give arrays of the same shapes and dtypes."""
        ...

    def all_gather_arrays(self, tree: PyTree) -> PyTree:
        """Gather NumPy arrays [...] of all processes as [processes, ...]; all give the same shapes."""
        ...

    def peer_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turn JAX's error after the loss of a process into PeerLost, around a computation over all processes."""
        ...


class SingleProcess:
    """A group of one process; every collective is a no-op."""

    index, count = 0, 1

    def all_gather_objects(self, value: Any) -> list[Any]:
        return [value]

    def broadcast(self, tree: PyTree) -> PyTree:
        return tree

    def all_gather_arrays(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x)[None], tree)

    def peer_errors(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


SINGLE_PROCESS = SingleProcess()


class DistributedProcesses:
    """One process of several that are connected."""

    def __init__(self, settings: DistributedConfig) -> None:
        self.index, self.count = settings.process_id, settings.num_processes
        self._store = _key_value_store()
        self._round = 0  # of `all_gather_objects`
        self._is_interrupted = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C. Remembers it, because an exception inside a callback of a library may be lost."""
        self._is_interrupted = True
        raise KeyboardInterrupt

    def all_gather_objects(self, value: Any) -> list[Any]:
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._round += 1
        self._set(f"gather/{self._round}/{self.index}", value)
        values = [self._wait_for(f"gather/{self._round}/{process}") for process in range(self.count)]
        # All processes have set a value of this round, so all have read those of the last one.
        with contextlib.suppress(RuntimeError):
            self._store.key_value_delete(f"{_FOLDER}/gather/{self._round - 1}/{self.index}")
        return values

    def broadcast(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        # As bytes: the broadcast adds zeros, which changes the sign of -0 and may change the bits of a NaN.
        plain = jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if _is_key(x) else x), tree)
        with self.peer_errors():
            first = broadcast_one_to_all(jax.tree.map(lambda x: np.frombuffer(x.tobytes(), np.uint8), plain))

        def restore(received: np.ndarray, like: np.ndarray, leaf: Array) -> Array:
            x: Any = np.frombuffer(received.tobytes(), like.dtype).reshape(like.shape)
            return jax.random.wrap_key_data(jnp.asarray(x)) if _is_key(leaf) else x

        return jax.tree.map(restore, first, plain, tree)

    def all_gather_arrays(self, tree: PyTree) -> PyTree:
        from jax.experimental.multihost_utils import process_allgather

        with self.peer_errors():
            return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), process_allgather(tree), tree)

    @contextlib.contextmanager
    def peer_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:  # JAX raises either of them
            # Errors of the runtime system begin with a status code, such as UNAVAILABLE.
            if not str(error).split(":")[0].isupper() or str(error).startswith(_OWN_ERRORS):
                raise
            raise self._peer_lost() from error

    def report_failure(self, error: BaseException) -> None:
        """Tell the other processes why this one ends, unless it ends because of their report."""
        with contextlib.suppress(RuntimeError, UserError):  # the store is gone
            if not (isinstance(error, PeerLost) and self._reported_failure()):
                self._set(f"failed/{self.index}", _describe_failure(error))
        with contextlib.suppress(RuntimeError):
            self._part()

    def _part(self) -> None:
        """Leave after a failure, process 0 last."""
        # The store lives in process 0. JAX ends the others without a message once it is gone, so it waits until they
        # have read the reason.
        if self.index > 0:
            self._store.key_value_set(f"{_FOLDER}/parted/{self.index}", "")
            return
        deadline = time.monotonic() + _FAILURE_SECONDS
        for process in range(1, self.count):
            while time.monotonic() < deadline and self._try_get(f"parted/{process}") is None:
                pass
        time.sleep(_GRACE_SECONDS)

    def _set(self, key: str, value: Any) -> None:
        try:
            self._store.key_value_set(f"{_FOLDER}/{key}", json.dumps(value))
        except RuntimeError as error:
            raise self._peer_lost() from error

    def _try_get(self, key: str) -> str | None:
        """Return a value, or None if it is not set within _POLL_MILLISECONDS."""
        try:
            return self._store.blocking_key_value_get(f"{_FOLDER}/{key}", _POLL_MILLISECONDS)
        except RuntimeError as error:
            if str(error).startswith("DEADLINE_EXCEEDED"):
                return None
            raise

    def _wait_for(self, key: str) -> Any:
        """Return a value once it is set. Raises PeerLost if another process fails before."""
        # No time limit while all processes are alive: process 0 may be playing an evaluation.
        while True:
            try:
                if (text := self._try_get(key)) is not None:
                    return json.loads(text)
            except RuntimeError as error:
                raise self._peer_lost() from error
            if failure := self._reported_failure():
                raise failure

    def _reported_failure(self) -> PeerLost | None:
        """Return the failure that another process has reported."""
        with contextlib.suppress(RuntimeError):
            for key, value in self._store.key_value_dir_get(f"{_FOLDER}/failed"):
                process = int(key.rpartition("/")[2])
                if process != self.index:
                    reason, exit_code = json.loads(value)
                    return PeerLost(f"process {process} has ended: {reason}", exit_code)
        return None

    def _peer_lost(self) -> PeerLost:
        other = f"process {1 - self.index}" if self.count == 2 else "another process"
        return self._reported_failure() or PeerLost(
            f"{other} has ended or cannot be reached; continue with --resume in all of them"
        )


@contextlib.contextmanager
def join_process_group(settings: DistributedConfig) -> Iterator[ProcessGroup]:
    """Connect to the other processes; a failure inside is reported to them."""
    if settings.num_processes == 1:
        yield SINGLE_PROCESS
        return
    with default_sigint():
        initialize_distributed(settings)
    processes = DistributedProcesses(settings)
    try:
        with sigint_handler(processes.interrupt):
            yield processes
    except SignalGuard.StoppedBySignal:
        _shutdown()
        raise
    except BaseException as error:
        processes.report_failure(error)
        raise
    _shutdown()


def _describe_failure(error: BaseException) -> tuple[str, int]:
    """Return the reason and the exit code for the other processes."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 128 + signal.SIGINT
    if isinstance(error, UserError | DivergenceError):
        return str(error), PeerLost.exit_code
    return f"{type(error).__name__} {one_line(error)}".strip(), PeerLost.exit_code


def _shutdown() -> None:
    """Leave together. The work is done: a process that has left already is no error."""
    with contextlib.suppress(RuntimeError):
        jax.distributed.shutdown()


def _key_value_store() -> Any:
    """Return the coordinator's store; JAX has no public name for it."""
    from jax._src import distributed

    return distributed.global_state.client


def _is_key(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def initialize_distributed(settings: DistributedConfig) -> None:
    """Connect this process to the coordinator, and its devices to those of the other processes."""
    own = _own_address(settings.coordinator_address)
    if settings.process_id == 0:
        _check_port(own, settings.coordinator_address)
    # On one host, listen on the loopback interface only; else on all interfaces.
    bind_address = settings.coordinator_address if own.startswith("127.") or own == "::1" else None
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    try:
        jax.distributed.initialize(
            settings.coordinator_address, settings.num_processes, settings.process_id,
            cluster_detection_method="deactivate",
            initialization_timeout=settings.initialization_timeout,
            heartbeat_timeout_seconds=settings.heartbeat_timeout,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS, coordinator_bind_address=bind_address,
        )  # fmt: skip
    except RuntimeError as error:
        raise UserError(f"distributed.num_processes is {settings.num_processes}, but {one_line(error)}") from error
    with _gloo_hostname(own):
        devices = Counter(device.process_index for device in jax.devices())
    if len(set(devices.values())) == 1:  # else `agree_on_config` refuses them
        _connect_devices()


def _own_address(coordinator: str) -> str:
    """Return the address of this host on the route to the coordinator, without sending anything."""
    host, port = parse_host_port(coordinator) or ("", 0)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    except OSError as error:
        raise UserError(
            f"distributed.coordinator_address is {coordinator}, which cannot be reached: {error}"
        ) from error


def _check_port(address: str, coordinator: str) -> None:
    """Raise a UserError if the coordinator's port is taken: JAX would crash."""
    _, port = parse_host_port(coordinator) or ("", 0)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UserError(
                f"distributed.coordinator_address is {coordinator}, but process 0 cannot listen there: {error.strerror}"
            ) from error


@contextlib.contextmanager
def _gloo_hostname(address: str) -> Iterator[None]:
    """Have gloo, which connects CPUs, listen at this address while JAX starts."""
    # By default it resolves the host's name, which may give an address that other hosts cannot reach.
    from jax._src import xla_bridge

    library: Any = xla_bridge._jax  # pyright: ignore[reportPrivateImportUsage]
    make = library.make_gloo_tcp_collectives
    library.make_gloo_tcp_collectives = partial(make, hostname=address)
    try:
        yield
    finally:
        library.make_gloo_tcp_collectives = make


def _connect_devices() -> None:
    """Run a first collective, without the line that gloo prints to standard output from C++."""
    from jax.experimental.multihost_utils import process_allgather

    stdout, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        process_allgather(np.zeros(1, np.float32))
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(null)
