"""A Ray cluster of two hosts, each a network namespace, started by the lines that docs/cluster.md has."""

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

from namespaces import Hosts, can_be_made, two_hosts

TESTS = Path(__file__).parents[1]
_PAGE = TESTS.parent / "docs" / "cluster.md"
_PATIENCE = 300.0  # seconds for a node to start on a loaded machine
_ATTEMPTS = 3  # to start one
_NO_WORKERS = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}  # which two cores would feel


def documented() -> tuple[str, str, str]:
    """The lines that make a token, start the head and start another node."""
    page = _PAGE.read_text()
    patterns = (r"^(ray get-auth-token \S+)", r"^(ray start --head .*)$", r"^ssh \S+ '(.*ray start .*)'$")
    found = [match[1] for match in (re.search(pattern, page, re.MULTILINE) for pattern in patterns) if match]
    assert len(found) == len(patterns), f"the page has other lines than it had: {found}"
    token, head, node = found
    return token, head, node


class Nodes(NamedTuple):
    """The first host has the head and the learner. They share files, and nothing else but the link."""

    hosts: Hosts
    home: Path
    files: list[Path]  # of Ray, by host
    variables: dict[str, str]

    @property
    def address(self) -> str:
        return f"{self.hosts.addresses[0]}:6379"

    def environment(self, index: int) -> dict[str, str]:
        """Of everything that runs on a host: nothing is read from or written to the home of whoever runs the tests."""
        bin_ = Path(sys.executable).parent
        return {
            **os.environ, "HOME": str(self.home), "RAY_TMPDIR": str(self.files[index]), "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **_NO_WORKERS, **self.variables,
        }  # fmt: skip

    def run(self, index: int, line: str) -> None:
        """A line as it would be typed on that host."""
        words = [*self.hosts.inside(index), "sh", "-c", line]
        done = subprocess.run(
            words, env=self.environment(index), capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"

    def start(self, index: int, line: str) -> None:
        """Ray on a host that has nothing else yet: again, if its processes did not find each other in Ray's time."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(AssertionError):
                return self.run(index, line)
            self.hosts.end(index)
        return self.run(index, line)

    def begin(self, index: int, *words: object) -> subprocess.Popen[str]:
        """A process on that host."""
        return subprocess.Popen(
            [*self.hosts.inside(index), *map(str, words)], env=self.environment(index), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def actors(self, index: int) -> set[int]:
        """Processes of actors and servers on a host: Ray calls them after their class."""
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
    """With so many CPUs, which are only counted; whatever runs on them is ended at last."""
    if not can_be_made():
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
