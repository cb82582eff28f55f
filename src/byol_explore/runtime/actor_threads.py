"""The source of rollouts: its protocol, the parameter store, and actors in threads of the learner's process.

The learner depends on `RolloutSource` alone. Rollouts may come in any order and from any number of actors; each holds
the numbers of its environments.

An actor that hangs. A thread cannot be killed, so the learner waits for it in `Watchdog.wait_until`, which raises an
EnvironmentFailure when one environment call takes longer than its timeout. Code outside such calls has no limit. The
actor is then marked as abandoned. `join_or_abandon` ends its worker processes and leaves the daemon thread behind.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.config.config import Config
from byol_explore.envs.interface import HostEnvironment
from byol_explore.envs.watchdog import POLL_SECONDS, StopStepping, Watchdog
from byol_explore.errors import EnvironmentFailure
from byol_explore.networks.representation import Actor
from byol_explore.runtime.rollouts import HostActor, Rollout
from byol_explore.types import Device

_ABANDON_SECONDS = 0.5  # for a hanging thread to end after its worker processes were killed


class RolloutSource(Protocol):
    """The actors of a run; the learner gets rollouts from them and publishes parameters to them."""

    @property
    def actors(self) -> int:
        """Number of actors."""
        ...

    @property
    def idle_seconds(self) -> float:
        """Seconds that all actors together have waited for the learner."""
        ...

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        """Start all actors with these parameters, at this learner step.

        `rounds` is the number of rollouts that each environment delivered before. Seeds depend on it, so that a resumed
        run does not play the same episodes again.
        """

    def publish(self, actor: Actor | None, step: int) -> None:
        """Announce the learner step and, if not None, parameters that actors take before their next rollout."""

    def next(self) -> Rollout:
        """Return the next rollout, of `runtime.envs_per_rollout` environments. Raises the failure of an actor."""
        ...

    def pop_counters(self) -> Mapping[str, int]:
        """Return counts of faults and restarts since the last call; empty if actors are not restarted."""
        return {}

    def close(self) -> None:
        """End all actors and their environments."""


def make_host_actor(
    config: Config, envs: Sequence[HostEnvironment], index: int, entropy: np.random.SeedSequence
) -> HostActor:  # fmt: skip
    """Make the actor with this index, with its share of the environments."""
    runtime, numbers = config.runtime, entropy.generate_state(2)
    size, key, seed = runtime.num_envs // runtime.num_actors, jax.random.key(int(numbers[0])), int(numbers[1])
    return HostActor(envs, size, runtime.sequence_length, key, seed, first=index * size, tasks=config.task_sampling)


class ParameterStore:
    """Hold the newest policy: the learner publishes it, actors pull it."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = devices
        self._lock = threading.Lock()
        self._copies: dict[Device, Actor] = {}
        self._step = 0  # current learner step

    def publish(self, actor: Actor | None, step: int) -> None:
        """Store a copy per acting device, and the learner step. None keeps the parameters."""
        copies = self._copies
        if actor is not None:
            # Copies, because the learner's next update donates its own buffers.
            copies = {device: jax.device_put(jax.tree.map(jnp.copy, actor), device) for device in self.devices}
        with self._lock:
            self._copies, self._step = copies, step

    def pull(self, device: Device) -> tuple[Actor, int]:
        """Return the parameters on a device, and the learner step."""
        with self._lock:
            return self._copies[device], self._step


