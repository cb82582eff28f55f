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

GRACE = 5.0  # seconds that a process may take to end after the second signal
_HANG_UP: int | None = getattr(signal, "SIGHUP", None)  # missing on Windows
_SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, _HANG_UP) if number is not None)


class SignalGuard:
    """Records the first signal; the second one stops the process at once.

    If the process still runs `GRACE` seconds later, because native code blocks Python's handlers, it is ended.
    """

    class StoppedBySignal(Exception):
        """A run was interrupted after saving; the process should end with 128 + signal."""

        def __init__(self, signal_number: int) -> None:
            super().__init__(f"interrupted by signal {signal_number}")
            self.exit_code = 128 + signal_number

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[int, Any] = {}
        self._has_exited = threading.Event()
        self._pipe: tuple[int, int] | None = None
        self._pipe_before = -1

    def __enter__(self) -> "SignalGuard":
        if threading.current_thread() is threading.main_thread():
            self._has_exited.clear()
            self._listen()
            for number in _SIGNALS:
                if number != _HANG_UP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._has_exited.set()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._pipe_before, warn_on_full_buffer=False)
            os.close(self._pipe[1])  # the listener closes the other end
            self._pipe = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        if number == _HANG_UP:
            _detach_terminal()
        print("\ninterrupted: saving after this dispatch; once more stops at once", file=sys.stderr, flush=True)
        for each, handler in self._before.items():  # a closed terminal may send SIGHUP again
            signal.signal(each, signal.SIG_IGN if each == _HANG_UP else handler)

    def _listen(self) -> None:
        """Start a thread that counts signals."""
        # Python writes every signal to this pipe at once, also while the main thread is outside of Python.
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._pipe_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        threading.Thread(target=self._count_signals, args=(self._pipe[0],), daemon=True, name="interrupts").start()

    def _count_signals(self, descriptor: int) -> None:
        count = 0
        while number := os.read(descriptor, 1):
            count += number[0] in (signal.SIGINT, signal.SIGTERM)
            if count == 2 and not self._has_exited.wait(GRACE):
                _exit(number[0], None)
        os.close(descriptor)


def _detach_terminal() -> None:
    """Send standard output and error to /dev/null: writing to a closed terminal is an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(null, descriptor)
    os.close(null)


def exit_on_sigint() -> contextlib.AbstractContextManager[None]:
    """End the process on Ctrl-C without a traceback; for use during imports."""
    return sigint_handler(_exit)


class CommandInterrupt:
    """Ends a command on Ctrl-C: by a KeyboardInterrupt, so that it can clean up, or at once.

    The second Ctrl-C ends it at once. So does one during an import, where KeyboardInterrupt may become another error.
    """

    def __init__(self) -> None:
        self.was_received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.was_received or _is_importing(frame):
            _exit(number, frame)
        self.was_received = True
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def default_sigint() -> contextlib.AbstractContextManager[None]:
    """Let the system end the process on Ctrl-C: for waits outside of Python, where its handlers do not run."""
    return sigint_handler(signal.SIG_DFL)


@contextlib.contextmanager
def sigint_handler(handler: Any) -> Iterator[None]:
    """Set a handler of SIGINT; no change if SIGINT is ignored, as in the background of a shell."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"\x1b[?25hinterrupted\n" if os.isatty(2) else b"interrupted\n")  # shows the cursor again
    os._exit(128 + number)
