"""The connection to Ray: to a cluster that is there, or to one of our own on this machine, which ends with the run."""

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
from collections.abc import Iterator

from byol_explore.envs.adapters.processes import end, has_ended
from byol_explore.errors import UserError, one_line
from byol_explore.runtime.cluster.head import LOOPBACK
from byol_explore.runtime.cluster.rays import ray

_START, _END, _KNOCK = 400.0, 20.0, 10.0  # seconds for a cluster to start, to end, and to answer
_TOKEN = secrets.token_hex(32)  # without which nobody may use a cluster of ours, whoever can reach it


def _keep_to_ourselves() -> dict[str, str | None]:
    """A token and the loopback interface, for this process and its children; what there was before."""
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN, LOOPBACK: "0"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ |= ours
    _read_variables_again()
    return before


def _read_variables_again() -> None:
    """Ray has read them when it was imported, and knows no other way than this to do so again."""
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(LOOPBACK) != "0"
    with contextlib.suppress(AttributeError):  # older versions have no tokens
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


class Connection:
    """To a cluster with room for so many actors; `close` ends whatever this run has started in it."""

    def __init__(self, address: str, actors: int, store: int) -> None:
        self._head: Head | None = None
        self._before: dict[str, str | None] = {}  # variables of the environment
        self._is_own = not ray.is_initialized()
        if not self._is_own:  # somebody else's, who will end it
            return
        try:
            if address:
                _join(address)
            else:
                self._before = _keep_to_ourselves()
                self._head = Head(actors, store)
                _join(self._head.address())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; a cluster of our own ends with it."""
        if self._is_own:
            with _signals_kept():
                ray.shutdown()
        if self._head is not None:
            self._head.end()
            self._head = None
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._before:
            _read_variables_again()
            self._before = {}


def cpus() -> float:
    """Of all nodes that are there, as they were declared."""
    return ray.cluster_resources().get("CPU", 0.0)


def _join(address: str) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    _check_reachable(address)
    try:
        with _signals_kept():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise UserError(
            f"runtime.address {address!r}: no Ray cluster can be joined there ({type(error).__name__}: "
            f"{one_line(error, 120)}); start one with `ray start`, on this machine too (docs/cluster.md)"
        ) from error


def _check_reachable(address: str) -> None:
    """A UserError if nobody listens there: Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"runtime.address is {address!r}: it must be host:port, as `ray start --head` says it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK).close()
    except OSError as error:
        raise UserError(
            f"runtime.address {address!r}: nobody listens there ({one_line(error, 80)}); start a cluster with "
            "`ray start`, on this machine too (docs/cluster.md)"
        ) from error


class Head:
    """A cluster of our own, behind a process in a session of its own, which Ctrl-C does not reach."""

    def __init__(self, actors: int, store: int) -> None:
        order = json.dumps({"cpus": actors + 1, "store": store})
        words = [sys.executable, "-m", "byol_explore.runtime.cluster.head", order]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )

    def address(self) -> str:
        """Where it listens, as soon as it does."""
        out = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + _START
        while not select.select([out], [], [], 0.2)[0]:
            if time.monotonic() > deadline:
                raise UserError(f"Ray cannot be started here: it has taken more than {_START:.0f} s")
        if line := out.readline():
            return json.loads(line)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise UserError(f"Ray cannot be started here: {one_line(said[-1] if said else 'it has ended without a word')}")

    def end(self) -> None:
        """The cluster ends when nobody holds the pipe of its process any more."""
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        if not has_ended(self._process, _END):
            end([self._process], patiently=False)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; whoever has handled signals before goes on to do so."""
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
