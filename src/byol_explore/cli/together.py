"""One of several processes that learn together, and the process that watches over it.

When a process of the others is lost, JAX ends those that are left from within, and says so in its own many words. So
the learner is a process of its own. This one passes on what it prints and what it is told, and says in one line what
became of it: `python -m byol_explore.cli.together train ...` is the learner.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType

from byol_explore.errors import ProcessLost
from byol_explore.interrupts import leaving_at_once
from byol_explore.settings.parts import DistributedConfig

_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+")  # of the libraries below JAX
_TRACEBACK = "Traceback (most recent call last)"
_OURS = ("error: ", "interrupted")
_MOST = 1_000  # lines of theirs that are kept
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

is_learner = False  # whether this process is watched over already


def watch_over(arguments: Sequence[str], settings: DistributedConfig) -> int:
    """Run `byol-explore train` with these words in a process of its own; its exit code."""
    words = [sys.executable, "-m", "byol_explore.cli.together", "train", *arguments]
    learner = subprocess.Popen(
        words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,  # signals reach it through this process, once
    )  # fmt: skip
    assert learner.stderr is not None
    try:
        with _passing_on(learner) as passed_on:
            noise = _listen(learner.stderr)
            code = learner.wait()
    except BaseException:
        os.killpg(learner.pid, signal.SIGKILL)
        raise
    if code == 1:  # a mistake of ours, of which nothing should be lost
        sys.stderr.writelines(noise)
    if -code in passed_on:  # before it had begun
        print("interrupted", file=sys.stderr)
        return 128 - code
    if code < 0:
        raise ProcessLost(what_happened("".join(noise), -code, settings))
    return code


def _listen(stream: Iterator[str]) -> list[str]:
    """Pass on what the learner says itself; the rest, from the first line of a traceback or of a library's log."""
    noise: list[str] = []
    for line in stream:
        if line.startswith(_OURS) or not (noise or _LOG_LINE.match(line) or line.startswith(_TRACEBACK)):
            sys.stderr.write(line)
            sys.stderr.flush()
        elif len(noise) < _MOST:
            noise.append(line)
    return noise


def what_happened(noise: str, number: int, settings: DistributedConfig) -> str:
    """Why a learner was ended by a signal, from what JAX has logged before."""
    if "CoordinationService/RegisterTask" in noise:
        seconds = settings.start_timeout
        return f"{settings.processes} processes did not meet at {settings.coordinator} within {seconds} s"
    if lost := re.search(r"stopped sending heartbeats\):\s+(\d+)|Task (\d+) heartbeat timeout", noise):
        return f"process {lost[1] or lost[2]} is not heard of any more; continue with --resume in all of them"
    if "distributed service" in noise:
        other = f"process 0 at {settings.coordinator}" if settings.process else "another process"
        return f"{other} has ended or cannot be reached; continue with --resume in all of them"
    return f"process {settings.process} was ended by signal {number}; continue with --resume in all of them"


@contextlib.contextmanager
def _passing_on(learner: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Signals go to the learner, which saves and stops; those that came."""
    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed_on.append(number)
        learner.send_signal(number)

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup does
            signal.signal(number, pass_on)
    try:
        yield passed_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _learn() -> int:
    """The command line; ends when nobody watches any more."""
    with leaving_at_once():
        from byol_explore.cli import together
        from byol_explore.cli.attached import end_with_the_other_end
        from byol_explore.cli.main import main

    together.is_learner = True
    threading.Thread(target=end_with_the_other_end, daemon=True).start()
    try:
        return main()
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    code = _learn()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without the farewells for which JAX would wait for others
