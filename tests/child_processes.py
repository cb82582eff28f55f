"""Python processes started by a test, and a free port for them; none of them outlives its test."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

TESTS = Path(__file__).parent
PATIENCE = 600.0  # seconds for anything, on a loaded machine


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """Reserve a port: bound here, but not listened at."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def end(self) -> tuple[int, str, str]:
        """Wait for the end. Returns the exit code, standard output and standard error."""
        code = self.process.wait(timeout=PATIENCE)
        for file in (self.out, self.err):
            file.seek(0)
        return code, self.out.read().decode(), self.err.read().decode()


@contextlib.contextmanager
def processes(
    *commands: Sequence[object], devices: int = 1, inside: Sequence[Sequence[str]] = ()
) -> Iterator[list[Started]]:
    """Start Python with each of these argument lists, on `devices` CPU devices; kill all sessions in the end.

    The words of `inside` come before each command. If the tests are killed, the children's standard input closes, and
    they must end by themselves.
    """
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ, "PYTHONPATH": path, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        started: list[Started] = []
        for words, before in zip(commands, inside or [()] * len(commands), strict=True):
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                [*before, sys.executable, *map(str, words)], env=environment, cwd=TESTS, start_new_session=True,
                stdin=subprocess.PIPE, stdout=out, stderr=err,
            )  # fmt: skip
            stack.callback(_end, process)
            started.append(Started(process, out, err))
        yield started


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
