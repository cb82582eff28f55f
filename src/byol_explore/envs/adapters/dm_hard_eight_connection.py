"""A conversation with a dm_env_rpc server, in which every answer is waited for with a limit.

One gRPC stream is one conversation: each request has exactly one answer, which may be an error in words. A stream that
breaks or stays silent is `Lost`. A server refuses a step before anybody has joined a world, and that is how one knows
that it listens: a channel alone is ready long before what is behind it, in a container in particular.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, message_utils
from dm_env_rpc.v1.error import DmEnvRpcError

from byol_explore.envs.adapters.dm_hard_eight_settings import is_local
from byol_explore.errors import one_line

MESSAGES: Any = dm_env_rpc_pb2  # whose classes are made when it is imported, so that type checkers do not know them
LOOK = 0.2  # seconds between two looks at whether there is a server at all
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # environments share no connection, nor its pauses after a failure
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Lost(Exception):
    """A server has gone, or does not answer; the message says which of it."""


class Refused(Exception):
    """A server has answered with an error, in its own words."""


class Strange(Exception):
    """A server does not answer as one of dm_env_rpc does."""


class Connection:
    """One stream to a server, which need not listen yet."""

    def __init__(self, address: str) -> None:
        self._channel = _channel(address)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = dm_env_rpc_pb2_grpc.EnvironmentStub(self._channel)
        self._stream = stub.Process(iter(self._requests.get, None), wait_for_ready=True)
        threading.Thread(target=self._listen, daemon=True, name=f"dm_env_rpc {address}").start()

    def ask(self, request: Any, seconds: float, watch: Callable[[], None] = lambda: None) -> Any:
        """The answer to a request; while it is waited for, `watch` may raise what makes waiting vain."""
        packed, kind = message_utils.pack_environment_request(request)
        self._requests.put(packed)
        answer = self._wait(kind, time.monotonic() + seconds, watch)
        if isinstance(answer, Exception):
            raise Lost(_reason(answer))
        try:
            return message_utils.unpack_environment_response(answer, kind)
        except DmEnvRpcError as error:
            raise Refused(f"it answers {kind} with the error {one_line(error.message)!r}") from None
        except ValueError as error:
            raise Strange(f"it does not answer {kind} as dm_env_rpc does: {one_line(error)}") from None

    def close(self) -> None:
        """From any thread; who waits for an answer hears that it is lost."""
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()

    def _wait(self, kind: str, deadline: float, watch: Callable[[], None]) -> Any:
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=min(LOOK, left))
            watch()
        raise Lost(f"it has not answered {kind}")

    def _listen(self) -> None:
        try:
            for answer in self._stream:
                self._answers.put(answer)
            self._answers.put(EOFError("it has ended the stream"))
        except grpc.RpcError as error:
            self._answers.put(error)


def connect(address: str, deadline: float, watch: Callable[[], None], pause: Callable[[float], object]) -> Connection:
    """A stream to a server that answers, which may take it until the deadline to begin with."""
    seconds, reason = 0.1, None
    while True:
        connection = Connection(address)
        try:
            connection.ask(MESSAGES.StepRequest(), max(0.0, deadline - time.monotonic()), watch)
        except Refused:
            return connection
        except Lost as loss:
            connection.close()
            if reason is None or time.monotonic() < deadline:  # the end of the time is no reason of its own
                reason = loss
            pause(min(seconds, max(0.0, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                raise reason from None
        except BaseException:
            connection.close()
            raise
        else:
            connection.close()
            raise Strange("it answers a step before anybody has joined a world")
        watch()
        seconds = min(2 * seconds, 1.0)


def _channel(address: str) -> grpc.Channel:
    """As the original expects on this machine; to another one without encryption, which it does not know."""
    if is_local(address):
        return grpc.secure_channel(address, grpc.local_channel_credentials(), options=_OPTIONS)
    return grpc.insecure_channel(address, options=_OPTIONS)


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return f"its stream broke with {error.code().name}: {one_line(error.details(), 120)}"
    return str(error)
