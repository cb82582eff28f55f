"""A Ray cluster of two hosts, each a network namespace, started by the commands of docs/cluster.md."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from network_namespaces import Hosts, namespaces_available, two_hosts

TESTS = Path(__file__).parents[1]
_PAGE = TESTS.parent / "docs" / "cluster.md"
_PATIENCE = 300.0  # seconds for a node to start on a loaded machine
_ATTEMPTS = 3  # to start one
_NO_PRESTART = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}  # of idle workers


def documented() -> tuple[str, str, str]:
    """Return the commands that make a token, start the head and start another node."""
    page = _PAGE.read_text()
    patterns = (r"^(ray get-auth-token \S+)", r"^(ray start --head .*)$", r"^ssh \S+ '(.*ray start .*)'$")
    found = [match[1] for match in (re.search(pattern, page, re.MULTILINE) for pattern in patterns) if match]
    assert len(found) == len(patterns), f"docs/cluster.md has other commands: {found}"
    token, head, node = found
    return token, head, node


class Nodes(NamedTuple):
    """Two hosts that share files and a network link. The first one has the head and the learner."""

    hosts: Hosts
    home: Path
    files: list[Path]  # of Ray, by host
    variables: dict[str, str]

    @property
    def address(self) -> str:
        return f"{self.hosts.addresses[0]}:6379"

    def environment(self, index: int) -> dict[str, str]:
        """Return the environment variables of a host. The home directory is a temporary one."""
        bin_ = Path(sys.executable).parent
        return {
            **os.environ, "HOME": str(self.home), "RAY_TMPDIR": str(self.files[index]), "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **_NO_PRESTART, **self.variables,
        }  # fmt: skip

    def run(self, index: int, line: str) -> None:
        """Run a shell command on a host."""
        words = [*self.hosts.inside(index), "sh", "-c", line]
        done = subprocess.run(
            words, env=self.environment(index), capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"

    def start(self, index: int, line: str) -> None:
        """Start Ray on a host. Retries, because Ray's own time limits are too short for a loaded machine."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(AssertionError):
                return self.run(index, line)
            self.hosts.end(index)
        return self.run(index, line)

    def spawn(self, index: int, *words: object) -> subprocess.Popen[str]:
        """Start a process on a host."""
        return subprocess.Popen(
            [*self.hosts.inside(index), *map(str, words)], env=self.environment(index), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def actors(self, index: int) -> set[int]:
        """Return the processes of actors and servers on a host: Ray names them by their class."""
        return {pid for pid in self.hosts.pids(index) if _command(pid).startswith("ray::_")}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def with_cpus(line: str, count: int) -> str:
    return re.sub(r"--num-cpus=\d+", f"--num-cpus={count}", line)


@contextlib.contextmanager
def two_nodes(directory: Path, cpus: tuple[int, int], **variables: str) -> Iterator[Nodes]:
    """Start two hosts that declare these CPUs, which need not exist. Ends all of their processes."""
    if not namespaces_available():
        pytest.skip("network namespaces cannot be made here: that needs ip, and the rights of an administrator")
    token, head, node = documented()
    with two_hosts() as hosts, contextlib.ExitStack() as stack:
        files = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="by-"))) for _ in hosts.names]
        nodes = Nodes(hosts, directory / "home", files, variables)
        nodes.home.mkdir()
        for index in range(len(hosts.names)):
            stack.callback(hosts.end, index)
        nodes.run(0, token)
        nodes.start(0, with_cpus(head, cpus[0]))
        nodes.start(1, with_cpus(node, cpus[1]))
        yield nodes
