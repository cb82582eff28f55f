"""An actor with a policy of its own, in a process that Ray has started."""

import time
from functools import partial

import jax
import numpy as np

from byol_explore.envs.guarding import Guard
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.cluster.joining import Order, environments_for
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.runtime.sources import ActorThread, Parameters, make_actor


class Acting:
    """The same thread as beside a learner, asked from afar for one rollout after the other."""

    def __init__(self, order: Order) -> None:
        enable_compilation_cache()
        self._device = jax.devices()[0]
        self._parameters, self._step = Parameters([self._device]), -1
        guard = Guard(order.config.runtime.step_timeout)
        self._thread = ActorThread(
            partial(_make, order), guard, self._parameters, self._device, capacity=1, in_lock_step=True
        )
        self._free_since = time.perf_counter()
        self._thread.begin()

    def receive(self, parameters: Actor | None, step: int) -> None:
        """Parameters of the learner's step, unless newer ones are here already; without any, what step it is."""
        if step >= self._step:
            self._parameters.publish(parameters, step)
            self._step = step

    def rollout(self) -> tuple[Rollout, float]:
        """The next sequences, and the seconds since the last ones were done."""
        idle = time.perf_counter() - self._free_since
        rollout = self._thread.next()
        self._free_since = time.perf_counter()
        return rollout, idle

    def close(self) -> None:
        self._thread.stop()
        self._thread.finish()


def _make(order: Order, guard: Guard) -> HostActor:
    envs = guard.protect(environments_for(order))
    return make_actor(order.config, envs, order.number, np.random.SeedSequence(order.entropy))
