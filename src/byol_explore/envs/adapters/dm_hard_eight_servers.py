"""Where DM-HARD-8 is played: on servers that run already, or on those that are started for it and end with us.

The original is one world in one process, and so each environment starts a server of its own. Of servers that run
already dm_env_rpc leaves it to each of them whether it has several worlds: environments are spread over them, each with
a connection and a world of its own.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import ClassVar, Protocol

from byol_explore.envs.adapters.dm_hard_eight_connection import Lost
from byol_explore.envs.adapters.dm_hard_eight_settings import WAYS, DMHardEightSettings
from byol_explore.envs.adapters.processes import end, started
from byol_explore.errors import UserError

EXECUTABLE = "Linux64Player"
_RENDERER = "external_libosmesa_llvmpipe.so"  # of the original's files, which draws without a graphics card
_INSIDE = 10_000  # the port that the original listens on inside its container


class Server(Protocol):
    """Somewhere to play one environment."""

    address: str

    def check(self) -> None:
        """Raises Lost if there is nothing there any more."""
        ...

    def end(self) -> None: ...


class Given:
    """One that somebody else has started; of several the one that the fewest environments of this process use."""

    _uses: ClassVar[Counter[str]] = Counter()
    _lock = threading.Lock()

    def __init__(self, addresses: tuple[str, ...]) -> None:
        with self._lock:
            self.address = min(addresses, key=lambda address: self._uses[address])
            self._uses[self.address] += 1
        self._is_used = True

    def check(self) -> None:
        """Nobody knows but by asking it."""

    def end(self) -> None:
        with self._lock:
            self._uses[self.address] -= self._is_used
            self._is_used = False


class Started:
    """One in a process of its own, on a free port of this machine alone."""

    def __init__(self, settings: DMHardEightSettings) -> None:
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        make = _player if settings.directory else _docker
        order, more = make(settings.directory or settings.container or "", port)
        command = [sys.executable, "-m", "byol_explore.envs.adapters.dm_hard_eight_keeper", json.dumps(order)]
        self._keeper: subprocess.Popen[bytes] = started(
            subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **more}, start_new_session=True,
        )  # fmt: skip

    def check(self) -> None:
        if (code := self._keeper.poll()) is not None:
            raise Lost(f"its process ended with code {code}")

    def end(self) -> None:
        if self._keeper.stdin:
            self._keeper.stdin.close()
        end([self._keeper], patiently=True)


def start(settings: DMHardEightSettings) -> Server:
    return Given(settings.server) if settings.server else Started(settings)


def check_there(env: str, settings: DMHardEightSettings) -> None:
    """A UserError unless the settings say where the original is, and it can be started there."""
    if not settings.ways:
        ways = ", ".join(f"{name}={what}" for name, what in WAYS.items())
        raise UserError(f"{env} needs the original: give one of --env-settings {ways} (see docs/dm-hard-eight.md)")
    if settings.directory:
        path = Path(settings.directory) / EXECUTABLE
        if not path.is_file() or not os.access(path, os.X_OK):
            raise UserError(f"env_settings.directory is {settings.directory!r}: it has no executable {EXECUTABLE}")
    if settings.container and shutil.which("docker") is None:
        raise UserError(f"env_settings.container is {settings.container!r}: there is no command docker to run it")


def _player(directory: str, port: int) -> tuple[dict[str, list[str]], dict[str, str]]:
    path = Path(directory).absolute()
    command = [
        str(path / EXECUTABLE), "-logfile", "-batchmode", "-noaudio", "--server_type=DM_ENV_RPC",
        f"--uri_address=127.0.0.1:{port}",
    ]  # fmt: skip
    more = {"UNITY_RENDERER": "software", "UNITY_OSMESA_PATH": str(path / _RENDERER)}
    return {"command": command, "closing": []}, more


def _docker(image: str, port: int) -> tuple[dict[str, list[str]], dict[str, str]]:
    name = f"byol-explore-{uuid.uuid4().hex[:12]}"
    publish = f"127.0.0.1:{port}:{_INSIDE}"
    command = ["docker", "run", "--rm", "--pull=never", f"--name={name}", f"--publish={publish}", "--", image]
    return {"command": command, "closing": ["docker", "kill", name]}, {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
