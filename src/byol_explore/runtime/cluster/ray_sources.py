"""Both Ray sources of rollouts: actors with policies of their own, and actors with an inference server.

Stale rollouts are dropped: an actor that was restarted, suspended or cut off may deliver rollouts that much older
parameters have acted. Failed workers are restarted by `ActorPool`; the rollouts of the others go on meanwhile.
"""

import contextlib
import secrets
import sys
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from byol_explore.config.config import Config
from byol_explore.envs.interface import EnvSpec
from byol_explore.envs.watchdog import POLL_SECONDS
from byol_explore.errors import UserError
from byol_explore.networks.representation import Actor
from byol_explore.registry import ENVIRONMENTS
from byol_explore.runtime.cluster.actor_pool import ActorPool, Slot
from byol_explore.runtime.cluster.messages import ActorSpec
from byol_explore.runtime.cluster.ray_client import (
    PublishedParameters,
    RayBackend,
    RayConnection,
    RayError,
    cluster_cpus,
    ray,
)
from byol_explore.runtime.cluster.workers import ActingWorker, ServingWorker, SteppingWorker
from byol_explore.runtime.rollouts import Rollout, merge_rollouts

COUNTERS = ("actor_faults", "actor_restarts", "actors_abandoned", "sequences_dropped", "publish_failures")
CENTRAL_COUNTERS = (*COUNTERS, "server_faults", "server_restarts")

_CLOSE_SECONDS = 5.0  # for workers to close their environments before they are killed
_MAX_LAG_ROUNDS = 10  # default age limit of a rollout, in rounds of all environments
_SERVER_CALLS = 2  # pending requests for rollouts at the inference server


