"""Entry points of child processes: the runs of a study, and the learner of a distributed run.

`python -m byol_explore.cli.supervised train ...` is the command line for a study. The study holds the other end of its
standard input: when that closes, the run saves and stops as after SIGTERM, however the study ended.

`python -m byol_explore.cli.supervised --learner train ...` is the learner of a distributed run. JAX kills every process
of the group when one is lost, so no Python code of the learner can report it. Therefore `supervise` runs the learner as
a child: it forwards signals and output, and reports a killed learner in one line.
"""

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

from byol_explore.config.sections import DistributedConfig
from byol_explore.errors import PeerLost
from byol_explore.utils.interrupts import exit_on_sigint
from byol_explore.utils.processes import exit_when_stdin_closes, spawn_child

LEARNER = "--learner"  # first argument of a supervised learner
_FORWARDED = ("error: ", "interrupted")  # how lines begin that byol-explore itself prints
_MAX_LINES, _MAX_CRASH_LINES = 1_000, 20  # lines of libraries that are kept, and that are printed after a crash
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

is_supervised = False  # True in a supervised learner


def supervise(arguments: Sequence[str], settings: DistributedConfig) -> int:
    """Run `byol-explore train` with these arguments in a child process and return its exit code."""
    command = [sys.executable, "-m", "byol_explore.cli.supervised", LEARNER, "train", *arguments]
    learner = spawn_child(command, stderr=subprocess.PIPE, text=True, errors="replace")
    assert learner.stderr is not None
    try:
        with _forward_signals(learner) as forwarded:
            lines = _forward_lines(learner.stderr)
            code = learner.wait()
    except BaseException:
        os.killpg(learner.pid, signal.SIGKILL)
        raise
    if code == 1:  # a bug: print the whole traceback
        sys.stderr.writelines(lines)
    if -code in forwarded:  # a signal that came before the learner handled it
        print("interrupted", file=sys.stderr)
        return 128 - code
    if code < 0:
        sys.stderr.writelines(list(lines)[-_MAX_CRASH_LINES:])
        raise PeerLost(
            f"process {settings.process_id} of {settings.num_processes} (coordinator {settings.coordinator_address}) "
            f"was killed by signal {-code}; its last lines are above; continue with --resume in all of them"
        )
    return code


def _forward_lines(stream: Iterable[str]) -> deque[str]:
    """Print the lines of byol-explore as they come; keep the others, which matter only if the learner fails."""
    kept: deque[str] = deque(maxlen=_MAX_LINES)
    for line in stream:
        if line.startswith(_FORWARDED):
            sys.stderr.write(line)
            sys.stderr.flush()
        else:
            kept.append(line)
    return kept


@contextlib.contextmanager
def _forward_signals(learner: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Forward signals to the learner, which saves and stops; yield the list of those that came."""
    forwarded: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        forwarded.append(number)
        learner.send_signal(number)

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, forward)
    try:
        yield forwarded
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _main() -> None:
    """Run the command line; end a learner at once, because JAX would wait for the other processes at a regular exit."""
    with exit_on_sigint():
        from byol_explore.cli import supervised  # as others import it: this module is __main__ here
        from byol_explore.cli.main import main
    exit_when_stdin_closes()
    if sys.argv[1] != LEARNER:
        sys.exit(main())
    supervised.is_supervised = True
    try:
        code = main(sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
