"""The crew's engine: Ray."""

import time
from collections.abc import Callable
from typing import Any

from byol_explore.errors import one_line
from byol_explore.runtime.cluster.joining import Failed
from byol_explore.runtime.cluster.rays import RayError, ray


class RayEngine:
    """Workers are Ray actors; `make` is told a place in the crew and how often it was filled before."""

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        self._make = make

    def start(self, index: int, attempt: int) -> Any:
        return self._make(index, attempt)

    def join(self, worker: Any) -> Any:
        return worker.join.remote()

    def ping(self, worker: Any) -> Any:
        return worker.is_there.remote()

    def kill(self, worker: Any) -> None:
        ray.kill(worker)

    def ready(self, references: list[Any], seconds: float) -> list[Any]:
        if not references:
            time.sleep(seconds)
            return []
        found, left = ray.wait(references, num_returns=len(references), timeout=0)
        return found or ray.wait(left, num_returns=1, timeout=seconds)[0]

    def get(self, reference: Any) -> Any:
        """An answer that is there already; dead workers, lost objects and full disks are failures."""
        try:
            return ray.get(reference)
        except RayError as error:
            return Failed(in_words(error))


def in_words(error: Exception) -> str:
    """The first sentence of what Ray says, which may be pages; of an error in a worker, of what was wrong there."""
    cause = getattr(error, "cause", None)
    error = cause if isinstance(cause, Exception) else error
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {one_line(first, 160)}"
