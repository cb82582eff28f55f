"""Ray actors as a source of sequences: whoever has some is learned from next, and whoever dies is replaced."""

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.guarding import LOOK
from byol_explore.errors import UserError
from byol_explore.networks.assembly import Actor
from byol_explore.registries import ENVIRONMENTS
from byol_explore.runtime.cluster.connecting import Connection, cpus
from byol_explore.runtime.cluster.crew import Crew, Member
from byol_explore.runtime.cluster.engine import RayEngine
from byol_explore.runtime.cluster.joining import Order
from byol_explore.runtime.cluster.merging import merge
from byol_explore.runtime.cluster.published import Published
from byol_explore.runtime.cluster.rays import RayError, ray
from byol_explore.runtime.cluster.workers import ActingWorker
from byol_explore.runtime.host_actor import Rollout
from byol_explore.settings.config import Config

_FAREWELL = 5.0  # seconds in which actors end their environments by themselves
_ROUNDS = 10  # of all environments, that a sequence may be old if nothing else is said


class RayActors:
    """Actors with policies of their own, in processes on one machine or many.

    Each is asked for as many rollouts ahead as a thread's queue would hold, so its lag has the same bound while all
    are equally fast. In lock step one is asked after the other.
    """

    servers = 0  # beside the actors

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        for name in config.env_ids:
            if name in ENVIRONMENTS.added():
                raise UserError(f"env {name!r} is registered in this process alone: Ray actors need its import path")
        self.config, self._spec, self._store = config, spec, _bytes_ahead(config, spec)
        self._connection: Connection | None = None
        self._crew: Crew | None = None
        self._parts: deque[Rollout] = deque()  # that were delivered
        self._counts: Counter[str] = Counter()
        self._remarked: set[str] = set()
        self._published = Published(ray.put)
        self._step = self._first_step = self._rounds = self._given = self._turn = 0
        self.waited = 0.0

    @property
    def actors(self) -> int:
        return self.config.runtime.actors

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        """Everybody is started at once; the first that joins begins."""
        runtime = self.config.runtime
        self._connection = Connection(runtime.address, self.actors, self._store)
        needed = self.actors + self.servers
        if cpus() < needed:
            server = " and the inference server one" if self.servers else ""
            raise UserError(
                f"runtime.actors {self.actors} need a CPU each{server}, and the Ray cluster has {cpus():g}: add nodes "
                "with `ray start`, declare more with its --num-cpus, or take fewer actors"
            )
        self._rounds, self._first_step = rounds, step
        self.publish(actor, step)
        self._crew = Crew(RayEngine(self._make), self.actors, runtime.step_timeout)

    def _make(self, index: int, attempt: int) -> Any:
        return ActingWorker.options(scheduling_strategy="SPREAD").remote(self._order(index, attempt))

    def _order(self, number: int, attempt: int) -> Order:
        return Order(self.config, number, self._rounds, attempt, self._spec, tuple(sys.path))

    def publish(self, actor: Actor | None, step: int) -> None:
        self._step = step
        if self._published.offer(None if actor is None else jax.device_get(actor), step):
            self._tell_everybody()

    def _tell_everybody(self) -> None:
        """Of new parameters, if they may come at any time."""
        for member in self._crew.members if self._crew is not None else ():
            if member.acts and not self.config.runtime.deterministic:
                member.worker.receive.remote(*self._newest)

    @property
    def _newest(self) -> tuple[int, list[Any], int]:
        return self._published.version, self._published.references, self._published.step

    def next(self) -> Rollout:
        size = self.config.runtime.envs_per_rollout
        while True:
            self._drop_old()
            if sum(len(part.envs) for part in self._parts) >= size:
                return self._give(size)
            self._publish_again()
            if self._published.references and (self._published.are_newest or not self.config.runtime.deterministic):
                self._ask()
            self._collect()

    def _publish_again(self) -> None:
        """Parameters that Ray had no room for."""
        if self._published.try_again():
            self._tell_everybody()
        self._published.check()

    def _collect(self) -> None:
        """What has been delivered, after a moment at most."""
        assert self._crew is not None
        for _, (rollout, idle) in self._crew.look(LOOK):
            self._parts.append(rollout)
            self.waited += 0.0 if self.config.runtime.deterministic else idle

    def _ask(self) -> None:
        """Everybody for as many rollouts as may wait; in lock step the one whose turn it is, for one."""
        assert self._crew is not None
        acting = [member for member in self._crew.members if member.acts]
        if not self.config.runtime.deterministic:
            for member in acting:
                self._ask_for(member, 1 + self.config.runtime.queue_size)
            return
        able = [member for member in self._crew.members if not member.is_given_up]
        if able and not any(member.asked for member in able):
            member = able[self._turn % len(able)]
            if member.acts:
                self._ask_for(member, 1)
                self._turn += 1

    def _ask_for(self, member: Member, rollouts: int) -> None:
        while len(member.asked) < rollouts:
            member.asked.append(member.worker.rollout.remote(*self._newest))

    def _drop_old(self) -> None:
        kept = deque(part for part in self._parts if self._step - part.pulled_at <= self._max_lag)
        self._counts["sequences_dropped"] += sum(len(part.envs) for part in self._parts)
        self._counts["sequences_dropped"] -= sum(len(part.envs) for part in kept)
        self._parts = kept

    @property
    def _max_lag(self) -> float:
        """Learner steps."""
        runtime = self.config.runtime
        if runtime.max_lag is not None:
            return runtime.max_lag
        if not self._given:
            return np.inf
        of_rollout = (self._step - self._first_step) / self._given
        return _ROUNDS * of_rollout * runtime.num_envs / runtime.envs_per_rollout

    def _give(self, size: int) -> Rollout:
        parts: list[Rollout] = []
        while sum(len(part.envs) for part in parts) < size:
            parts.append(self._parts.popleft())
        self._given += 1
        rollout = merge(parts)
        new = [remark for remark in rollout.remarks if _subject(remark) not in self._remarked]
        self._remarked.update(map(_subject, new))
        return rollout._replace(remarks=tuple(new))

    def new_counts(self) -> Mapping[str, int]:
        """Since it was last asked; all of them, also those that are 0."""
        for part in (self._crew, self._published):
            if part is not None:
                self._counts, part.counts = self._counts + part.counts, Counter()
        counts, self._counts = self._counts, Counter()
        return {name: counts[name] for name in COUNTS}

    def close(self) -> None:
        """End all actors, and the cluster if it is our own."""
        crew, self._crew = self._crew, None
        connection, self._connection = self._connection, None
        self._published, self._turn, self._given = Published(ray.put), 0, 0
        self._parts.clear()
        try:
            if crew is not None:
                say_farewell(crew)
                crew.close()
        finally:
            if connection is not None:
                connection.close()


COUNTS = ("actor_faults", "actor_restarts", "actors_given_up", "sequences_dropped", "parameters_refused")


def say_farewell(crew: Crew) -> None:
    """Let those that act end their environments."""
    with contextlib.suppress(RayError):
        told = [member.worker.close.remote() for member in crew.members if member.acts]
        if told:
            ray.wait(told, num_returns=len(told), timeout=_FAREWELL)


def _subject(remark: str) -> str:
    """A remark without the step at which it was made."""
    return remark.rpartition(" (")[0]


def _bytes_ahead(config: Config, spec: EnvSpec) -> int:
    """Of all sequences that may be on their way at once, with as much again for what surrounds observations."""
    kinds = spec.observation.values() if isinstance(spec.observation, dict) else [spec.observation]
    observation = sum(kind.size * kind.dtype.itemsize for kind in kinds)
    runtime = config.runtime
    return 2 * observation * runtime.sequence_length * runtime.num_envs * (runtime.queue_size + 2)
