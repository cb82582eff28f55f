"""Client of a dm_env_rpc server: a stream with time limits, the original's requests, and its specs.

One gRPC stream is one conversation: each request has exactly one response, which may be an error. A stream that breaks
or stays silent raises ServerLost. A server refuses a step before a world has been joined, which shows that it listens:
a channel is ready long before the server behind it, in particular in a container.

The bounds that a server sends are not reliable, so they are constants here: the agent's [-1, 1] spans them. Actions are
sticky: one that is left out keeps its value, so all nine are sent with every step.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, message_utils, tensor_utils
from dm_env_rpc.v1.error import DmEnvRpcError
from dm_env_rpc.v1.spec_manager import SpecManager

from byol_explore.envs.dm_hard_eight.servers import ServerLost
from byol_explore.envs.families import LEVELS, is_local
from byol_explore.envs.hard_eight.tasks import instructions
from byol_explore.spaces import ActionSpec, ArraySpace, Image, Vector
from byol_explore.utils.formatting import one_line

messages: Any = dm_env_rpc_pb2  # its classes are made at import time, unknown to type checkers
POLL_SECONDS = 0.2  # between two calls of `watch`
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # no connection, and no back-off, is shared between environments
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class ServerRefused(Exception):
    """A server has answered with an error; the message quotes it."""


class ProtocolError(Exception):
    """A server violates the protocol of dm_env_rpc."""


class DmEnvRpcStream:
    """One stream to a server, which may begin to listen later."""

    def __init__(self, address: str) -> None:
        # The original expects local credentials on its own machine, and has no encryption for others.
        if is_local(address):
            self._channel = grpc.secure_channel(address, grpc.local_channel_credentials(), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = dm_env_rpc_pb2_grpc.EnvironmentStub(self._channel)
        self._stream = stub.Process(iter(self._requests.get, None), wait_for_ready=True)
        threading.Thread(target=self._listen, daemon=True, name=f"dm_env_rpc {address}").start()

    def request(self, request: Any, seconds: float, watch: Callable[[], None] = lambda: None) -> Any:
        """Send a request and return its response.

        Args:
          request: a message of dm_env_rpc.
          seconds: time limit of the response.
          watch: called while waiting; raises if there is no reason to wait any more.
        """
        packed, kind = message_utils.pack_environment_request(request)
        self._requests.put(packed)
        response = self._wait(kind, time.monotonic() + seconds, watch)
        if isinstance(response, ServerLost):
            raise response
        try:
            return message_utils.unpack_environment_response(response, kind)
        except DmEnvRpcError as error:
            raise ServerRefused(f"it answers {kind} with the error {one_line(error.message)!r}") from None
        except ValueError as error:
            raise ProtocolError(f"it does not answer {kind} as dm_env_rpc does: {one_line(error)}") from None

    def close(self) -> None:
        """Close the stream, from any thread; a pending request raises ServerLost."""
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()

    def _wait(self, kind: str, deadline: float, watch: Callable[[], None]) -> Any:
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._responses.get(timeout=min(POLL_SECONDS, left))
            watch()
        raise ServerLost(f"it has not answered {kind}")

    def _listen(self) -> None:
        try:
            for response in self._stream:
                self._responses.put(response)
            loss = "it has ended the stream"
        except grpc.RpcError as error:
            loss = str(error)
            if isinstance(error, grpc.Call):
                loss = f"its stream broke with {error.code().name}: {one_line(error.details(), 120)}"
        self._responses.put(ServerLost(loss))


def connect(
    address: str, deadline: float, watch: Callable[[], None], pause: Callable[[float], object]
) -> DmEnvRpcStream:
    """Open streams until the server behind one answers; raise ServerLost at the deadline.

    Args:
      address: host:port.
      deadline: on the monotonic clock.
      watch: called while waiting; raises if there is no reason to wait any more.
      pause: waits for a number of seconds, or less.
    """
    seconds, reason = 0.1, None
    while True:
        stream = DmEnvRpcStream(address)
        try:
            stream.request(messages.StepRequest(), max(0.0, deadline - time.monotonic()), watch)
            raise ProtocolError("it answers a step before a world has been joined")
        except ServerRefused:
            return stream
        except ServerLost as loss:
            stream.close()
            if reason is None or time.monotonic() < deadline:  # the deadline itself is no reason
                reason = loss
            pause(min(seconds, max(0.0, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                raise reason from None
        except BaseException:
            stream.close()
            raise
        watch()
        seconds = min(2 * seconds, 1.0)


BOUNDS = {  # of the absolute values of the eight continuous actions
    "MOVE_BACK_FORWARD": 1.0,
    "STRAFE_LEFT_RIGHT": 1.0,
    "LOOK_DOWN_UP": 1.0,
    "LOOK_LEFT_RIGHT": 1.0,
    "HAND_ROTATE_AROUND_FORWARD": 1.0,
    "HAND_ROTATE_AROUND_RIGHT": 1.0,
    "HAND_ROTATE_AROUND_UP": 1.0,
    "HAND_PUSH_PULL": 10.0,
}
GRIP = "HAND_GRIP"
ACTION = ActionSpec(discrete=(2,), continuous=len(BOUNDS))
NAMES = {  # of the observations, ours to the original's
    "rgb": "RGB_INTERLEAVED",
    "hand_force": "HAND_FORCE",
    "hand_is_holding": "HAND_IS_HOLDING",
    "hand_distance": "HAND_DISTANCE",
}
REWARD = "reward"


def instruction(task: str) -> np.ndarray:
    """Return the tokens [MAX_INSTRUCTION_WORDS] int32 of a task. The original sends no text: they are constants."""
    return instructions()[list(LEVELS).index(task)]


def to_native_actions(continuous: np.ndarray, grip: int) -> dict[str, float]:
    """Return all nine native actions by name.

    Args:
      continuous: [8] of the agent; clipped to [-1, 1], NaN becomes 0.
      grip: 0 or 1.
    """
    unit = np.clip(np.nan_to_num(np.asarray(continuous, np.float64)), -1.0, 1.0)
    numbers = {name: float(value * bound) for value, (name, bound) in zip(unit, BOUNDS.items(), strict=True)}
    return {**numbers, GRIP: float(grip)}


NO_OP = to_native_actions(np.zeros(len(BOUNDS)), 0)


def pack_settings(**settings: Any) -> dict[str, Any]:
    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}


class WorldSpecs:
    """Specs of a joined world; a ProtocolError if they are not those of the original."""

    def __init__(self, specs: Any, spaces: dict[str, Any]) -> None:
        try:
            self._actions, self._observations = SpecManager(specs.actions), SpecManager(specs.observations)
        except ValueError as error:
            raise ProtocolError(f"its specs are wrong: {one_line(error)}") from None
        self._spaces = {NAMES[name]: space for name, space in spaces.items() if name in NAMES} | {REWARD: Vector(1)}
        _check_specs("action", self._actions, dict.fromkeys((*BOUNDS, GRIP), Vector(1)))
        _check_specs("observation", self._observations, self._spaces)
        self._requested = sorted(map(self._observations.name_to_uid, self._spaces))

    def step_request(self, actions: dict[str, float]) -> Any:
        shaped = {name: np.full(list(self._actions.name_to_spec(name).shape), value) for name, value in actions.items()}
        packed = self._actions.pack(shaped)
        return messages.StepRequest(requested_observations=self._requested, actions=packed)

    def read(self, response: Any) -> tuple[dict[str, np.ndarray], float]:
        """Return the observations of a step by our names, and its reward."""
        try:
            arrays = self._observations.unpack(response.observations)
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"its answer to step is wrong: {one_line(error)}") from None
        for name in self._spaces:
            if name not in arrays:
                raise ProtocolError(f"its answer to step has no {name}")
        observation = {}
        for ours, name in NAMES.items():
            space = self._spaces[name]
            observation[ours] = np.asarray(arrays[name]).reshape(space.shape).astype(space.dtype, copy=False)
        return observation, float(np.asarray(arrays[REWARD]).item())


def _check_specs(side: str, offered: SpecManager, spaces: Mapping[str, ArraySpace]) -> None:
    """Raise a ProtocolError for the first name that is missing or has another shape or type."""
    for name, space in spaces.items():
        if name not in offered.names():
            listed = ", ".join(sorted(offered.names())) or "none"
            raise ProtocolError(f"it offers no {side} {name}, only {listed}")
        spec = offered.name_to_spec(name)
        shape, expected = tuple(spec.shape), tuple(space.shape)
        is_scalar = isinstance(space, Vector) and shape in ((), (1,))
        if shape != expected and not is_scalar:
            raise ProtocolError(f"it offers the {side} {name} in the shape {shape}: it must be {expected}")
        dtype = messages.DataType.Name(spec.dtype)
        is_image = isinstance(space, Image)
        if dtype != "UINT8" if is_image else dtype in ("STRING", "PROTO", "INVALID_DATA_TYPE"):
            wanted = "UINT8" if is_image else "a number"
            raise ProtocolError(f"it offers the {side} {name} as {dtype}: it must be {wanted}")
