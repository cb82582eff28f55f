"""Servers of DM-HARD-8: running ones, launched ones, containers; and the supervisor process of a launched server.

The original runs one world in one process, so each environment launches a server of its own. A running server may have
several worlds: environments are spread over the given ones, each with a connection and a world of its own.

The supervisor (`python -m`, one per launched server) ends its server when the process that started the supervisor ends,
in any way. It imports neither JAX nor gRPC. A closing command follows the end of a server: a container outlives the
command that started it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from byol_explore.envs.families import LOCATIONS, DMHardEightSettings
from byol_explore.errors import UserError
from byol_explore.utils.processes import (
    free_port,
    kill_on_parent_exit,
    spawn_child,
    terminate_all,
    wait_for_parent_exit,
)

EXECUTABLE = "Linux64Player"
_RENDERER = "external_libosmesa_llvmpipe.so"  # file of the original that renders without a graphics card
_CONTAINER_PORT = 10_000  # on which the original listens inside its container
_CLOSING_SECONDS = 5.0  # that the closing command may take
_SILENT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class ServerLost(Exception):
    """A server has ended or does not answer; the message says which."""


class Launch(NamedTuple):
    """Argument of the supervisor."""

    command: list[str]  # that runs the server
    variables: dict[str, str]  # of its environment
    closing: list[str]  # command to run when it has ended, [] for none


class ExistingServer:
    """A running server: of the given ones, the one with the fewest environments of this process."""

    _uses: ClassVar[Counter[str]] = Counter()
    _lock = threading.Lock()

    def __init__(self, addresses: tuple[str, ...]) -> None:
        with self._lock:
            self.address = min(addresses, key=lambda address: self._uses[address])
            self._uses[self.address] += 1
        self._is_used = True

    def check_alive(self) -> None:
        """Do nothing: only a request shows whether the server is alive."""

    def close(self) -> None:
        with self._lock:
            self._uses[self.address] -= self._is_used
            self._is_used = False


class LaunchedServer:
    """A server in a process of its own, on a free port of the loopback interface."""

    def __init__(self, settings: DMHardEightSettings) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        launch = _executable(settings.directory, port) if settings.directory else _docker(settings.docker_image, port)
        supervisor = [sys.executable, "-m", "byol_explore.envs.dm_hard_eight.servers", json.dumps(launch)]
        self._supervisor = spawn_child(supervisor, **_SILENT)

    def check_alive(self) -> None:
        """Raise ServerLost if the server has ended."""
        if (code := self._supervisor.poll()) is not None:
            raise ServerLost(f"its process ended with code {code}")

    def close(self) -> None:
        if self._supervisor.stdin:
            self._supervisor.stdin.close()
        terminate_all([self._supervisor], patiently=True)


Server = ExistingServer | LaunchedServer


def start_server(settings: DMHardEightSettings) -> Server:
    """Choose a running server or launch one, according to the settings."""
    return ExistingServer(settings.servers) if settings.servers else LaunchedServer(settings)


def check_location(env: str, settings: DMHardEightSettings) -> None:
    """Raise a UserError unless the settings locate the original, in a place from which it can be started."""
    if not settings.locations:
        options = ", ".join(f"dm_hard_eight.{name} ({value})" for name, value in LOCATIONS.items())
        raise UserError(f"{env} needs the original: give one of {options}; see docs/dm-hard-eight.md")
    if settings.directory:
        path = Path(settings.directory) / EXECUTABLE
        if not path.is_file() or not os.access(path, os.X_OK):
            raise UserError(f"dm_hard_eight.directory is {settings.directory!r}: it has no executable {EXECUTABLE}")
    if settings.docker_image and shutil.which("docker") is None:
        raise UserError(
            f"dm_hard_eight.docker_image is {settings.docker_image!r}: there is no command docker to run it"
        )


def _executable(directory: str, port: int) -> Launch:
    path = Path(directory).absolute()
    command = [
        str(path / EXECUTABLE), "-logfile", "-batchmode", "-noaudio", "--server_type=DM_ENV_RPC",
        f"--uri_address=127.0.0.1:{port}",
    ]  # fmt: skip
    variables = {"UNITY_RENDERER": "software", "UNITY_OSMESA_PATH": str(path / _RENDERER)}
    return Launch(command, variables, [])


def _docker(image: str | None, port: int) -> Launch:
    name = f"byol-explore-{uuid.uuid4().hex[:12]}"
    publish = f"127.0.0.1:{port}:{_CONTAINER_PORT}"
    command = ["docker", "run", "--rm", "--pull=never", f"--name={name}", f"--publish={publish}", "--", image or ""]
    return Launch(command, {}, ["docker", "kill", name])


def main(launch: Launch) -> int:
    """Run the server until it ends or standard input closes; return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    end_with_supervisor = partial(kill_on_parent_exit, os.getpid())
    server = subprocess.Popen[bytes](
        launch.command, env={**os.environ, **launch.variables}, stdin=subprocess.DEVNULL, **_SILENT,
        preexec_fn=end_with_supervisor,
    )  # fmt: skip
    threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    code = server.wait()
    if launch.closing:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(launch.closing, stdin=subprocess.DEVNULL, timeout=_CLOSING_SECONDS, check=False, **_SILENT)
    return code


def _end_with_parent(server: subprocess.Popen[bytes]) -> None:
    wait_for_parent_exit()
    terminate_all([server], patiently=False)


if __name__ == "__main__":
    sys.exit(main(Launch(*json.loads(sys.argv[1]))))
