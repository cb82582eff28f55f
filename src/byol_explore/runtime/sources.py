"""Where sequences come from and where parameters go: actors beside the learner, in threads or in lock step.

The learner knows only `Source`. Rollouts may come in any order and from any number of actors; each says which
environments it is of.
"""

import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.envs.host import HostEnvironment
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.settings.config import Config
from byol_explore.types import Device

_PATIENCE = 0.2  # seconds between looks at whether the other side still lives


class Source(Protocol):
    """Actors, seen from the learner."""

    @property
    def actors(self) -> int:
        """How many there are: a dispatch learns from as many rollouts of each."""
        ...

    @property
    def waited(self) -> float:
        """Seconds that they have waited for the learner, all together."""
        ...

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        """Begin to act with these parameters; `step` is the learner's, `rounds` tells one start from another."""
        ...

    def publish(self, actor: Actor | None, step: int) -> None:
        """The learner's step now, and new parameters if there are any: whoever acts next takes them."""
        ...

    def next(self) -> Rollout:
        """The next sequences of some actor; what stopped an actor is raised."""
        ...

    def close(self) -> None:
        """End all actors and their environments."""
        ...


class Parameters:
    """The newest policy: published by the learner when it changes, pulled by actors."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = devices
        self._lock = threading.Lock()
        self._copies: dict[Device, Actor] = {}
        self._step = 0  # of the learner, now

    def publish(self, actor: Actor | None, step: int) -> None:
        """Copies, one per acting device: the learner's own are overwritten by its next step."""
        copies = self._copies
        if actor is not None:
            copies = {device: jax.device_put(jax.tree.map(jnp.copy, actor), device) for device in self.devices}
        with self._lock:
            self._copies, self._step = copies, step

    def pull(self, device: Device) -> tuple[Actor, int]:
        """Parameters on the device, and the learner's step."""
        with self._lock:
            return self._copies[device], self._step


class ActorThread(threading.Thread):
    """Acts until it is told to stop; waits while the learner has enough to do."""

    def __init__(self, actor: HostActor, parameters: Parameters, device: Device, capacity: int) -> None:
        super().__init__(daemon=True, name="actor")
        self.actor, self.device = actor, device
        self.failure: BaseException | None = None
        self.waited = 0.0  # seconds for a place in the queue
        self._parameters = parameters
        self._queue: queue.Queue[Rollout] = queue.Queue(capacity)
        self._told_to_stop = threading.Event()

    def run(self) -> None:
        try:
            while not self._told_to_stop.is_set():
                self._push(self.actor.rollout(*self._parameters.pull(self.device)))
        except BaseException as error:
            self.failure = error
        finally:
            self.actor.close()

    def _push(self, rollout: Rollout) -> None:
        began = time.perf_counter()
        while not self._told_to_stop.is_set():
            try:
                self._queue.put(rollout, timeout=_PATIENCE)
                break
            except queue.Full:
                continue
        self.waited += time.perf_counter() - began

    def next(self) -> Rollout:
        """The next sequences, or what stopped the actor."""
        while True:
            try:
                return self._queue.get(timeout=_PATIENCE)
            except queue.Empty:
                if self.failure is not None and self._queue.empty():
                    raise self.failure from None

    def stop(self) -> None:
        """Begin no further rollout."""
        self._told_to_stop.set()

    def finish(self) -> None:
        """Wait until it has stopped; it has ended its environments then."""
        self.join()


class LockStep:
    """An actor without a thread: it acts when it is asked, so runs are repeatable."""

    waited = 0.0

    def __init__(self, actor: HostActor, parameters: Parameters, device: Device) -> None:
        self.actor, self.device, self._parameters = actor, device, parameters

    def next(self) -> Rollout:
        return self.actor.rollout(*self._parameters.pull(self.device))

    def stop(self) -> None: ...

    def finish(self) -> None:
        self.actor.close()


class LocalActors:
    """Actors of this process, asked in turn: all environments are learned from equally."""

    def __init__(self, config: Config, envs: Sequence[HostEnvironment], devices: Sequence[Device]) -> None:
        self.config, self.envs, self.devices = config, envs, list(devices)
        self._parameters = Parameters(self.devices)
        self._running: list[ActorThread] | list[LockStep] = []
        self._turn = 0

    @property
    def actors(self) -> int:
        return self.config.runtime.actors

    @property
    def waited(self) -> float:
        return sum(actor.waited for actor in self._running)

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        """Actors whose seeds are new after every restart."""
        self._parameters.publish(actor, step)
        actors = self._make(rounds)
        devices = [self.devices[index % len(self.devices)] for index in range(self.actors)]
        pairs = list(zip(actors, devices, strict=True))
        if self.config.runtime.deterministic:
            self._running = [LockStep(actor, self._parameters, device) for actor, device in pairs]
            return
        size = self.config.runtime.queue_size
        threads = [ActorThread(actor, self._parameters, device, size) for actor, device in pairs]
        for thread in threads:
            thread.start()
        self._running = threads

    def _make(self, rounds: int) -> list[HostActor]:
        runtime, actors = self.config.runtime, []
        size = runtime.num_envs // runtime.actors
        try:
            for index in range(runtime.actors):
                entropy = np.random.SeedSequence([self.config.seed, index, rounds]).generate_state(2)
                key, seed = jax.random.key(int(entropy[0])), int(entropy[1])
                length, tasks = runtime.sequence_length, self.config.tasks
                actors.append(HostActor(self.envs, size, length, key, seed, first=index * size, tasks=tasks))
        except BaseException:
            for actor in actors:
                actor.close()
            raise
        return actors

    def publish(self, actor: Actor | None, step: int) -> None:
        self._parameters.publish(actor, step)

    def next(self) -> Rollout:
        actor = self._running[self._turn % self.actors]
        self._turn += 1
        return actor.next()

    def close(self) -> None:
        for actor in self._running:
            actor.stop()
        for actor in self._running:
            actor.finish()
        self._running = []
