"""A Ray cluster on this machine for one run, in a process of its own: `python -m byol_explore.runtime.cluster.head`.

Ray starts its processes by forking, which a process that has started JAX must not do. And whoever has asked for the
cluster may be killed: this process notices that nobody holds the other end of its pipe any more, ends the cluster and
removes its files. It listens on the loopback interface alone, has no dashboard, and tells nobody of its use.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from typing import Any

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # with 0 Ray listens where it does on such systems: on loopback alone
_NO_WORKERS = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}  # before they are needed
_ATTEMPTS = 3  # to start
_LEAST = 128 << 20  # bytes of an object store, below which Ray does not start one that is of use


def main(ray: Any, order: dict[str, Any]) -> None:
    """Start a cluster, say where it listens, and end it when nobody holds the other end of the pipe any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those are for the learner, with which this process ends
    for attempt in range(_ATTEMPTS):
        directory = tempfile.mkdtemp(prefix="byol-ray-", dir=_short())
        try:
            print(json.dumps(start(ray, directory, **order)), flush=True)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which Ray has taken
            sys.stdin.read()
            return
        except (
            Exception
        ):  # a raylet waits for no more than 15 seconds for its helpers, which is little on a busy machine
            if attempt == _ATTEMPTS - 1:
                raise
        finally:
            ray.shutdown()
            shutil.rmtree(directory, ignore_errors=True)


def start(ray: Any, directory: str, cpus: int, store: int) -> str:
    """Where the cluster listens. CPUs are only counted: there is room for the actors whatever the machine has."""
    context: Any = ray.init(
        address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False,
        object_store_memory=max(store, _LEAST), _temp_dir=directory,
    )  # fmt: skip
    return context.address_info["gcs_address"]


def _short() -> str | None:
    """Where temporary directories are; Ray's sockets need short names."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < 32 else "/tmp" if os.path.isdir("/tmp") else None


if __name__ == "__main__":
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0", **_NO_WORKERS}  # which Ray reads when it is imported
    import ray  # pyright: ignore[reportMissingImports]

    main(ray, json.loads(sys.argv[1]))
