"""Ctrl-C and SIGTERM as requests to save and stop."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupts:
    """While active, the first signal is only noted; a second one stops at once."""

    class Stopped(Exception):
        """A run was interrupted after saving; the process should end with 128 + signal."""

        def __init__(self, signal_number: int) -> None:
            super().__init__(f"interrupted by signal {signal_number}")
            self.exit_code = 128 + signal_number

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        print("\ninterrupted: saving after this round; once more stops at once", file=sys.stderr, flush=True)
        for each, handler in self._before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """While modules are loaded Ctrl-C ends the process: nothing is to be saved yet, and no traceback is of use."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(128 + number)
