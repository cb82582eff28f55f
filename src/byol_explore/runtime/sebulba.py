"""Actors outside jit, learner on its devices (Sebulba): threads push sequences, and pull parameters when they change.

Every actor thread has a queue of its own, which the learner empties in turn: all environments are learned from
equally, and the lag of the acting policy is bounded by the length of the queues.
"""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from byol_explore.config import Config
from byol_explore.envs.host import HostEnvironment
from byol_explore.learner import Batch, Learner, LearnerState, UpdateOutput
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.base import AXIS, SHARED_OUT, WHOLE, DispatchOutput, share, stack, strongly_typed
from byol_explore.runtime.first_look import look_outside
from byol_explore.runtime.host_actor import HostActor, Rollout
from byol_explore.runtime.learning import cut
from byol_explore.types import Array, Device, PyTree, Trajectory

_PATIENCE = 0.2  # seconds between looks at whether the other side still lives


class HostRunState(NamedTuple):
    """What a checkpoint holds; environments outside jit cannot be saved and start new episodes."""

    learner: LearnerState
    rounds: Array  # [] sequences that every environment has delivered


class Parameters:
    """The newest target policy: published by the learner when it changes, pulled by actors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copies: dict[Device, Actor] = {}
        self.version = -1  # refreshes of the target policy
        self.step = 0  # of the learner, now

    def publish(self, actor: Actor, version: int, devices: Sequence[Device]) -> None:
        """Copies, one per acting device: the learner's own are overwritten by its next step."""
        copies = {device: jax.device_put(jax.tree.map(jnp.copy, actor), device) for device in devices}
        with self._lock:
            self._copies, self.version = copies, version

    def pull(self, device: Device) -> tuple[Actor, int]:
        """Parameters on the device, and the learner's step."""
        with self._lock:
            return self._copies[device], self.step


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


