"""Where sequences come from and where parameters go: actors in threads beside the learner, free or in lock step.

The learner knows only `Source`. Rollouts may come in any order and from any number of actors; each says which
environments it is of.
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

from byol_explore.envs.guarding import LOOK, Guard, Stop
from byol_explore.envs.host import HostEnvironment
from byol_explore.errors import EnvironmentFailure
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.settings.config import Config
from byol_explore.types import Device

_FAREWELL = 0.5  # seconds in which an actor ends whose processes have been ended


class Source(Protocol):
    """Actors, seen from the learner."""

    @property
    def actors(self) -> int:
        """How many there are."""
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
        """The next sequences, of `runtime.envs_per_rollout` environments; what stopped the actors is raised."""
        ...

    def new_counts(self) -> Mapping[str, int]:
        """What has happened to actors since it was last asked, by name, where they can die and live again."""
        ...

    def close(self) -> None:
        """End all actors and their environments."""
        ...


def make_actor(
    config: Config, envs: Sequence[HostEnvironment], index: int, entropy: np.random.SeedSequence
) -> HostActor:  # fmt: skip
    """The actor of that number, with its share of the environments."""
    runtime, words = config.runtime, entropy.generate_state(2)
    size, key, seed = runtime.num_envs // runtime.actors, jax.random.key(int(words[0])), int(words[1])
    return HostActor(envs, size, runtime.sequence_length, key, seed, first=index * size, tasks=config.tasks)


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
    """Makes its actor and acts until it is told to stop; waits while the learner has enough to do.

    In lock step it acts only when it is asked, so runs are repeatable. It has a thread then too: the learner, which
    waits for it, must not hang when an environment does.
    """

    def __init__(
        self, make: Callable[[Guard], HostActor], guard: Guard, parameters: Parameters, device: Device, capacity: int,
        *, in_lock_step: bool,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True, name="actor")
        self.device, self.guard = device, guard
        self.failure: BaseException | None = None  # what stopped it
        self._at_the_end: BaseException | None = None  # what kept its environments from being closed
        self.waited = 0.0  # seconds for a place in the queue
        self._make, self._parameters = make, parameters
        self._actor: HostActor | None = None
        self._queue: queue.Queue[Rollout] = queue.Queue(capacity)
        self._is_made = threading.Event()
        self._asked = threading.Semaphore(0) if in_lock_step else None
        self._told_to_stop = threading.Event()
        self._is_given_up = False  # nobody waits for it any more

    def run(self) -> None:
        try:
            self._actor = self._make(self.guard)
            self._is_made.set()
            while self._may_act():
                rollout = self._actor.rollout(*self._parameters.pull(self.device))
                self._push(rollout._replace(remarks=self.guard.new_remarks()))
        except Stop:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self._close()
            self._is_made.set()

    def _may_act(self) -> bool:
        if self._asked is not None:
            self._asked.acquire()
        return not self._told_to_stop.is_set()

    def _push(self, rollout: Rollout) -> None:
        began = time.perf_counter()
        while not self._told_to_stop.is_set():
            try:
                self._queue.put(rollout, timeout=LOOK)
                break
            except queue.Full:
                continue
        if self._asked is None:
            self.waited += time.perf_counter() - began

    def _close(self) -> None:
        try:
            if self._actor is not None:
                self._actor.close()
        except BaseException as error:
            self._at_the_end = error

    def begin(self) -> None:
        """Start, and wait until the environments have; what keeps them from it is raised."""
        self.start()
        self._wait(self._is_made.wait)
        if self._actor is None and self.failure is not None:
            raise self.failure

    def next(self) -> Rollout:
        """The next sequences, or what stopped the actor."""
        found: list[Rollout] = []

        def is_done(seconds: float) -> bool:
            try:
                found.append(self._queue.get(timeout=seconds))
            except queue.Empty:
                return self.failure is not None and self._queue.empty()
            return True

        if self._asked is not None:
            self._asked.release()
        self._wait(is_done)
        if not found:
            assert self.failure is not None
            raise self.failure
        return found[0]

    def stop(self) -> None:
        """Take no further step."""
        self._told_to_stop.set()
        self.guard.stop()
        if self._asked is not None:
            self._asked.release()

    def finish(self) -> None:
        """Wait until it has stopped and ended its environments; one that hangs is left behind, without processes."""
        if self._is_given_up:
            self.guard.abort()
            self.join(_FAREWELL)
            return
        with contextlib.suppress(EnvironmentFailure):  # it hangs now that nobody needs it
            self._wait(self._has_ended)
        if self._at_the_end is not None and self.failure is None:
            raise self._at_the_end

    def _has_ended(self, seconds: float) -> bool:
        self.join(seconds)
        return not self.is_alive()

    def _wait(self, is_done: Callable[[float], bool]) -> None:
        try:
            self.guard.wait(is_done)
        except BaseException:
            self._is_given_up = True
            raise


class LocalActors:
    """Actors of this process, asked in turn: all environments are learned from equally."""

    def __init__(self, config: Config, envs: Sequence[HostEnvironment], devices: Sequence[Device]) -> None:
        self.config, self.envs, self.devices = config, envs, list(devices)
        self._parameters = Parameters(self.devices)
        self._remarked: set[str] = set()
        self._running: list[ActorThread] = []
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
        runtime = self.config.runtime
        for index in range(self.actors):
            thread = ActorThread(
                partial(self._make, index, rounds), Guard(runtime.step_timeout, self._remarked), self._parameters,
                self.devices[index % len(self.devices)], runtime.queue_size, in_lock_step=runtime.deterministic,
            )  # fmt: skip
            self._running.append(thread)
            thread.begin()

    def _make(self, index: int, rounds: int, guard: Guard) -> HostActor:
        entropy = np.random.SeedSequence([self.config.seed, index, rounds])
        return make_actor(self.config, guard.protect(self.envs), index, entropy)

    def publish(self, actor: Actor | None, step: int) -> None:
        self._parameters.publish(actor, step)

    def next(self) -> Rollout:
        actor = self._running[self._turn % self.actors]
        self._turn += 1
        return actor.next()

    def new_counts(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        running, self._running = self._running, []
        for actor in running:
            actor.stop()
        with contextlib.ExitStack() as stack:  # ends the others too if one cannot be ended
            for actor in reversed(running):
                stack.callback(actor.finish)
