"""Signals as requests to save and stop."""

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from byol_explore.utils import interrupts as interrupts_module
from byol_explore.utils.interrupts import SignalGuard, exit_on_sigint


@pytest.fixture
def hang_up() -> Iterator[None]:
    """Set the default handler of SIGHUP, which the caller of the tests may ignore."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_only_noted(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts_module, "_detach_terminal", lambda: None)  # this one is still there
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with SignalGuard() as interrupts:
        assert interrupts.signal_number is None
        os.kill(os.getpid(), number)
        assert interrupts.signal_number == number
        during = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert during == before, "a second signal must stop at once"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_one_stops_at_once() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # parallel test workers ignore it
    try:
        with SignalGuard():
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def ended(*lines: str) -> tuple[int, str, str]:
    """Exit code and output of a script that has all signals as usual."""
    first = ["import os, signal, sys, threading, time", "from byol_explore.utils import interrupts"]
    first += ["from byol_explore.utils.interrupts import SignalGuard", "signal.signal(2, signal.default_int_handler)"]
    words = [sys.executable, "-c", "\n".join([*first, *lines])]
    process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return process.returncode, process.stdout, process.stderr


def test_a_second_one_ends_what_does_not_end_by_itself() -> None:
    """Here closing waits for a thread that never ends."""
    code, out, err = ended(
        "interrupts.GRACE = 0.2",
        "def close(): threading.Event().wait()",
        "with SignalGuard():",
        "    try:",
        "        for _ in range(2): os.kill(os.getpid(), signal.SIGINT)",
        "    finally: close()",
        "print('still here')",
    )
    assert (code, out, err.splitlines()[-1]) == (130, "", "interrupted")


def test_a_process_that_ends_in_time_is_not_killed() -> None:
    """A notebook that catches the second one, for example."""
    code, out, _ = ended(
        "interrupts.GRACE = 0.2",
        "try:",
        "    with SignalGuard():",
        "        for _ in range(2): os.kill(os.getpid(), signal.SIGINT)",
        "except KeyboardInterrupt: pass",
        "time.sleep(0.5)",
        "print(signal.set_wakeup_fd(-1), threading.active_count())",
    )
    assert (code, out) == (0, "-1 1\n")


def test_the_end_of_a_terminal_is_an_interrupt_too() -> None:
    """It comes more than once, and nothing can be printed any more."""
    master, slave = pty.openpty()
    lines = (
        "import fcntl, os, signal, sys, termios, time",
        "from byol_explore.utils.interrupts import SignalGuard",
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)",  # ignored if the tests run under nohup
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)",
        "with SignalGuard() as interrupts:",
        "    print('ready', flush=True)",
        "    while interrupts.signal_number is None: time.sleep(0.01)",
        "    os.kill(os.getpid(), 1)",
        "    print('saved', flush=True)",
        "    sys.exit(128 + interrupts.signal_number)",
    )
    words = [sys.executable, "-c", "\n".join(lines)]
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    assert os.read(master, 5) == b"ready"
    os.close(master)
    assert process.wait(60) == 129


def test_one_that_is_to_outlive_its_terminal_does() -> None:
    code, out, _ = ended(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "with SignalGuard() as interrupts:",
        "    os.kill(os.getpid(), signal.SIGHUP)",
        "    print(interrupts.signal_number)",
    )
    assert (code, out) == (0, "None\n")


def test_handlers_come_back_without_a_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with SignalGuard():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_signals_are_left_alone() -> None:
    received = []

    def work() -> None:
        with SignalGuard() as interrupts:
            received.append(interrupts.signal_number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert received == [None]


def test_exit_codes_are_those_of_the_shell() -> None:
    assert SignalGuard.StoppedBySignal(signal.SIGINT).exit_code == 130
    assert SignalGuard.StoppedBySignal(signal.SIGTERM).exit_code == 143
    assert SignalGuard.StoppedBySignal(signal.SIGHUP).exit_code == 129


def test_ctrl_c_while_importing_ends_the_process_without_a_traceback() -> None:
    lines = [
        "import os, signal",
        "from byol_explore.utils.interrupts import exit_on_sigint",
        "with exit_on_sigint(): os.kill(os.getpid(), signal.SIGINT)",
        "print('still here')",
    ]
    process = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "interrupted\n")


def test_afterwards_ctrl_c_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with exit_on_sigint():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


COMMAND = [
    "import os, signal, sys, time",
    "from byol_explore.utils.interrupts import CommandInterrupt, sigint_handler",
    "signal.signal(signal.SIGINT, signal.default_int_handler)",
]


def run_python(*lines: str) -> tuple[int, str, str]:
    words = [sys.executable, "-c", "\n".join([*COMMAND, *lines])]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_first_ctrl_c_of_a_command_cleans_up_and_the_second_ends_it() -> None:
    lines = [
        "with sigint_handler(CommandInterrupt()):",
        "    try: os.kill(os.getpid(), signal.SIGINT)",
        "    finally:",
        "        print('cleaning up', flush=True)",
        "        os.kill(os.getpid(), signal.SIGINT)",
        "        print('still here')",
    ]
    assert run_python(*lines) == (130, "cleaning up\n", "interrupted\n")


def test_ctrl_c_inside_an_import_of_a_command_ends_it(tmp_path: Path) -> None:
    """The import is inside code that turns every exception into another one."""
    (tmp_path / "slow.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    lines = [
        f"sys.path.append({str(tmp_path)!r})",
        "with sigint_handler(CommandInterrupt()):",
        "    try: import slow",
        "    except BaseException as error: print(type(error))",
    ]
    assert run_python(*lines) == (130, "", "interrupted\n")
