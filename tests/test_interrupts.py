"""Signals as requests to save and stop."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from byol_explore.interrupts import Interrupts, leaving_at_once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_only_noted(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        assert interrupts.received is None
        os.kill(os.getpid(), number)
        assert interrupts.received == number
        during = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert during == before, "a second signal must stop at once"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_one_stops_at_once() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # parallel test workers ignore it
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_come_back_without_a_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_signals_are_left_alone() -> None:
    received = []

    def work() -> None:
        with Interrupts() as interrupts:
            received.append(interrupts.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert received == [None]


def test_exit_codes_are_those_of_the_shell() -> None:
    assert Interrupts.Stopped(signal.SIGINT).exit_code == 130
    assert Interrupts.Stopped(signal.SIGTERM).exit_code == 143


def test_while_modules_are_loaded_ctrl_c_ends_the_process_without_a_traceback() -> None:
    lines = [
        "import os, signal",
        "from byol_explore.interrupts import leaving_at_once",
        "with leaving_at_once(): os.kill(os.getpid(), signal.SIGINT)",
        "print('still here')",
    ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


def test_afterwards_ctrl_c_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with leaving_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