class Sebulba:
    """The runtime of environments outside jit."""

    def __init__(
        self, config: Config, envs: Sequence[HostEnvironment], learners: Sequence[Device] | None = None,
        actors: Sequence[Device] | None = None,
    ) -> None:  # fmt: skip
        learners = jax.devices()[:1] if learners is None else learners
        self.config, self.envs = config, envs
        self.mesh = Mesh(np.asarray(learners), (AXIS,))
        self.actor_devices = list(actors or learners[:1])
        share_of_actor = config.runtime.num_envs // config.runtime.actors
        self.learner = Learner(
            config, envs[0].spec, len(envs), envs=share_of_actor, in_turn=config.runtime.deterministic
        )
        self._whole = NamedSharding(self.mesh, share(WHOLE))
        self.batch_sharding = jax.tree.map(lambda axis: NamedSharding(self.mesh, share(axis)), SHARED_OUT)
        self._parameters = Parameters()
        self._actors: list[ActorThread] | list[LockStep] | None = None
        whole = self._whole
        self._init = jax.jit(self.learner.init)
        self._update = jax.jit(self.learner.update, donate_argnums=0, out_shardings=(whole, whole))
        self._prepare = jax.jit(self.learner.prepare, donate_argnums=0)
        self._cut = jax.jit(partial(cut, self.learner))

    def init(self, seed: int, *, restored: bool = False) -> HostRunState:
        learner = self.init_learner(seed, restored=restored)
        return jax.device_put(HostRunState(learner, jnp.zeros((), jnp.int32)), self._whole)

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        look = self.config.network.center and not restored
        observation = look_outside(self.envs, seed) if look else None
        return jax.tree.map(strongly_typed, self._init(jax.random.key(seed), observation))

    def dispatch(self, state: HostRunState) -> tuple[HostRunState, DispatchOutput]:
        """Learn from the next sequences of every actor, batch by batch."""
        if self._actors is None:
            self._actors = self._start(state)
        began, waited = time.perf_counter(), sum(actor.waited for actor in self._actors)
        learner, rollouts, updates, wait = state.learner, [], [], 0.0
        for _ in range(self.config.runtime.rollouts_per_dispatch):
            for actor in self._actors:
                asked = time.perf_counter()
                rollout = actor.next()
                wait += time.perf_counter() - asked
                rollouts.append(rollout._replace(trajectory=None))
                learner = self._learn(learner, rollout, updates)
        rounds = state.rounds + self.config.runtime.rollouts_per_dispatch
        metrics, finite = stack(jax.device_get(updates))
        seconds = time.perf_counter() - began
        metrics |= self._load(rollouts, seconds, wait, sum(actor.waited for actor in self._actors) - waited)
        episodes, places = self._side_by_side([(rollout.episodes, rollout.places) for rollout in rollouts])
        return HostRunState(learner, rounds), DispatchOutput(metrics, finite, episodes, places)

    def _side_by_side(self, parts: list[PyTree]) -> PyTree:
        """[rollouts, T-1, E, ...] of what the actors tell in turn, each [T-1, its environments, ...]."""
        count = self.config.runtime.actors
        rounds = [parts[first : first + count] for first in range(0, len(parts), count)]
        return stack([jax.tree.map(lambda *xs: np.concatenate(xs, axis=1), *each) for each in rounds])

    def _load(self, rollouts: list[Rollout], seconds: float, learner: float, actors: float) -> dict[str, np.ndarray]:
        """Where the time went, as shares: the side that waits little is the bottleneck."""
        assert self._actors is not None
        whole = seconds * len(self._actors)
        shares = {
            "learner_wait": learner / seconds,
            "actor_wait": actors / whole,
            "actor_env": sum(rollout.env_seconds for rollout in rollouts) / whole,
            "actor_inference": sum(rollout.act_seconds for rollout in rollouts) / whole,
        }
        return {name: np.asarray([min(value, 1.0)], np.float32) for name, value in shares.items()}

    def _learn(self, learner: LearnerState, rollout: Rollout, updates: list[PyTree]) -> LearnerState:
        """One update per batch of environments; a changed target policy is published."""
        lag = {"policy_lag": np.float32(self._parameters.step - rollout.pulled_at)}
        learner, batches, judged = self._batches(learner, rollout.trajectory)
        for batch in batches:
            learner, output = self._update(learner, batch)
            if judged is not None:
                finite = jnp.concatenate([judged.finite, output.finite])
                output = UpdateOutput(judged.metrics | output.metrics, finite, judged.intrinsic_reward)
            updates.append((output.metrics | lag, output.finite))
            self._parameters.step += 1
        self._publish(learner)
        return learner

    def _batches(
        self, learner: LearnerState, trajectory: Trajectory
    ) -> tuple[LearnerState, Iterator[Batch], UpdateOutput | None]:
        """The batches of a rollout, each on its devices when it is asked for, and what was judged of all of them."""
        if not self.learner.algorithm.judges_rollouts:
            parts = split(trajectory, self.config.runtime.batch_size)
            return learner, (Batch(jax.device_put(part, self.batch_sharding)) for part in parts), None
        learner, batch, judged = self._prepare(learner, jax.device_put(trajectory, self.batch_sharding))
        batches = self._cut(learner, batch)
        parts = (jax.tree.map(lambda x, i=i: x[i], batches) for i in range(self.learner.updates))
        return learner, parts, judged

    def _publish(self, learner: LearnerState) -> None:
        version = self._parameters.step // self.learner.acting_period
        if version != self._parameters.version:
            self._parameters.publish(learner.acting, version, self.actor_devices)

    def _start(self, state: HostRunState) -> list[ActorThread] | list[LockStep]:
        """Actors, whose seeds are new after every restart."""
        runtime, rounds = self.config.runtime, int(state.rounds)
        self._parameters = Parameters()
        self._parameters.step = int(state.learner.step)
        self._publish(state.learner)
        actors: list[HostActor] = []
        try:
            for index in range(runtime.actors):
                entropy = np.random.SeedSequence([self.config.seed, index, rounds]).generate_state(2)
                key = jax.random.key(int(entropy[0]))
                size = runtime.num_envs // runtime.actors
                actors.append(HostActor(self.envs, size, runtime.sequence_length, key, int(entropy[1])))
        except BaseException:
            for actor in actors:
                actor.close()
            raise
        devices = [self.actor_devices[index % len(self.actor_devices)] for index in range(runtime.actors)]
        if runtime.deterministic:
            return [LockStep(a, self._parameters, d) for a, d in zip(actors, devices, strict=True)]
        threads = [ActorThread(a, self._parameters, d, runtime.queue_size)
                   for a, d in zip(actors, devices, strict=True)]  # fmt: skip
        for thread in threads:
            thread.start()
        return threads

    def close(self) -> None:
        """Stop all actors and end their environments."""
        for actor in self._actors or []:
            actor.stop()
        for actor in self._actors or []:
            actor.finish()
        self._actors = None


def split(trajectory: Trajectory, size: int) -> list[Trajectory]:
    """Consecutive environments as learner batches."""

    def part(first: int) -> Trajectory:
        timed = jax.tree.map(lambda x: x[:, first : first + size], trajectory._replace(memory=None))
        return timed._replace(memory=jax.tree.map(lambda x: x[first : first + size], trajectory.memory))

    return [part(first) for first in range(0, trajectory.is_first.shape[1], size)]