class RayActors:
    """Actors with policies of their own, in processes on one machine or many.

    Each has as many requests ahead as the queue of an actor thread holds rollouts, so its lag has the same bound while
    all actors are equally fast. With `runtime.synchronous` one request is pending at a time, and actors take turns.
    """

    num_servers = 0  # beside the actors

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        for name in config.env_ids:
            if name in ENVIRONMENTS.local_names():
                raise UserError(f"env {name!r} is registered in this process alone: Ray actors need its import path")
        self.config, self._spec = config, spec
        self._connection: RayConnection | None = None
        self._pool: ActorPool | None = None
        self._parts: deque[Rollout] = deque()  # delivered by actors, not yet returned
        self._counts: Counter[str] = Counter()
        self._reported: set[str] = set()  # warnings, without their steps
        self._published = PublishedParameters(ray.put)
        self._step = self._first_step = self._rounds = self._returned = self._turn = 0
        self.idle_seconds = 0.0

    @property
    def actors(self) -> int:
        return self.config.runtime.num_actors

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        """Start all actors; the first ones that join begin to act."""
        runtime = self.config.runtime
        self._connection = RayConnection(runtime.ray_address, self.actors, _store_bytes(self.config, self._spec))
        if (cpus := cluster_cpus()) < self.actors + self.num_servers:
            server = " and the inference server one" if self.num_servers else ""
            raise UserError(
                f"runtime.num_actors {self.actors} need a CPU each{server}, and the Ray cluster has {cpus:g}: add "
                "nodes with `ray start`, declare more with its --num-cpus, or take fewer actors"
            )
        self._rounds, self._first_step = rounds, step
        self.publish(actor, step)
        self._pool = ActorPool(RayBackend(self._make_worker), self.actors, runtime.step_timeout)

    def _make_worker(self, index: int, attempt: int) -> Any:
        return ActingWorker.options(scheduling_strategy="SPREAD").remote(self._actor_spec(index, attempt))

    def _actor_spec(self, index: int, attempt: int) -> ActorSpec:
        return ActorSpec(self.config, index, self._rounds, attempt, self._spec, tuple(sys.path))

    def publish(self, actor: Actor | None, step: int) -> None:
        self._step = step
        if self._published.publish(None if actor is None else jax.device_get(actor), step):
            self._send_parameters()

    def _send_parameters(self) -> None:
        """Send new parameters to actors that have joined; synchronous actors get them with requests instead."""
        for slot in self._pool.slots if self._pool is not None else ():
            if slot.is_ready and not self.config.runtime.synchronous:
                slot.worker.receive.remote(*self._newest)

    @property
    def _newest(self) -> tuple[int, list[Any], int]:
        return self._published.version, self._published.references, self._published.step

    def next(self) -> Rollout:
        size = self.config.runtime.envs_per_rollout
        while True:
            self._drop_stale()
            if sum(len(part.env_ids) for part in self._parts) >= size:
                return self._take(size)
            if self._published.retry():
                self._send_parameters()
            self._published.check()
            if self._published.references and (self._published.is_current or not self.config.runtime.synchronous):
                self._request()
            self._receive()

    def _receive(self) -> None:
        """Collect rollouts that arrive within POLL_SECONDS."""
        assert self._pool is not None
        for _, (rollout, idle) in self._pool.poll(POLL_SECONDS):
            self._parts.append(rollout)
            self.idle_seconds += 0.0 if self.config.runtime.synchronous else idle

    def _request(self) -> None:
        """Request as many rollouts of each actor as may wait; if synchronous one, of the next actor."""
        assert self._pool is not None
        if not self.config.runtime.synchronous:
            for slot in self._pool.slots:
                if slot.is_ready:
                    self._request_rollouts(slot, 1 + self.config.runtime.queue_size)
            return
        slots = [slot for slot in self._pool.slots if not slot.is_abandoned]
        if slots and not any(slot.pending for slot in slots):
            slot = slots[self._turn % len(slots)]
            if slot.is_ready:
                self._request_rollouts(slot, 1)
                self._turn += 1

    def _request_rollouts(self, slot: Slot, count: int) -> None:
        while len(slot.pending) < count:
            slot.pending.append(slot.worker.rollout.remote(*self._newest))

    def _drop_stale(self) -> None:
        stale = [part for part in self._parts if self._step - part.params_step > self._max_lag]
        if stale:
            self._counts["sequences_dropped"] += sum(len(part.env_ids) for part in stale)
            self._parts = deque(part for part in self._parts if self._step - part.params_step <= self._max_lag)

    @property
    def _max_lag(self) -> float:
        """Age limit of rollouts in learner steps."""
        runtime = self.config.runtime
        if runtime.max_policy_lag is not None:
            return runtime.max_policy_lag
        if not self._returned:
            return np.inf
        steps_per_rollout = (self._step - self._first_step) / self._returned
        return _MAX_LAG_ROUNDS * steps_per_rollout * runtime.num_envs / runtime.envs_per_rollout

    def _take(self, size: int) -> Rollout:
        """Return a rollout of `size` environments, with the warnings that were not reported yet."""
        parts: list[Rollout] = []
        while sum(len(part.env_ids) for part in parts) < size:
            parts.append(self._parts.popleft())
        self._returned += 1
        rollout = merge_rollouts(parts)
        warnings = [text for text in rollout.warnings if _without_step(text) not in self._reported]
        self._reported.update(map(_without_step, warnings))
        return rollout._replace(warnings=tuple(warnings))

    def pop_counters(self) -> Mapping[str, int]:
        counts, self._counts = self._counts, Counter()
        for part in (self._pool, self._published):
            if part is not None:
                counts, part.counts = counts + part.counts, Counter()
        return {name: counts[name] for name in COUNTERS}

    def close(self) -> None:
        """End all actors, and the cluster if it is private."""
        pool, self._pool = self._pool, None
        connection, self._connection = self._connection, None
        self._published, self._turn, self._returned = PublishedParameters(ray.put), 0, 0
        self._parts.clear()
        with contextlib.ExitStack() as stack:  # ends the cluster too if closing the workers raises
            if connection is not None:
                stack.callback(connection.close)
            if pool is not None:
                _close_pool(pool)


def _close_pool(pool: ActorPool) -> None:
    """Let workers close their environments, then kill them."""
    with contextlib.suppress(RayError):
        closing = [slot.worker.close.remote() for slot in pool.slots if slot.is_ready]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
    pool.close()


