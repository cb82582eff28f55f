"""What Ray runs in processes of its own. Light: whoever only steps environments imports no JAX."""

import os
import sys
import threading
from typing import Any

from byol_explore.errors import UserError, one_line
from byol_explore.runtime.cluster.joining import Failed, Joined, Order, find_what_the_learner_finds, introduce
from byol_explore.runtime.cluster.rays import ray

GROUPS = {"told": 1, "asked": 1}  # methods that are answered while a rollout goes on, in threads of their own


class _ActingWorker:
    """An actor that acts with its own copy of the policy (`acting.py`)."""

    def __init__(self, order: Order) -> None:
        self._order, self._version = order, -1
        self._acting: Any = None
        self._lock = threading.Lock()

    def join(self) -> Joined | Failed:
        """Start the environments."""
        os.environ["JAX_PLATFORMS"] = "cpu"  # accelerators are for those that learn, and for an inference server
        find_what_the_learner_finds(self._order)
        try:
            from byol_explore.runtime.cluster.acting import Acting

            self._acting = Acting(self._order)
        except Exception as error:
            return failed(error)
        return introduce()

    @ray.method(concurrency_group="told")
    def receive(self, version: int, parameters: list[Any], step: int) -> None:
        """New parameters, behind a reference: they come when they are wanted."""
        self._take(version, parameters, step)

    def rollout(self, version: int, parameters: list[Any], step: int) -> Any:
        """The next sequences with parameters that are at least as new as these."""
        try:
            self._take(version, parameters, step)
            return self._acting.rollout()
        except Exception as error:
            return failed(error)

    def _take(self, version: int, parameters: list[Any], step: int) -> None:
        assert self._acting is not None
        with self._lock:
            is_new = version > self._version
            self._acting.receive(ray.get(parameters[0]) if is_new else None, step)
            self._version = max(version, self._version)

    @ray.method(concurrency_group="asked")
    def is_there(self) -> bool:
        return True

    @ray.method(concurrency_group="asked")
    def close(self) -> None:
        if self._acting is not None:
            self._acting.close()


class _SteppingWorker:
    """An actor that only steps environments (`stepping.py`), in a process without JAX."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._stepping: Any = None

    def join(self) -> Joined | Failed:
        """Start the environments."""
        find_what_the_learner_finds(self._order)
        try:
            from byol_explore.runtime.cluster.stepping import Stepping

            self._stepping = Stepping(self._order)
        except Exception as error:
            return failed(error)
        return introduce()

    def play(self, address: tuple[str, int], token: str) -> Failed | None:
        """Until the inference server has gone, or something has happened."""
        try:
            self._stepping.play(address, token)
        except Exception as error:
            return failed(error)
        return None

    @ray.method(concurrency_group="asked")
    def is_there(self) -> bool:
        return True

    @ray.method(concurrency_group="asked")
    def modules(self) -> list[str]:
        """All that this process has imported."""
        return list(sys.modules)

    @ray.method(concurrency_group="asked")
    def close(self) -> None:
        if self._stepping is not None:
            self._stepping.close()


class _ServingWorker:
    """The inference server (`serving.py`)."""

    def __init__(self, order: Order, token: str) -> None:
        self._order, self._token = order, token
        self._server: Any = None

    def join(self) -> Joined | Failed:
        find_what_the_learner_finds(self._order)
        if not ray.get_gpu_ids():
            os.environ["JAX_PLATFORMS"] = "cpu"
        try:
            from byol_explore.runtime.cluster.serving import Server

            self._server = Server(self._order, self._order.spec, self._token, ray.util.get_node_ip_address())
        except Exception as error:
            return failed(error)
        return introduce()._replace(address=self._server.address)

    @ray.method(concurrency_group="told")
    def receive(self, parameters: list[Any], step: int) -> None:
        self._server.receive(ray.get(parameters[0]) if parameters else None, step)

    def take(self, seconds: float) -> Any:
        """Finished sequences."""
        try:
            return self._server.take(seconds)
        except Exception as error:
            return failed(error)

    @ray.method(concurrency_group="asked")
    def statistics(self) -> Any:
        return self._server.statistics()

    @ray.method(concurrency_group="asked")
    def is_there(self) -> bool:
        return True

    @ray.method(concurrency_group="asked")
    def close(self) -> None:
        if self._server is not None:
            self._server.close()


_OPTIONS: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "concurrency_groups": GROUPS}
ActingWorker = ray.remote(**_OPTIONS)(_ActingWorker)
SteppingWorker = ray.remote(**_OPTIONS)(_SteppingWorker)
ServingWorker = ray.remote(**_OPTIONS)(_ServingWorker)


def failed(error: Exception) -> Failed:
    """What is said of an error; one of the user's own kind is repeated as it is."""
    is_mistake = isinstance(error, UserError) and type(error) is UserError
    return Failed(
        str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {one_line(error)}", is_mistake
    )