class ActorThread(threading.Thread):
    """Make a host actor and act until stopped. A full queue makes it wait for the learner.

    With `on_request` it acts once per call of `next`. It needs a thread then too: the learner waits with a time limit
    and must not hang when an environment does.
    """

    def __init__(
        self, make: Callable[[Watchdog], HostActor], watchdog: Watchdog, parameters: ParameterStore, device: Device,
        capacity: int,
        *, on_request: bool,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True, name="actor")
        self.device, self.watchdog = device, watchdog
        self.failure: BaseException | None = None  # that ended the loop
        self.idle_seconds = 0.0  # spent waiting for a place in the queue
        self._close_failure: BaseException | None = None
        self._make, self._parameters = make, parameters
        self._actor: HostActor | None = None
        self._queue: queue.Queue[Rollout] = queue.Queue(capacity)
        self._is_made = threading.Event()
        self._requests = threading.Semaphore(0) if on_request else None
        self._stop_requested = threading.Event()
        self._is_abandoned = False  # it hangs, or waiting for it was interrupted

    def run(self) -> None:
        try:
            self._actor = self._make(self.watchdog)
            self._is_made.set()
            while self._wait_for_request():
                rollout = self._actor.rollout(*self._parameters.pull(self.device))
                watchdog = self.watchdog
                self._push(rollout._replace(warnings=watchdog.pop_warnings(), env_restarts=watchdog.pop_restarts()))
        except StopStepping:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self._close_actor()
            self._is_made.set()

    def _wait_for_request(self) -> bool:
        """Wait for a request if it acts on request. Returns False after `stop`."""
        if self._requests is not None:
            self._requests.acquire()
        return not self._stop_requested.is_set()

    def _push(self, rollout: Rollout) -> None:
        began = time.perf_counter()
        while not self._stop_requested.is_set():
            try:
                self._queue.put(rollout, timeout=POLL_SECONDS)
                break
            except queue.Full:
                continue
        if self._requests is None:
            self.idle_seconds += time.perf_counter() - began

    def _close_actor(self) -> None:
        try:
            if self._actor is not None:
                self._actor.close()
        except BaseException as error:
            self._close_failure = error

    def start_and_wait(self) -> None:
        """Start, and wait until the environments have started. Raises the failure that prevents it."""
        self.start()
        self._wait(self._is_made.wait)
        if self._actor is None and self.failure is not None:
            raise self.failure

    def next(self) -> Rollout:
        """Return the next rollout, or raise the failure of the actor once its queue is empty."""
        found: list[Rollout] = []

        def is_done(seconds: float) -> bool:
            try:
                found.append(self._queue.get(timeout=seconds))
            except queue.Empty:
                return self.failure is not None and self._queue.empty()
            return True

        if self._requests is not None:
            self._requests.release()
        self._wait(is_done)
        if not found:
            assert self.failure is not None
            raise self.failure
        return found[0]

    def stop(self) -> None:
        """Allow no further step."""
        self._stop_requested.set()
        self.watchdog.stop()
        if self._requests is not None:
            self._requests.release()

    def join_or_abandon(self) -> None:
        """Wait until the thread has closed its environments. Leave a hanging thread behind, without its processes."""
        if self._is_abandoned:
            self.watchdog.abort()
            self.join(_ABANDON_SECONDS)
            return
        with contextlib.suppress(EnvironmentFailure):  # it hangs, but its results are not needed any more
            self._wait(self._has_ended)
        if self._close_failure is not None and self.failure is None:
            raise self._close_failure

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self.join_or_abandon()

    def _has_ended(self, seconds: float) -> bool:
        self.join(seconds)
        return not self.is_alive()

    def _wait(self, is_done: Callable[[float], bool]) -> None:
        try:
            self.watchdog.wait_until(is_done)
        except BaseException:
            self._is_abandoned = True
            raise


class ThreadActors(RolloutSource):
    """Actors in threads of this process. `next` takes them in turn, so all environments contribute equally."""

    def __init__(self, config: Config, envs: Sequence[HostEnvironment], devices: Sequence[Device]) -> None:
        self.config, self.envs, self.devices = config, envs, list(devices)
        self._parameters = ParameterStore(self.devices)
        self._reported: set[str] = set()  # warnings
        self._threads: list[ActorThread] = []
        self._turn = 0

    @property
    def actors(self) -> int:
        return self.config.runtime.num_actors

    @property
    def idle_seconds(self) -> float:
        return sum(thread.idle_seconds for thread in self._threads)

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        self.publish(actor, step)
        runtime = self.config.runtime
        for index in range(self.actors):
            thread = ActorThread(
                partial(self._make, index, rounds),
                Watchdog(runtime.step_timeout, self._reported, max_restarts=runtime.max_env_restarts), self._parameters,
                self.devices[index % len(self.devices)], runtime.queue_size, on_request=runtime.synchronous,
            )  # fmt: skip
            self._threads.append(thread)
            thread.start_and_wait()

    def _make(self, index: int, rounds: int, watchdog: Watchdog) -> HostActor:
        entropy = np.random.SeedSequence([self.config.seed, index, rounds])
        return make_host_actor(self.config, watchdog.wrap(self.envs), index, entropy)

    def publish(self, actor: Actor | None, step: int) -> None:
        self._parameters.publish(actor, step)

    def next(self) -> Rollout:
        thread = self._threads[self._turn % self.actors]
        self._turn += 1
        return thread.next()

    def close(self) -> None:
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.stop()
        with contextlib.ExitStack() as stack:  # ends the others too if one raises
            for thread in reversed(threads):
                stack.callback(thread.join_or_abandon)
