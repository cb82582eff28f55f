"""Actors outside jit, learner on its devices (Sebulba)."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from byol_explore.envs.guarding import guarded
from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.tasks import count_tasks
from byol_explore.errors import EnvironmentFailure
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch, LearnerState, UpdateOutput
from byol_explore.runtime.base import (
    AXIS,
    SHARED_OUT,
    WHOLE,
    DispatchOutput,
    Episodes,
    Steps,
    at_hand,
    put,
    share,
    stack,
    strongly_typed,
)
from byol_explore.runtime.first_look import look_outside
from byol_explore.runtime.host_actor import Rollout
from byol_explore.runtime.learning import cut, over_environments
from byol_explore.runtime.processes import ALONE, Processes
from byol_explore.runtime.sources import LocalActors, Source
from byol_explore.settings.config import Config
from byol_explore.types import Array, Device, PyTree, Trajectory


class SebulbaState(NamedTuple):
    """What a checkpoint holds; environments outside jit cannot be saved and start new episodes."""

    learner: LearnerState
    rounds: Array  # [] sequences that every environment has delivered


class Told(NamedTuple):
    """What is told of the steps of a rollout, beside what the learner gets."""

    task: np.ndarray  # [T-1, E]
    episodes: Episodes  # [T-1, E]
    places: np.ndarray  # [T-1, E, P]
    reached: np.ndarray | None  # [T-1, E, S]


class Sebulba:
    """The runtime of environments outside jit. Sequences come from a source: actors of this process by default.

    Processes that learn together each have actors of their own, with an equal share of the environments: the n-th
    rollouts of all are one rollout, of which each process gives its devices what its actors have seen.
    """

    def __init__(
        self, config: Config, envs: Sequence[HostEnvironment], learners: Sequence[Device] | None = None,
        actors: Sequence[Device] | None = None, source: Source | None = None, processes: Processes = ALONE,
    ) -> None:  # fmt: skip
        learners = jax.devices()[:1] if learners is None else learners
        self.config, self.envs, self.processes = config, envs, processes
        self.mesh = Mesh(np.asarray(learners), (AXIS,))
        if source is None:
            own = [device for device in learners if device.process_index == processes.index]
            source = LocalActors(share_of(config, processes), envs, actors or own[:1])
        self.source: Source = source
        of_rollout = config.runtime.envs_per_rollout
        self.rollouts = config.runtime.num_envs // of_rollout  # of all environments once
        self.learner = Learner(
            config, envs[0].spec, count_tasks(envs), envs=of_rollout, in_turn=config.runtime.deterministic
        )
        self._whole = NamedSharding(self.mesh, share(WHOLE))
        self.batch_sharding = jax.tree.map(lambda axis: NamedSharding(self.mesh, share(axis)), SHARED_OUT)
        self._init = jax.jit(self.learner.init)
        self._update = jax.jit(self.learner.update, donate_argnums=0, out_shardings=(self._whole, self._whole))
        self._prepare = jax.jit(
            self.learner.prepare, donate_argnums=0, out_shardings=(self._whole, None, self._whole)
        )  # fmt: skip
        self._cut = jax.jit(partial(cut, self.learner))
        self._step: int | None = None  # of the learner; None before the source has started
        self._version = 0  # refreshes of the policy that acts
        self._failure: EnvironmentFailure | None = None  # that ended the last dispatch

    def init(self, seed: int, *, restored: bool = False) -> SebulbaState:
        return self.place(self.fresh(seed, restored=restored))

    def fresh(self, seed: int, *, restored: bool = False) -> SebulbaState:
        return SebulbaState(self.init_learner(seed, restored=restored), jnp.zeros((), jnp.int32))

    def place(self, state: SebulbaState) -> SebulbaState:
        return put(state, self._whole)

    def gathered(self, state: SebulbaState) -> SebulbaState:
        """As it is: it is the same on all devices."""
        return state

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        look = self.config.network.center and not restored
        limit = self.config.runtime.step_timeout
        observation = guarded(self.envs, limit, lambda envs: look_outside(envs, seed)) if look else None
        return jax.tree.map(strongly_typed, self._init(jax.random.key(seed), observation))

    def dispatch(self, state: SebulbaState) -> tuple[SebulbaState, DispatchOutput]:
        """Learn from as many rollouts as a dispatch has, in the order in which they come."""
        if self._step is None:
            self._start(state)
        began, waited = time.perf_counter(), self.source.waited
        learner, wait = state.learner, 0.0
        rollouts, updates, rewards = [], [], []
        for rollout, seconds in self._rollouts():
            wait += seconds
            learner, outputs, reward = self._learn(learner, rollout)
            rollouts.append(rollout._replace(trajectory=rollout.trajectory.task[1:]))
            updates.extend(outputs)
            rewards.append(reward)
        rounds = state.rounds + -(-len(rollouts) // self.rollouts)
        (metrics, finite), rewards = stack(jax.device_get(updates)), jax.device_get(rewards)
        load = self._load(rollouts, time.perf_counter() - began, wait, self.source.waited - waited)
        said = self.processes.everybody([load, [remark for rollout in rollouts for remark in rollout.remarks]])
        load = {name: np.asarray([np.mean([each[name] for each, _ in said])], np.float32) for name in load}
        remarks = tuple(remark for _, each in said for remark in each)
        steps = [self._told(each, reward) for each, reward in zip(rollouts, rewards, strict=True)]
        output = DispatchOutput(metrics | load, finite, steps, remarks, self.source.new_counts())
        return SebulbaState(learner, rounds), output

    def _start(self, state: SebulbaState) -> None:
        """Have all actors begin; what keeps them from it is raised where rollouts are asked for."""
        self._step = int(state.learner.step)
        self._version = self._step // self.learner.acting_period
        try:
            self.source.start(at_hand(state.learner.acting), self._step, int(state.rounds))
        except EnvironmentFailure as failure:
            self._failure = failure

    def _rollouts(self) -> Iterator[tuple[Rollout, float]]:
        """Those of a dispatch, with the seconds that each was waited for.

        When an environment fails, what has been learned before is not lost: the dispatch is a short one, and the next
        one raises.
        """
        for number in range(self.config.runtime.rollouts_per_dispatch * self.rollouts):
            asked = time.perf_counter()
            try:
                rollout = self._next()
            except EnvironmentFailure as failure:
                self._failure = failure
                if number == 0:
                    raise
                return
            yield rollout, time.perf_counter() - asked

    def _next(self) -> Rollout:
        """The next rollout, when every process has one: a failure of one is a failure of all."""
        rollout, failure = None, self._failure
        if failure is None:
            try:
                rollout = self.source.next()
            except EnvironmentFailure as error:
                failure = error
        said = self.processes.everybody([failure and str(failure), rollout and rollout.pulled_at])
        if failure is not None or rollout is None:
            raise failure or AssertionError
        for process, (message, _) in enumerate(said):
            if message is not None:
                raise EnvironmentFailure(f"process {process}: {message}")
        return rollout._replace(pulled_at=np.mean([pulled_at for _, pulled_at in said]))

    def _told(self, rollout: Rollout, rewards: list[np.ndarray]) -> Steps:
        """The steps of a rollout, those of all processes side by side."""
        first = self.processes.index * self.config.runtime.num_envs // self.processes.count
        task: Any = rollout.trajectory  # all that is kept of it
        timed = Told(task, rollout.episodes, rollout.places, rollout.reached)
        envs, timed = self.processes.gather((rollout.envs + first, timed))
        task, episodes, places, reached = jax.tree.map(lambda x: np.concatenate(x, axis=1), timed)
        parts = [np.split(reward, self.processes.count, axis=1) for reward in rewards]  # each batch is of all of them
        reward = np.concatenate([part for process in zip(*parts, strict=True) for part in process], axis=1)
        return Steps(np.concatenate(envs), task, episodes, places, reward, reached)

    def _load(self, rollouts: list[Rollout], seconds: float, learner: float, actors: float) -> dict[str, float]:
        """Where the time went, as shares: the side that waits little is the bottleneck."""
        whole = seconds * self.source.actors
        shares = {
            "learner_wait": learner / seconds,
            "actor_wait": actors / whole,
            "actor_env": sum(rollout.env_seconds for rollout in rollouts) / whole,
            "actor_inference": sum(rollout.act_seconds for rollout in rollouts) / whole,
        }
        return {name: min(value, 1.0) for name, value in shares.items()}

    def _learn(self, learner: LearnerState, rollout: Rollout) -> tuple[LearnerState, list[PyTree], list[Array]]:
        """All updates from a rollout, and the intrinsic rewards of its environments; new parameters are published."""
        assert self._step is not None
        lag = {"policy_lag": np.float32(self._step - rollout.pulled_at)}
        learner, batches, judged = self._batches(learner, rollout.trajectory)
        updates, rewards = [], []
        for batch in batches:
            learner, output = self._update(learner, batch)
            metrics, finite = output.metrics | lag, output.finite
            if judged is None:
                rewards.append(output.intrinsic_reward)
            else:
                metrics, finite = judged.metrics | metrics, jnp.concatenate([judged.finite, finite])
            updates.append((metrics, finite))
            self._step += 1
            self.source.publish(None, self._step)
        version = self._step // self.learner.acting_period
        if version != self._version:
            self._version = version
            self.source.publish(at_hand(learner.acting), self._step)
        return learner, updates, rewards if judged is None else [judged.intrinsic_reward]

    def _batches(
        self, learner: LearnerState, trajectory: Trajectory
    ) -> tuple[LearnerState, Iterator[Batch], UpdateOutput | None]:
        """The batches of a rollout, each on its devices when it is asked for, and what was judged of all of them."""
        if not self.learner.algorithm.judges_rollouts:
            parts = split(trajectory, self.config.runtime.batch_size // self.processes.count)
            return learner, (Batch(self._on_devices(part)) for part in parts), None
        learner, batch, judged = self._prepare(learner, self._on_devices(trajectory))
        batches = self._cut(learner, batch)
        parts = (jax.tree.map(lambda x, i=i: x[i], batches) for i in range(self.learner.updates))
        return learner, parts, judged

    def _on_devices(self, part: Trajectory) -> Trajectory:
        """Sequences of this process, on its devices: its part of those of all processes."""
        if self.processes.count == 1:
            return jax.device_put(part, self.batch_sharding)

        def put_own(x: np.ndarray, axis: int) -> Array:
            return jax.make_array_from_process_local_data(NamedSharding(self.mesh, share(axis)), x)

        return over_environments(put_own, Batch(part)).trajectory

    def close(self) -> None:
        """Stop all actors and end their environments."""
        self._step = self._failure = None
        self.source.close()


def share_of(config: Config, processes: Processes) -> Config:
    """The part of the environments that is a process's own, which play other episodes than those of all others."""
    if processes.count == 1:
        return config
    runtime = dataclasses.replace(config.runtime, num_envs=config.runtime.num_envs // processes.count)
    seed = int(np.random.SeedSequence([config.seed, processes.index]).generate_state(1)[0])
    return dataclasses.replace(config, seed=seed, runtime=runtime)


def split(trajectory: Trajectory, size: int) -> list[Trajectory]:
    """Consecutive environments as learner batches."""

    def part(first: int) -> Trajectory:
        timed = jax.tree.map(lambda x: x[:, first : first + size], trajectory._replace(memory=None))
        return timed._replace(memory=jax.tree.map(lambda x: x[first : first + size], trajectory.memory))

    return [part(first) for first in range(0, trajectory.is_first.shape[1], size)]
