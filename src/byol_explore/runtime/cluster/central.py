"""Ray actors that only step environments, and the inference server that acts for them."""

import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.guarding import LOOK
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.cluster.crew import Crew
from byol_explore.runtime.cluster.engine import RayEngine
from byol_explore.runtime.cluster.rays import ray
from byol_explore.runtime.cluster.source import COUNTS, RayActors, say_farewell
from byol_explore.runtime.cluster.workers import ServingWorker, SteppingWorker
from byol_explore.settings.config import Config

_AHEAD = 2  # times that the server is asked for sequences at once


class CentralActors(RayActors):
    """The server is a crew of one: when it dies another one is started, and actors turn to that, with new episodes."""

    servers = 1

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self._token = secrets.token_hex(16)
        self._server: Crew | None = None
        self._told = 0  # the learner's step, as the server knows it

    def start(self, actor: Actor, step: int, rounds: int) -> None:
        super().start(actor, step, rounds)
        self._server = Crew(RayEngine(self._make_server), 1, self.config.runtime.step_timeout, what="inference server")

    def _make(self, index: int, attempt: int) -> Any:
        return SteppingWorker.options(scheduling_strategy="SPREAD").remote(self._order(index, attempt))

    def _make_server(self, index: int, attempt: int) -> Any:
        """Beside the learner, so that sequences go on to it in memory that both share."""
        here = ray.get_runtime_context().get_node_id()
        beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
        options = {"scheduling_strategy": beside, "num_gpus": self.config.runtime.actor_devices}
        return ServingWorker.options(**options).remote(self._order(self.actors, attempt), self._token)

    def _tell_everybody(self) -> None:
        if self._server is not None and self._server.members[0].acts:
            self._server.members[0].worker.receive.remote(self._published.references, self._published.step)

    def publish(self, actor: Actor | None, step: int) -> None:
        super().publish(actor, step)
        current = self._published.step
        if actor is None and self._server is not None and self._server.members[0].acts and current > self._told:
            self._server.members[0].worker.receive.remote([], current)
            self._told = current

    def _ask(self) -> None:
        """The server for sequences; actors to play as it says, wherever it is now."""
        assert self._crew is not None
        assert self._server is not None
        [server] = self._server.members
        if server.joined is None:
            return
        if not server.asked and server.joined is not self._known:
            self._known = server.joined
            server.worker.receive.remote(self._published.references, self._published.step)
        while len(server.asked) < _AHEAD:
            server.asked.append(server.worker.take.remote(LOOK))
        for member in self._crew.members:
            if member.acts and not member.asked:
                member.asked.append(member.worker.play.remote(server.joined.address, self._token))

    _known: Any = None  # the server that has been told of the parameters

    def _collect(self) -> None:
        assert self._crew is not None
        assert self._server is not None
        for _, rollouts in self._server.look(LOOK):
            for rollout in rollouts:
                self._parts.append(rollout)
                self._crew.members[int(rollout.envs[0]) // len(rollout.envs)].failures = 0
        for _ in self._crew.look(0.0, delivers=False):
            pass  # who has lost the server is asked again

    def new_counts(self) -> Mapping[str, int]:
        counts = dict(super().new_counts())
        mishaps: Counter[str] = Counter()
        if self._server is not None:
            mishaps, self._server.counts = self._server.counts, Counter()
        names = {"server_faults": "actor_faults", "server_restarts": "actor_restarts"}
        return counts | {name: mishaps[theirs] for name, theirs in names.items()}

    def statistics(self) -> Any:
        """Of the server's requests, for a benchmark."""
        assert self._server is not None
        return ray.get(self._server.members[0].worker.statistics.remote())

    def close(self) -> None:
        server, self._server, self._known = self._server, None, None
        if server is not None:
            say_farewell(server)
            server.close()
        super().close()


CENTRAL_COUNTS = (*COUNTS, "server_faults", "server_restarts")
