"""Ctrl-C, SIGTERM and the end of a terminal as requests to save and stop."""

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

GRACE = 5.0  # seconds in which a process that was told twice ends by itself
_HANG_UP: int | None = getattr(signal, "SIGHUP", None)  # which Windows does not have
_SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, _HANG_UP) if number is not None)


class Interrupts:
    """While active, the first signal is only noted; a second one stops at once.

    Nothing that happens then may keep the process: if it still waits for something after some seconds, or computes
    where Python does not hear of signals, it is ended.
    """

    class Stopped(Exception):
        """A run was interrupted after saving; the process should end with 128 + signal."""

        def __init__(self, signal_number: int) -> None:
            super().__init__(f"interrupted by signal {signal_number}")
            self.exit_code = 128 + signal_number

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._has_left = threading.Event()
        self._pipe: tuple[int, int] | None = None
        self._pipe_before = -1

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._has_left.clear()
            self._listen()
            for number in _SIGNALS:
                if number != _HANG_UP or signal.getsignal(number) is not signal.SIG_IGN:  # which nohup does
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._has_left.set()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._pipe_before, warn_on_full_buffer=False)
            os.close(self._pipe[1])  # the listener closes the other end
            self._pipe = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if number == _HANG_UP:
            _forget_the_terminal()
        print("\ninterrupted: saving after this round; once more stops at once", file=sys.stderr, flush=True)
        for each, handler in self._before.items():
            signal.signal(each, signal.SIG_IGN if each == _HANG_UP else handler)  # a terminal hangs up more than once

    def _listen(self) -> None:
        """Python tells of every signal in a pipe at once, whatever the main thread does."""
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._pipe_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        threading.Thread(target=self._end_in_time, args=(self._pipe[0],), daemon=True, name="interrupts").start()

    def _end_in_time(self, descriptor: int) -> None:
        told = 0
        while number := os.read(descriptor, 1):
            told += number[0] in (signal.SIGINT, signal.SIGTERM)
            if told == 2 and not self._has_left.wait(GRACE):
                _leave(number[0], None)
        os.close(descriptor)


def _forget_the_terminal() -> None:
    """It has gone: whatever is printed goes nowhere, instead of being an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)


def leaving_at_once() -> contextlib.AbstractContextManager[None]:
    """While modules are loaded Ctrl-C ends the process: nothing is to be saved yet, and no traceback is of use."""
    return at_ctrl_c(_leave)


def ended_at_once() -> contextlib.AbstractContextManager[None]:
    """The same while something waits outside of Python, which does not hear of signals then: the system ends it."""
    return at_ctrl_c(signal.SIG_DFL)


@contextlib.contextmanager
def at_ctrl_c(handler: Any) -> Iterator[None]:
    """Another handler for a while; whoever is told to ignore Ctrl-C, as in the background of a shell, goes on so."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\x1b[?25hinterrupted\n" if os.isatty(2) else b"interrupted\n")  # with a cursor again
    os._exit(128 + number)
