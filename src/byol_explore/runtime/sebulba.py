"""Acting and learning side by side, for environments outside jit (Sebulba).

Actors fill rollouts on the host or on devices of their own; the learner takes them from a `RolloutSource`, puts them on
its devices and performs all updates of each. The source decides where actors run: threads of this process
(`actor_threads.py`) or Ray actors (`cluster/ray_sources.py`).

Synchronous (`runtime.synchronous`): acting and learning alternate, because an actor acts only on request; runs are
repeatable. Asynchronous, the default: actors run ahead of the learner by at most the length of their queues, so the
policy that acted is slightly older than the one that learns (`policy_lag`).
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from byol_explore.agent.learner import Learner, map_env_axis
from byol_explore.agent.state import LearnerState, UpdateOutput
from byol_explore.config.config import Config
from byol_explore.envs.interface import HostEnvironment, count_tasks
from byol_explore.envs.watchdog import run_watched
from byol_explore.errors import EnvironmentFailure
from byol_explore.networks.centering import warmup_observations_host
from byol_explore.runtime.actor_threads import RolloutSource, ThreadActors
from byol_explore.runtime.base import (
    AXIS,
    REPLICATED,
    DispatchOutput,
    RolloutStats,
    Runtime,
    drop_weak_types,
    local_copy,
    partition_spec,
    put_global,
    stack_trees,
)
from byol_explore.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from byol_explore.runtime.rollouts import Rollout
from byol_explore.types import AnyArray, Array, Device, Trajectory


class SebulbaState(NamedTuple):
    """State of a run outside jit. It has no environments: they start new episodes when the run is resumed."""

    learner: LearnerState
    rollouts_per_env: Array  # [] that every environment has delivered; part of the seed of a resumed run


class Sebulba(Runtime):
    """Runtime of environments outside jit.

    With several processes each has actors of its own, with an equal share of the environments. The n-th rollouts of all
    processes are one rollout, of which each process puts its part on its devices.

    Args:
      config: configuration of the run.
      envs: environments of the tasks.
      learners: devices that learn, of all processes; None for the first one.
      actors: devices that act; None for the first learning device of this process.
      source: where rollouts come from; None for actor threads.
      processes: the processes that learn together.
    """

    def __init__(
        self, config: Config, envs: Sequence[HostEnvironment], learners: Sequence[Device] | None = None,
        actors: Sequence[Device] | None = None, source: RolloutSource | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> None:  # fmt: skip
        learners = jax.devices()[:1] if learners is None else learners
        self.config, self.envs, self.processes = config, envs, processes
        self.mesh = Mesh(np.asarray(learners), (AXIS,))
        if source is None:
            own = [device for device in learners if device.process_index == processes.index]
            source = ThreadActors(process_share(config, processes), envs, actors or own[:1])
        self.source: RolloutSource = source
        size, synchronous = config.runtime.envs_per_rollout, config.runtime.synchronous
        self.rollouts_per_round = config.runtime.num_envs // size  # a round is one rollout of every environment
        self.learner = Learner(config, envs[0].spec, count_tasks(envs), envs=size, synchronous=synchronous)
        self._replicated = whole = NamedSharding(self.mesh, partition_spec(REPLICATED))
        self._init = jax.jit(self.learner.init)
        self._begin = jax.jit(self.learner.begin_rollout, donate_argnums=0, out_shardings=(whole, None, whole))
        self._update = jax.jit(self.learner.update, donate_argnums=0, out_shardings=whole)
        self._end = jax.jit(self.learner.end_rollout, donate_argnums=0, out_shardings=whole)
        # `state.learner.step` on the host, which is known before the device has computed it. None before the start.
        self._step: int | None = None
        self._policy_version = 0  # refreshes of the target policy
        self._failure: EnvironmentFailure | None = None  # to raise in the next dispatch

    def init_on_host(self, seed: int, *, restored: bool = False) -> SebulbaState:
        return SebulbaState(self.init_learner(seed, restored=restored), jnp.zeros((), jnp.int32))

    def shard(self, state: SebulbaState) -> SebulbaState:
        return put_global(state, self._replicated)

    def init_learner(self, seed: int, *, restored: bool = False) -> LearnerState:
        observation = None
        if self.config.network.center_encoders and not restored:
            runtime = self.config.runtime
            observation = run_watched(
                self.envs, runtime.step_timeout, lambda envs: warmup_observations_host(envs, seed),
                max_restarts=runtime.max_env_restarts,
            )  # fmt: skip
        return jax.tree.map(drop_weak_types, self._init(jax.random.key(seed), observation))

    def dispatch(self, state: SebulbaState) -> tuple[SebulbaState, DispatchOutput]:
        """Learn from the rollouts of a dispatch, in the order in which they arrive."""
        if self._step is None:
            self._start(state)
        began, idle_before = time.perf_counter(), self.source.idle_seconds
        learner, waited = state.learner, 0.0
        rollouts, stats, outputs = [], [], []
        for rollout, seconds in self._receive_rollouts():
            learner, *output = self._learn(learner, rollout)
            outputs.append(output)
            waited += seconds
            stats.append(self._own_stats(rollout))
            rollouts.append(rollout._replace(trajectory=None))  # times and warnings; do not hold the observations
        # Only here does the host wait for the devices: updates and the next rollouts overlap until now.
        merged = [self.learner.merge_outputs(prepared, stack_trees(rest)) for prepared, rest in jax.device_get(outputs)]
        metrics, finite = jax.tree.map(
            lambda *xs: np.concatenate(xs), *[(each.metrics, each.finite) for each in merged]
        )
        load = self._load(rollouts, time.perf_counter() - began, waited, self.source.idle_seconds - idle_before)
        texts = [text for each in rollouts for text in each.warnings]
        restarts = sum(each.env_restarts for each in rollouts)
        gathered = self.processes.all_gather_objects([load, texts, restarts])
        load = {name: np.asarray([np.mean([each[name] for each, _, _ in gathered])], np.float32) for name in load}
        warnings = tuple(text for _, texts, _ in gathered for text in texts)
        restarts = sum(count for _, _, count in gathered)
        counters = {**self.source.pop_counters(), **({"env_restarts": restarts} if restarts else {})}
        stats = [self._gather_stats(own, each.intrinsic_reward) for own, each in zip(stats, merged, strict=True)]
        # If a failure ended the dispatch early, its last round counts as complete: its seeds must not be used again.
        rounds = state.rollouts_per_env + -(-len(rollouts) // self.rollouts_per_round)
        output = DispatchOutput(metrics | load, finite, stats, warnings, counters)
        return SebulbaState(learner, rounds), output

    def _start(self, state: SebulbaState) -> None:
        """Start all actors. A failure is raised when rollouts are requested, in all processes."""
        self._step = int(state.learner.step)
        self._policy_version = self._step // self.learner.target_period
        try:
            self.source.start(local_copy(state.learner.target_actor), self._step, int(state.rollouts_per_env))
        except EnvironmentFailure as failure:
            self._failure = failure

    def _receive_rollouts(self) -> Iterator[tuple[Rollout, float]]:
        """Yield the rollouts of a dispatch, with the seconds that the learner waited for each.

        A failure of environments ends the dispatch early, so that what was learned before is not lost. The next
        dispatch raises it.
        """
        for number in range(self.config.runtime.rounds_per_dispatch * self.rollouts_per_round):
            began = time.perf_counter()
            try:
                rollout = self._next()
            except EnvironmentFailure as failure:
                self._failure = failure
                if number == 0:
                    raise
                return
            yield rollout, time.perf_counter() - began

    def _next(self) -> Rollout:
        """Return the next rollout once every process has one. A failure of one process is raised in all."""
        # All must agree before the first collective of an update: a process without a rollout would never join it.
        rollout, failure = None, self._failure
        if failure is None:
            try:
                rollout = self.source.next()
            except EnvironmentFailure as error:
                failure = error
        gathered = self.processes.all_gather_objects([failure and str(failure), rollout and rollout.params_step])
        if failure is not None or rollout is None:
            raise failure or AssertionError
        for process, (message, _) in enumerate(gathered):
            if message is not None:
                raise EnvironmentFailure(f"process {process}: {message}")
        return rollout._replace(params_step=np.mean([params_step for _, params_step in gathered]))

    def _learn(
        self, learner: LearnerState, rollout: Rollout
    ) -> tuple[LearnerState, UpdateOutput | None, list[UpdateOutput]]:
        """Perform all updates of a rollout, and publish the learner step and new parameters.

        Returns:
          The state, the output of targets that are computed once per rollout, and those of all updates.
        """
        assert self._step is not None
        lag = {"policy_lag": np.float32(self._step - rollout.params_step)}
        trajectory = self.shard_trajectory(rollout.trajectory)
        learner, batches, prepared = self._begin(learner, trajectory)
        outputs = []
        # A loop on the host instead of a scan, because every learner step is published to actors and servers.
        for index in range(self.learner.updates_per_rollout):
            learner, output = self._update(learner, jax.tree.map(lambda x, i=index: x[i], batches))
            outputs.append(output._replace(metrics=output.metrics | lag))
            self._step += 1
            self.source.publish(None, self._step)
        learner = self._end(learner, trajectory)
        version = self._step // self.learner.target_period
        if version != self._policy_version:  # publish the acting policy when it has changed, and only then
            self._policy_version = version
            self.source.publish(local_copy(learner.target_actor), self._step)
        return learner, prepared, outputs

    def shard_trajectory(self, trajectory: Trajectory) -> Trajectory:
        """Put this process's part of a trajectory [T, E] on its learning devices, sharded over environments."""

        def put(axis: int, x: AnyArray) -> Array:
            return jax.make_array_from_process_local_data(NamedSharding(self.mesh, partition_spec(axis)), x)

        return map_env_axis(put, trajectory)

    def _own_stats(self, rollout: Rollout) -> RolloutStats:
        """Return the statistics of this process's part of a rollout, without rewards."""
        first = self.processes.index * self.config.runtime.num_envs // self.processes.count
        return RolloutStats(
            rollout.env_ids + first, rollout.trajectory.task_id[1:], rollout.episodes, rollout.positions,
            intrinsic_reward=None, stages_reached=rollout.stages_reached,
        )  # fmt: skip

    def _gather_stats(self, own: RolloutStats, reward: Array) -> RolloutStats:
        """Gather rollout statistics of all processes along the env axis; `reward` [T-1, E] is of all already."""
        gathered: RolloutStats = self.processes.all_gather_arrays(own)
        # [processes, E] becomes [E]; [processes, T-1, E, ...] becomes [T-1, E, ...].
        stats = jax.tree.map(lambda x: np.concatenate(x, axis=min(x.ndim - 2, 1)), gathered)
        return stats._replace(intrinsic_reward=np.asarray(reward))

    def _load(
        self, rollouts: list[Rollout], seconds: float, learner_idle: float, actor_idle: float
    ) -> dict[str, float]:
        """Return fractions of a dispatch's time; the side that idles less is the bottleneck."""
        actor_seconds = seconds * self.source.actors
        fractions = {
            "learner_idle_fraction": learner_idle / seconds,
            "actor_idle_fraction": actor_idle / actor_seconds,
            "actor_env_fraction": sum(rollout.env_seconds for rollout in rollouts) / actor_seconds,
            "actor_inference_fraction": sum(rollout.act_seconds for rollout in rollouts) / actor_seconds,
        }
        return {name: min(value, 1.0) for name, value in fractions.items()}

    def close(self) -> None:
        """Stop all actors and end their environments."""
        self._step = self._failure = None
        self.source.close()


def process_share(config: Config, processes: ProcessGroup) -> Config:
    """Configure one process's actors: its share of the environments, and a seed of its own."""
    if processes.count == 1:
        return config
    runtime = dataclasses.replace(config.runtime, num_envs=config.runtime.num_envs // processes.count)
    seed = int(np.random.SeedSequence([config.seed, processes.index]).generate_state(1)[0])
    return dataclasses.replace(config, seed=seed, runtime=runtime)
