"""What goes over the wire between actors that only step environments and the inference server. Light: no JAX.

Both ends agree on a layout when they meet; afterwards arrays follow each other without anything between them: every
observation crosses once, with a few numbers beside it, and an action comes back. Nothing is unpickled: who speaks to
the server can send numbers and nothing else.
"""

import json
import math
import re
import socket
import struct
from typing import Any, NamedTuple

import numpy as np

from byol_explore.spaces import ActionSpec

_LENGTH = struct.Struct("<I")
_MOST = 1 << 16  # bytes of a greeting
_MOST_OF_FRAME = 1 << 30  # bytes; NumPy counts wrongly from twice as many on
_NUMBERS = re.compile("[<>|][biuf][0-9]{1,2}")  # as NumPy writes their kinds; others may have a syntax of their own


class Entry(NamedTuple):
    """An array of a frame."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Layout(NamedTuple):
    """The arrays of every frame, in their order and without gaps."""

    entries: tuple[Entry, ...]

    @property
    def dtype(self) -> np.dtype:
        """Of a whole frame: its fields are the arrays."""
        return np.dtype([tuple(entry) for entry in self.entries])

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray]) -> "Layout":
        return cls(tuple(Entry(name, array.dtype.str, array.shape) for name, array in arrays.items()))


class Frame:
    """Memory for the arrays of a frame, which goes over the wire as it is."""

    def __init__(self, layout: Layout) -> None:
        self.buffer = bytearray(layout.dtype.itemsize)
        self.arrays = np.frombuffer(self.buffer, layout.dtype).reshape(())

    def fill(self, arrays: dict[str, np.ndarray]) -> bytearray:
        for name, array in arrays.items():
            self.arrays[name] = array
        return self.buffer


def action_layout(spec: ActionSpec, num_envs: int) -> Layout:
    return Layout(
        (
            Entry("discrete", "<i4", (num_envs, len(spec.discrete))),
            Entry("continuous", "<f4", (num_envs, spec.continuous)),
        )
    )


class Greeting(NamedTuple):
    """What an actor says first."""

    token: str
    actor: int
    attempt: int
    layout: Layout

    def encode(self) -> bytes:
        entries = [list(entry) for entry in self.layout.entries]
        words = json.dumps({"token": self.token, "actor": self.actor, "attempt": self.attempt, "layout": entries})
        return _LENGTH.pack(len(words)) + words.encode()


class Hearing:
    """Bytes that come in pieces: first a greeting, then frames of its layout."""

    def __init__(self) -> None:
        self._arrays: np.ndarray | None = None
        self._buffer, self._filled = bytearray(_LENGTH.size), 0
        self._expects = "length"
        self.received = 0

    def hear(self, connection: socket.socket) -> Any:
        """What is complete now: the greeting, or a frame by the names of its arrays, which the next one overwrites.

        Else None; a ConnectionError when nobody speaks any more, a ValueError for nonsense.
        """
        count = connection.recv_into(memoryview(self._buffer)[self._filled :])
        if count == 0:
            raise ConnectionResetError("the other end has gone")
        self._filled, self.received = self._filled + count, self.received + count
        if self._filled < len(self._buffer):
            return None
        self._filled = 0
        if self._expects == "length":
            [length] = _LENGTH.unpack(self._buffer)
            if not 0 < length <= _MOST:
                raise ValueError(f"a greeting of {length} bytes")
            self._expects, self._buffer = "greeting", bytearray(length)
            return None
        if self._expects == "greeting":
            greeting = _decode(bytes(self._buffer))
            frame = Frame(greeting.layout)
            self._expects, self._buffer, self._arrays = "frame", frame.buffer, frame.arrays
            return greeting
        return self._arrays


def _decode(words: bytes) -> Greeting:
    """A ValueError for whatever is none: anybody can send it, and nobody must end the server with it."""
    try:
        data = json.loads(words)
        layout = Layout(tuple(_entry(*entry) for entry in data["layout"]))
        if sum(np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape in layout.entries) > _MOST_OF_FRAME:
            raise ValueError("arrays that are too large")
        return Greeting(str(data["token"]), int(data["actor"]), int(data["attempt"]), layout)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("no greeting") from error


def _entry(name: Any, kind: Any, shape: Any) -> Entry:
    entry = Entry(str(name), str(kind), tuple(map(int, shape)))
    if _NUMBERS.fullmatch(entry.dtype) is None or min(entry.shape, default=0) < 0:
        raise ValueError("arrays of something else than numbers")
    return entry


def prepare(connection: socket.socket) -> None:
    """Small answers go at once, and an end that has gone without a word is noticed within a minute."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def receive_exactly(connection: socket.socket, buffer: bytearray) -> None:
    """Fill the buffer; a ConnectionError when nobody speaks any more."""
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionResetError("the other end has gone")
        view = view[count:]
