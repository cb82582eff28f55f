"""A private Ray cluster that ends with its owner: `python -m byol_explore.runtime.cluster.head_process OPTIONS`.

Ray forks its processes, which is unsafe in a process that has started JAX. And the owner may be killed: this process
then reads the end of its standard input, ends the cluster and removes its files. The cluster listens on the loopback
interface only, has no dashboard, and sends no usage statistics.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from typing import Any

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray listens as on these systems, on the loopback interface only
_NO_PRESTART = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}  # of idle workers
_ATTEMPTS = 3  # to start the cluster
_MIN_STORE = 128 << 20  # bytes; Ray's object store does not work properly below


def main(ray: Any, options: dict[str, Any]) -> None:
    """Start a cluster, print its address as JSON, and end it when standard input is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner handles them, and this process ends after it
    for attempt in range(_ATTEMPTS):
        directory = tempfile.mkdtemp(prefix="byol-ray-", dir=_short_temp_dir())
        try:
            print(json.dumps(start(ray, directory, **options)), flush=True)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray has installed its own handler
            sys.stdin.read()
            return
        except Exception:  # a raylet waits only 15 seconds for its helpers, too little on a busy machine
            if attempt == _ATTEMPTS - 1:
                raise
        finally:
            ray.shutdown()
            shutil.rmtree(directory, ignore_errors=True)


def start(ray: Any, directory: str, cpus: int, store: int) -> str:
    """Start a cluster and return its address. CPUs are only counted: they need not exist."""
    context: Any = ray.init(
        address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False,
        object_store_memory=max(store, _MIN_STORE), _temp_dir=directory,
    )  # fmt: skip
    return context.address_info["gcs_address"]


def _short_temp_dir() -> str | None:
    """Return a temporary directory with a short path: the paths of Ray's sockets are limited to 107 bytes."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < 32 else "/tmp" if os.path.isdir("/tmp") else None


if __name__ == "__main__":
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0", **_NO_PRESTART}  # read when Ray is imported
    import ray  # pyright: ignore[reportMissingImports]

    main(ray, json.loads(sys.argv[1]))
