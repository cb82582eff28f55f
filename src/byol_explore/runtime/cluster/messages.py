"""Actor specs, join replies, and the wire format of the inference server. No JAX, no Ray.

Wire format. An env stepper connects and sends the hash of a secret token, then a handshake with the layout of its
frames. Then it sends frames (each observation once, with rewards and episode boundaries) and receives actions, as raw
arrays without headers. Nothing is unpickled, so a client can send numbers and nothing else. Before the token is checked
a connection has 36 bytes; the server sets the limits of time and number.
"""

import hashlib
import hmac
import json
import math
import os
import re
import socket
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import byol_explore
from byol_explore.config.config import Config
from byol_explore.envs.interface import EnvSpec, HostEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec

_PACKAGE = Path(byol_explore.__file__).parent


class ActorSpec(NamedTuple):
    """Description of an actor. It makes its environments by their names."""

    config: Config
    actor_index: int  # its environments are actor_index * num_envs and those that follow
    resume_round: int  # rollouts per environment when the run was resumed; part of the seed
    attempt: int = 0  # previous starts of this actor in this session; part of the seed
    spec: EnvSpec | None = None  # of the learner's environments, to compare with
    import_paths: tuple[str, ...] = ()  # sys.path of the learner

    @property
    def num_envs(self) -> int:
        return self.config.runtime.num_envs // self.config.runtime.num_actors

    @property
    def entropy(self) -> list[int]:
        """Seed of environments and actions; in the first attempt the same as that of an actor thread."""
        return [self.config.seed, self.actor_index, self.resume_round, *([self.attempt] if self.attempt else [])]


class JoinReply(NamedTuple):
    """Identity of a worker process."""

    host: str
    pid: int
    version: str  # of byol-explore
    source_fingerprint: str
    address: tuple[str, int] = ("", 0)  # of an inference server


class WorkerFailure(NamedTuple):
    """One-line reason that a worker returns instead of a result."""

    reason: str
    is_user_error: bool = False  # a restart would fail in the same way


def extend_import_path(spec: ActorSpec) -> None:
    """Add the learner's import paths that exist on this node."""
    sys.path.extend(path for path in spec.import_paths if path not in sys.path and os.path.isdir(path))


def make_actor_envs(spec: ActorSpec) -> list[HostEnvironment]:
    """Make an actor's environments. Raises a UserError if their spaces differ from those of the learner."""
    config = spec.config
    envs: list[HostEnvironment] = make_envs(config.env_ids, config.env_settings, actors=config.runtime.num_actors)  # pyright: ignore[reportAssignmentType]
    own, learners = envs[0].spec, spec.spec
    for space in ("observation", "action"):
        if learners is not None and getattr(own, space) != getattr(learners, space):
            raise UserError(
                f"environment {own.name!r} on {socket.gethostname()} has the {space} {getattr(own, space)}, but for "
                f"the learner it is {getattr(learners, space)}: install the same on every node"
            )
    return envs


def describe_worker() -> JoinReply:
    return JoinReply(socket.gethostname(), os.getpid(), byol_explore.__version__, package_fingerprint(_PACKAGE))


@cache
def package_fingerprint(package: Path) -> str:
    """Hash all source files of a package: equal wherever the same code is installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def version_mismatch(joined: JoinReply) -> str | None:
    """Describe how a worker's package differs from the one here; None if they are equal."""
    own = describe_worker()
    if joined[2:4] == own[2:4]:
        return None
    return (
        f"byol-explore on {joined.host} is {joined.version} (code {joined.source_fingerprint}), but here it is "
        f"{own.version} (code {own.source_fingerprint}): install the same on every node"
    )


_GREETING = struct.Struct("<32sI")  # hash of the token, bytes of the handshake
_MAX_HANDSHAKE = 1 << 16  # bytes
_MAX_FRAME = 1 << 30  # bytes, also of one that fits the layout; the item size of a NumPy dtype overflows at 2 GiB
_NUMERIC_DTYPE = re.compile("[<>|][biuf][0-9]{1,2}")  # NumPy evaluates other strings in syntaxes of their own


