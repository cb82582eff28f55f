"""Ray actor classes: actors with a policy, actors that only step environments, and the inference server.

Ray runs each class in a process of its own. Nothing heavy is imported before `join`: environment steppers never import
JAX, and the others must choose its platform first. Methods return a `WorkerFailure` instead of raising, because user
errors may not unpickle in the learner.

A worker that hangs. Environments run in a thread under a `Watchdog`, so a method returns a `WorkerFailure` when one
takes too long. `ping` and `close` have threads of their own: a worker that is busy answers a ping, a process that is
stopped does not, and `ActorPool` replaces it.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from byol_explore.errors import UserError
from byol_explore.runtime.cluster.messages import (
    ActorSpec,
    JoinReply,
    WorkerFailure,
    describe_worker,
    extend_import_path,
    make_actor_envs,
)
from byol_explore.runtime.cluster.ray_client import ray
from byol_explore.utils.formatting import one_line

# Groups of methods with one thread each: they run while a rollout is in progress.
CONCURRENCY_GROUPS = {"parameters": 1, "control": 1}


def _run_or_fail(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the error of a method as a `WorkerFailure`."""

    @wraps(method)
    def run(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except Exception as error:
            return to_failure(error)

    return run


def to_failure(error: Exception) -> WorkerFailure:
    """Describe an error in one line; the text of a UserError stays unchanged."""
    is_user_error = isinstance(error, UserError) and type(error) is UserError
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {one_line(error)}"
    return WorkerFailure(text, is_user_error)


class _Worker:
    """Base class of workers. A subclass makes its content, such as an `EnvStepper`, in `join`."""

    def __init__(self, spec: ActorSpec) -> None:
        self._spec = spec
        self._content: Any = None

    def _make(self) -> Any:
        raise NotImplementedError

    @_run_or_fail
    def join(self) -> JoinReply:
        """Start the environments or the server."""
        extend_import_path(self._spec)
        self._content = self._make()
        return describe_worker()._replace(address=getattr(self._content, "address", ("", 0)))

    @ray.method(concurrency_group="control")
    def ping(self) -> bool:
        return True

    @ray.method(concurrency_group="control")
    def modules(self) -> list[str]:
        """Return the names of all imported modules."""
        return list(sys.modules)

    @ray.method(concurrency_group="control")
    def close(self) -> None:
        if self._content is not None:
            self._content.close()


class _ActingWorker(_Worker):
    """An actor with its own copy of the policy: an `ActorThread` that acts when `rollout` is called."""

    _parameters: Any  # ParameterStore

    def __init__(self, spec: ActorSpec) -> None:
        super().__init__(spec)
        self._version = self._step = -1
        self._lock = threading.Lock()

    def _make(self) -> Any:
        os.environ["JAX_PLATFORMS"] = "cpu"  # accelerators are for learners and inference servers
        import jax

        from byol_explore.envs.watchdog import Watchdog
        from byol_explore.runtime.actor_threads import ActorThread, ParameterStore, make_host_actor
        from byol_explore.utils.packages import enable_compilation_cache

        enable_compilation_cache()
        spec, device = self._spec, jax.devices()[0]

        def make(watchdog: Watchdog) -> Any:
            envs = watchdog.wrap(make_actor_envs(spec))
            return make_host_actor(spec.config, envs, spec.actor_index, np.random.SeedSequence(spec.entropy))

        runtime = spec.config.runtime
        watchdog = Watchdog(runtime.step_timeout, max_restarts=runtime.max_env_restarts)
        self._parameters = ParameterStore([device])
        thread = ActorThread(make, watchdog, self._parameters, device, capacity=1, on_request=True)
        thread.start_and_wait()
        self._idle_since = time.perf_counter()
        return thread

    @ray.method(concurrency_group="parameters")
    def receive(self, version: int, parameters: list[Any], step: int) -> None:
        """Store parameters if their version is new. `parameters` holds one reference to Ray's object store."""
        with self._lock:
            is_new = version > self._version
            actor = ray.get(parameters[0]) if is_new else None
            self._version = max(version, self._version)
            if step >= self._step:
                self._parameters.publish(actor, step)
                self._step = step

    @_run_or_fail
    def rollout(self, version: int, parameters: list[Any], step: int) -> Any:
        """Return a rollout by parameters at least as new as these, and the seconds idle before it."""
        self.receive(version, parameters, step)
        idle = time.perf_counter() - self._idle_since
        rollout = self._content.next()
        self._idle_since = time.perf_counter()
        return rollout, idle


class _SteppingWorker(_Worker):
    """An actor that only steps environments, in a process without JAX."""

    def _make(self) -> Any:
        from byol_explore.runtime.cluster.env_stepper import EnvStepper

        return EnvStepper(self._spec)

    @_run_or_fail
    def play(self, address: tuple[str, int], token: str) -> None:
        """Step environments until the inference server has closed the connection."""
        self._content.run(address, token)


class _ServingWorker(_Worker):
    """The inference server. It uses a CPU unless it was given GPUs."""

    def __init__(self, spec: ActorSpec, token: str) -> None:
        super().__init__(spec)
        self._token = token

    def _make(self) -> Any:
        if not ray.get_gpu_ids():
            os.environ["JAX_PLATFORMS"] = "cpu"
        from byol_explore.runtime.cluster.inference_server import InferenceServer

        return InferenceServer(self._spec, self._token, ray.util.get_node_ip_address())

    @ray.method(concurrency_group="parameters")
    def receive(self, parameters: list[Any], step: int) -> None:
        self._content.set_parameters(ray.get(parameters[0]) if parameters else None, step)

    @_run_or_fail
    def take(self, seconds: float) -> Any:
        """Return finished rollouts, after at most that many seconds if there are none."""
        return self._content.take_rollouts(seconds)

    @ray.method(concurrency_group="control")
    def statistics(self) -> Any:
        return self._content.statistics()


_OPTIONS: dict[str, Any] = {
    "num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "concurrency_groups": CONCURRENCY_GROUPS,
}  # fmt: skip
ActingWorker = ray.remote(**_OPTIONS)(_ActingWorker)
SteppingWorker = ray.remote(**_OPTIONS)(_SteppingWorker)
ServingWorker = ray.remote(**_OPTIONS)(_ServingWorker)
