"""Everything that touches Ray's API: workers as Ray actors, parameters in its object store, and connections.

Private names of Ray are used in `_reload_environment` alone; a test checks that the installed version has them.
"""

import contextlib
import json
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import ray as _ray  # pyright: ignore[reportMissingImports]
import ray.exceptions as _exceptions  # pyright: ignore[reportMissingImports]

from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.runtime.cluster.head_process import LOOPBACK
from byol_explore.runtime.cluster.messages import WorkerFailure
from byol_explore.utils.formatting import one_line
from byol_explore.utils.processes import spawn_child, terminate_all, wait_exited
from byol_explore.utils.validation import parse_host_port

os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # attempts to connect; read when Ray is imported

ray: Any = _ray
RayError: Any = _exceptions.RayError


class RayBackend:
    """Workers as Ray actors.

    Args:
      make: `make(index, attempt)` starts the worker of a slot.
    """

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        self.start = make

    def join(self, worker: Any) -> Any:
        return worker.join.remote()

    def ping(self, worker: Any) -> Any:
        return worker.ping.remote()

    def kill(self, worker: Any) -> None:
        ray.kill(worker)

    def ready(self, references: list[Any], seconds: float) -> list[Any]:
        if not references:
            time.sleep(seconds)
            return []
        found, left = ray.wait(references, num_returns=len(references), timeout=0)
        return found or ray.wait(left, num_returns=1, timeout=seconds)[0]

    def get(self, reference: Any) -> Any:
        """Fetch an answer that is ready; dead workers, lost objects and full disks are failures."""
        try:
            return ray.get(reference)
        except RayError as error:
            return WorkerFailure(describe_ray_error(error))


def describe_ray_error(error: Exception) -> str:
    """Return the first line of Ray's message, or of the cause if the error is from inside a worker."""
    cause = getattr(error, "cause", None)
    error = cause if isinstance(cause, Exception) else error
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {one_line(first, 160)}"


RETRY_SECONDS = 1.0  # between two attempts to publish
MAX_REFUSALS = 60  # in a row, after which the run ends


class PublishedParameters:
    """The newest parameters that Ray's object store has accepted. Refused ones wait and are tried again.

    Actors continue with the parameters that they have meanwhile. Their rollouts carry the step of these parameters, so
    rollouts that are too old are dropped as usual.
    """

    def __init__(self, put: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.references: list[Any] = []  # to the parameters; empty before the first
        self.version = 0
        self.step = 0  # learner step up to which they were the newest
        self.counts: Counter[str] = Counter()
        self._put, self._clock = put, clock
        self._waiting: Any = None  # newer parameters
        self._now = 0  # current learner step
        self._refusals = 0  # in a row
        self._retry_at = 0.0
        self._reason = ""  # of the last refusal

    @property
    def is_current(self) -> bool:
        return self._waiting is None

    def publish(self, parameters: Any | None, step: int) -> bool:
        """Return True if new parameters were stored. None: the stored ones are still the newest at `step`."""
        self._now = step
        if parameters is not None:
            self._waiting = parameters
        elif self.is_current:
            self.step = step
        return self.retry()

    def retry(self) -> bool:
        """Try to store waiting parameters; True if they were stored."""
        if self.is_current or self._clock() < self._retry_at:
            return False
        try:
            self.references = [self._put(self._waiting)]
        except RayError as error:
            self._refusals += 1
            self._retry_at, self._reason = self._clock() + RETRY_SECONDS, describe_ray_error(error)
            self.counts["publish_failures"] += 1
            return False
        self._waiting, self._refusals, self._retry_at = None, 0, 0.0
        self.version, self.step = self.version + 1, self._now
        return True

    def check(self) -> None:
        """Raise an EnvironmentFailure after MAX_REFUSALS refusals in a row."""
        if self._refusals >= MAX_REFUSALS:
            raise EnvironmentFailure(
                f"Ray has refused to take the policy's parameters {self._refusals} times in a row ({self._reason}): "
                "start it with a larger --object-store-memory, or make room on the disk that it spills to"
            )


START_SECONDS, END_SECONDS, CONNECT_SECONDS = 400.0, 20.0, 10.0  # limits for a cluster to start, end and answer
_TOKEN = secrets.token_hex(32)  # required to use a cluster of ours, even for processes that can reach it


class RayConnection:
    """A connection to the Ray cluster at an address, or to a private one with room for `actors`.

    A connection that exists already is used, and not closed.
    """

    def __init__(self, address: str, actors: int, store: int, setting: str = "runtime.ray_address") -> None:
        self._stack = contextlib.ExitStack()  # undoes everything that this object has started
        if ray.is_initialized():
            return
        with contextlib.ExitStack() as stack:
            if not address:
                stack.enter_context(_private_environment())
                cluster = LocalRayCluster(actors, store)
                stack.callback(cluster.end)
                address = cluster.address()
            stack.callback(_disconnect)
            _connect(address, setting)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Disconnect, and end the cluster if it is private."""
        self._stack.close()


def _disconnect() -> None:
    with _keep_signal_handlers():
        ray.shutdown()


def cluster_cpus() -> float:
    """Sum the CPUs that all nodes have declared."""
    return ray.cluster_resources().get("CPU", 0.0)


def _connect(address: str, setting: str) -> None:
    """Join the cluster; a UserError if there is none."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    target = parse_host_port(address)
    if target is None:
        raise UserError(f"{setting} is {address!r}: it must be host:port, as `ray start --head` prints it")
    hint = "start one with `ray start`, on this machine too (docs/cluster.md)"
    try:
        socket.create_connection(target, CONNECT_SECONDS).close()  # Ray itself would try for a quarter of an hour
    except OSError as error:
        raise UserError(f"{setting} {address!r}: no cluster listens there ({one_line(error, 80)}); {hint}") from error
    try:
        with _keep_signal_handlers():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise UserError(
            f"{setting} {address!r}: the Ray cluster there cannot be joined ({type(error).__name__}: "
            f"{one_line(error, 120)}); {hint}"
        ) from error


class LocalRayCluster:
    """A private cluster behind a process that ends it when this process ends (`head_process`)."""

    def __init__(self, actors: int, store: int) -> None:
        options = json.dumps({"cpus": actors + 1, "store": store})
        command = [sys.executable, "-m", "byol_explore.runtime.cluster.head_process", options]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = spawn_child(command, stdout=subprocess.PIPE, stderr=self._errors)

    def address(self) -> str:
        """Wait until the cluster has started. Returns its address."""
        out = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + START_SECONDS
        while not select.select([out], [], [], 0.2)[0]:
            if time.monotonic() > deadline:
                raise UserError(f"Ray cannot be started here: it has taken more than {START_SECONDS:.0f} s")
        if line := out.readline():
            return json.loads(line)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        raise UserError(f"Ray cannot be started here: {one_line(lines[-1] if lines else 'it ended without a message')}")

    def end(self) -> None:
        """Close the pipe of its process, which then ends the cluster."""
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        if not wait_exited(self._process, END_SECONDS):
            terminate_all([self._process], patiently=False)


@contextlib.contextmanager
def _private_environment() -> Iterator[None]:
    """Require a token and the loopback interface, for this process and its children."""
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN, LOOPBACK: "0"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    _reload_environment()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _reload_environment()


def _reload_environment() -> None:
    """Have Ray read its environment variables again. Uses private names: Ray itself reads them on import only."""
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(LOOPBACK) != "0"
    with contextlib.suppress(AttributeError):  # versions without tokens
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore SIGINT and SIGTERM, which Ray takes over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
