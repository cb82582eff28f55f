"""A process that starts a server and ends it when whoever started this one has gone, however that came.

Light: it is started as `python -m`, once per server, and imports neither JAX nor gRPC. Its order is a command, and
another one that must be run when the first has ended or shall end: a container outlives the command that started it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from typing import Any

from byol_explore.envs.adapters.processes import TOLD_TO, die_with_parent, end, has_ended

_CLOSING = 5.0  # seconds that the closing command may take


def main(order: dict[str, list[str]]) -> int:
    """Until the server has ended, or the pipe to this process has; the server's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    server = _start(order["command"], preexec_fn=partial(die_with_parent, os.getpid()))
    threading.Thread(target=_end_after, args=(sys.stdin.fileno(), server), daemon=True).start()
    code = server.wait()
    if order["closing"]:
        closing = _start(order["closing"])
        if not has_ended(closing, _CLOSING):
            end([closing], patiently=False)
    return code


def _start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.Popen[bytes](command, stdin=nothing, stdout=nothing, stderr=nothing, **options)


def _end_after(pipe: int, server: subprocess.Popen[bytes]) -> None:
    while os.read(pipe, 1):
        pass
    server.terminate()
    if not has_ended(server, TOLD_TO):
        server.kill()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