def frame_dtype(arrays: dict[str, np.ndarray]) -> np.dtype:
    """Return the structured dtype of a frame: one field per array, in order and without gaps."""
    return np.dtype([(name, array.dtype.str, array.shape) for name, array in arrays.items()])


def action_dtype(spec: ActionSpec, num_envs: int) -> np.dtype:
    """Return the structured dtype of the actions of an actor."""
    return np.dtype([
        ("discrete", "<i4", (num_envs, len(spec.discrete))), ("continuous", "<f4", (num_envs, spec.continuous))
    ])  # fmt: skip


class FrameBuffer:
    """Bytes of a frame and the arrays in them."""

    def __init__(self, dtype: np.dtype) -> None:
        self.buffer = bytearray(dtype.itemsize)
        self.arrays = np.frombuffer(self.buffer, dtype).reshape(())

    def fill(self, arrays: dict[str, np.ndarray]) -> bytearray:
        for name, array in arrays.items():
            self.arrays[name] = array
        return self.buffer


class Handshake(NamedTuple):
    """First message of an env stepper, behind the hash of the token."""

    actor: int  # index
    dtype: np.dtype  # of all frames that follow

    def encode(self, token: str) -> bytes:
        text = json.dumps({"actor": self.actor, "dtype": self.dtype.descr})
        return _GREETING.pack(_hash_token(token), len(text)) + text.encode()


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class FrameReader:
    """Read a greeting, a handshake and then frames from a non-blocking socket.

    Args:
      token: the secret that the client must know.
    """

    def __init__(self, token: str) -> None:
        self._token_hash = _hash_token(token)
        self._arrays: np.ndarray | None = None
        self._buffer, self._filled = bytearray(_GREETING.size), 0
        self._expects = "greeting"  # then "handshake", then "frame"

    def accept(self, dtype: np.dtype) -> None:
        """Expect frames of this layout from now on."""
        frame = FrameBuffer(dtype)
        self._expects, self._buffer, self._arrays = "frame", frame.buffer, frame.arrays

    def read(self, connection: socket.socket) -> Any:
        """Receive once. Return a complete `Handshake` or frame, else None.

        A frame is a structured array, which the next frame overwrites. After a handshake call `accept`. Raises a
        ConnectionError at the end of the connection, and a ValueError for invalid bytes or a wrong token.
        """
        count = connection.recv_into(memoryview(self._buffer)[self._filled :])
        if count == 0:
            raise ConnectionResetError("the connection was closed")
        self._filled += count
        if self._filled < len(self._buffer):
            return None
        self._filled = 0
        if self._expects == "greeting":
            token_hash, length = _GREETING.unpack(self._buffer)
            if not hmac.compare_digest(token_hash, self._token_hash):
                raise ValueError("another token")
            if not 0 < length <= _MAX_HANDSHAKE:
                raise ValueError(f"a handshake of {length} bytes")
            self._expects, self._buffer = "handshake", bytearray(length)
            return None
        return _decode_handshake(bytes(self._buffer)) if self._expects == "handshake" else self._arrays


def _decode_handshake(text: bytes) -> Handshake:
    """Decode and validate. Raises a ValueError for all invalid bytes, because any process may connect and send them."""
    try:
        data = json.loads(text)
        fields = [(str(name), str(dtype), tuple(map(int, shape))) for name, dtype, shape in data["dtype"]]
        if any(_NUMERIC_DTYPE.fullmatch(dtype) is None or min(shape, default=0) < 0 for _, dtype, shape in fields):
            raise ValueError("arrays that do not hold numbers")
        if sum(np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in fields) > _MAX_FRAME:
            raise ValueError("a frame that is too large")
        return Handshake(int(data["actor"]), np.dtype(fields))
    except ValueError:
        raise
    except Exception as error:  # NumPy and JSON raise many types
        raise ValueError("not a handshake") from error


def configure_socket(connection: socket.socket) -> None:
    """Send small messages at once, and notice a peer that vanished within a minute."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not on all systems
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def receive_exactly(connection: socket.socket, buffer: bytearray) -> None:
    """Fill the buffer. Raises a ConnectionError at the end of the connection."""
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionResetError("the connection was closed")
        view = view[count:]
