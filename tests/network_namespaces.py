"""Two network namespaces that act as two hosts: each reaches the other over one link, and nothing else."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple


class Hosts(NamedTuple):
    """Two network namespaces and the link between them."""

    names: list[str]
    addresses: list[str]
    links: list[str]

    def inside(self, index: int) -> list[str]:
        """Return the words before a command that run it on a host."""
        return ["ip", "netns", "exec", self.names[index]]

    def cut(self) -> None:
        """Drop all packets between the two, without an error to either."""
        _ip("-n", self.names[0], "link", "set", self.links[0], "down")

    def join(self) -> None:
        """Set the link up again."""
        _ip("-n", self.names[0], "link", "set", self.links[0], "up")

    def pids(self, index: int) -> set[int]:
        """Return the processes of one host."""
        return set(map(int, _ip("netns", "pids", self.names[index]).split()))

    def end(self, index: int) -> None:
        """Kill all processes of a host, as if its power had failed."""
        while pids := self.pids(index):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def namespaces_available() -> bool:
    """Return True if this machine has namespaces and this user may make them."""
    try:
        with two_hosts():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Make two connected namespaces; both are deleted in the end."""
    mark = os.getpid()
    names, links = [f"byol-{mark}-{end}" for end in "ab"], [f"by{mark}{end}" for end in "ab"]
    hosts = Hosts(names, ["10.0.0.1", "10.0.0.2"], links)
    with contextlib.ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
        _ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1])
        for name, link, address in zip(names, links, hosts.addresses, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            for each in ("lo", link):
                _ip("-n", name, "link", "set", each, "up")
        yield hosts


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
