"""Connect to an inference server in hostile ways while an actor plays with it.

  python tests/drills/strangers.py --count 1000

The server may open 80 descriptors more than it has. A process of its own connects: it stays silent, sends half a
greeting, noise, wrong tokens, or with the right token handshakes that claim gigabytes, nest deeply, name other types or
overflow; it resets connections, and keeps many open. The server must not end, must not keep more connections than it
may, must not grow, and the actor must get actions all the time. The last line has figures.
"""

import random
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from common import TESTS, parser

sys.path.insert(0, str(TESTS / "runtime" / "cluster"))

from test_inference_server import (
    INVALID_HANDSHAKES,
    TOKEN,
    handshake_text,
    is_closed,
    layout,
    start,
    with_greeting,
)

from byol_explore.runtime.cluster.inference_server import HANDSHAKE_SECONDS
from byol_explore.runtime.cluster.messages import Handshake
from host_worlds import Scripted

DESCRIPTORS = 80  # that the server may open
MOST_MEGABYTES = 100  # that the server may grow
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: reset the connection when it is closed


def messages(rng: random.Random) -> list[bytes]:
    """Return one message of each kind."""
    whole = Handshake(0, layout()).encode(TOKEN)
    hostile = [with_greeting(text) for text in INVALID_HANDSHAKES]
    return [
        b"",
        whole[: rng.randrange(1, 36)],
        whole[: rng.randrange(36, len(whole))],
        rng.randbytes(rng.randrange(1, 5_000)),
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        with_greeting(b"{}", "another token"),
        with_greeting(b"")[:32] + struct.pack("<I", 2**32 - 1),
        Handshake(rng.choice([-1, 7, 10**9]), layout()).encode(TOKEN),
        with_greeting(handshake_text(["reward", "<f4", [rng.choice([2**28, 2**61, 2**63, 10**30])]])),
        rng.choice(hostile),
    ]


def attack(port: int, count: int, seed: int) -> None:
    """Connect `count` times; keep a part of the connections open, and check that the others are closed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server's limit is not that of its attackers
    rng, kept, left_open = random.Random(seed), [], 0
    for index in range(count):
        connection = socket.create_connection(("127.0.0.1", port), 30)
        kinds = messages(rng)
        text, stays = kinds[index % len(kinds)], index % len(kinds) < 3
        try:
            connection.sendall(text)
            if rng.random() < 0.1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.close()
            elif stays:
                kept.append(connection)
            elif len(text) >= 36:
                left_open += not is_closed(connection)
        except OSError:
            pass
        for old in kept[:-300]:
            old.close()
        del kept[:-300]
    print(left_open)
    time.sleep(HANDSHAKE_SECONDS + 2)  # the server must drop the kept ones by itself


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> int:
    options = parser(__doc__ or "", 1000).parse_args()
    setup = start(Scripted())
    setup.start_actor(0)
    setup.take(3)
    before, largest, rollouts, longest = megabytes(), 0, 0, 0.0
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    child = subprocess.Popen(
        [sys.executable, __file__, "--attack", str(setup.server.address[1]), str(options.count), str(options.seed)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    began = time.monotonic()
    while child.poll() is None:
        waiting = time.monotonic()
        rollouts += len(setup.take(1))
        longest = max(longest, time.monotonic() - waiting)
        largest = max(largest, len(setup.server._clients))
        time.sleep(0.01)
    left_open = int((child.stdout.read() if child.stdout else "") or -1)
    grown, alive = megabytes() - before, setup.server.failure is None and bool(setup.take(1))
    strangers = len(setup.server._clients) - 1
    setup.close()
    print(
        f"strangers: {options.count} connections in {time.monotonic() - began:.0f} s: server "
        f"{'alive' if alive else 'ended'}, {left_open} wrong ones left open, {strangers} kept at the end, at most "
        f"{largest} at once, {grown:.0f} MB more memory; {rollouts} rollouts of the actor meanwhile"
    )
    return int(not alive or left_open != 0 or strangers > 0 or grown > MOST_MEGABYTES or rollouts < 10)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:
        raise SystemExit(attack(*map(int, sys.argv[2:])))
    raise SystemExit(main())