def _without_step(warning: str) -> str:
    """Remove the step at which a warning occurred."""
    return warning.rpartition(" (")[0]


def _store_bytes(config: Config, spec: EnvSpec) -> int:
    """Return the bytes of an object store for all rollouts in transit: twice the size of their observations."""
    spaces = spec.observation.values() if isinstance(spec.observation, dict) else [spec.observation]
    observation = sum(space.size * space.dtype.itemsize for space in spaces)
    runtime = config.runtime
    return 2 * observation * runtime.sequence_length * runtime.num_envs * (runtime.queue_size + 2)


class CentralInferenceActors(RayActors):
    """Actors that only step environments, and an inference server that acts for them.

    The server is a pool of one worker. When it fails, another one is started, and actors connect to that with new
    episodes.
    """

    num_servers = 1

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self._token = secrets.token_hex(16)
        self._server: ActorPool | None = None
        self._server_step = 0  # last learner step that was sent to the server
        self._informed: Any = None  # join reply of the server that has received the parameters

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        super().start(actor, step, rounds)
        self._server = ActorPool(
            RayBackend(self._make_server), 1, self.config.runtime.step_timeout, worker_name="inference server"
        )

    def _make_worker(self, index: int, attempt: int) -> Any:
        return SteppingWorker.options(scheduling_strategy="SPREAD").remote(self._actor_spec(index, attempt))

    def _make_server(self, index: int, attempt: int) -> Any:
        # On the learner's node: rollouts then reach the learner through shared memory.
        node = ray.get_runtime_context().get_node_id()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        options = {"scheduling_strategy": strategy, "num_gpus": self.config.runtime.num_actor_devices}
        return ServingWorker.options(**options).remote(self._actor_spec(self.actors, attempt), self._token)

    @property
    def _ready_server(self) -> Slot | None:
        """The server, if it has joined."""
        slot = self._server.slots[0] if self._server is not None else None
        return slot if slot is not None and slot.is_ready else None

    def _send_parameters(self) -> None:
        if server := self._ready_server:
            server.worker.receive.remote(self._published.references, self._published.step)

    def publish(self, actor: Actor | None, step: int) -> None:
        super().publish(actor, step)
        current = self._published.step
        if actor is None and current > self._server_step and (server := self._ready_server):
            server.worker.receive.remote([], current)
            self._server_step = current

    def _request(self) -> None:
        """Request rollouts from the server, and connect actors to its current address."""
        assert self._pool is not None
        server = self._ready_server
        if server is None or server.join_reply is None:
            return
        if not server.pending and server.join_reply is not self._informed:
            self._informed = server.join_reply
            self._send_parameters()
        while len(server.pending) < _SERVER_CALLS:
            server.pending.append(server.worker.take.remote(POLL_SECONDS))
        for slot in self._pool.slots:
            if slot.is_ready and not slot.pending:
                slot.pending.append(slot.worker.play.remote(server.join_reply.address, self._token))

    def _receive(self) -> None:
        assert self._pool is not None
        assert self._server is not None
        for _, rollouts in self._server.poll(POLL_SECONDS):
            for rollout in rollouts:
                self._parts.append(rollout)
                self._pool.slots[int(rollout.env_ids[0]) // len(rollout.env_ids)].failures = 0
        # `play` returns when the server is gone, which is no sign of health: rollouts alone reset failures.
        for _ in self._pool.poll(0.0, resets_failures=False):
            pass

    def pop_counters(self) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        if self._server is not None:
            counts, self._server.counts = self._server.counts, Counter()
        server = {"server_faults": counts["actor_faults"], "server_restarts": counts["actor_restarts"]}
        return {**super().pop_counters(), **server}

    def server_stats(self) -> Any:
        """Return the server's `ServerStats`, for benchmarks."""
        assert self._server is not None
        return ray.get(self._server.slots[0].worker.statistics.remote())

    def close(self) -> None:
        server, self._server, self._informed = self._server, None, None
        if server is not None:
            _close_pool(server)
        super().close()
