"""Learn on several devices of one process, or in one process per device. The tests compare the two.

python learning_together.py <process> <processes> <port> <file> <cases>      process 0 writes the results
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from builders import (
    BATCH,
    SMALL_STEPS,
    TIME,
    leaves_with_names,
    make,
    make_spec,
    make_trajectory,
    permute_environments,
    shaken,
    small_config,
    update_of,
)
from byol_explore.agent.learner import Learner, map_env_axis
from byol_explore.config.config import Config
from byol_explore.config.sections import DistributedConfig, RuntimeConfig
from byol_explore.envs.registry import make_envs
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import AXIS, REPLICATED, EpisodeStats, partition_spec, put_global
from byol_explore.runtime.distributed import ProcessGroup, join_process_group
from byol_explore.runtime.rollouts import Rollout
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.types import Trajectory
from byol_explore.utils.processes import exit_when_stdin_closes
from host_worlds import LOADS

HALVES = 2
ENVS = 2 * HALVES * BATCH  # of the runtime outside jit: two batches of a half from each process


def concatenate_envs(parts: list[Trajectory]) -> Trajectory:
    return map_env_axis(lambda axis, *arrays: np.concatenate(arrays, axis), *parts)


def one_batch(processes: ProcessGroup) -> dict[str, np.ndarray]:
    """Perform an update on a batch with a part on each device.

    The best advantages all lie in the first half, so a top half per part would differ.
    """
    count = len(jax.devices())
    spec = make_spec("vector", "hybrid")
    learner = Learner(small_config(), spec, 1)
    state = make(learner.init)
    state = state._replace(target_actor=shaken(state.target_actor, seed=5))
    parts = [make_trajectory(spec, state.target_actor, 3 + number) for number in range(count)]
    best = [part._replace(reward=part.reward + 10.0) for part in parts[: count // 2]]
    batch = concatenate_envs([*best, *parts[count // 2 :]])
    mesh = Mesh(np.asarray(jax.devices()), (AXIS,))
    sharded = map_env_axis(lambda axis, x: put_global(x, NamedSharding(mesh, partition_spec(axis))), batch)
    whole = NamedSharding(mesh, partition_spec(REPLICATED))
    update = jax.jit(update_of(learner).__wrapped__, out_shardings=whole)
    return leaves_with_names(jax.device_get(update(put_global(state, whole), sharded)))


def inside_jit(processes: ProcessGroup) -> dict[str, np.ndarray]:
    """Dispatch twice. Returns the whole state and the outputs for all environments."""
    from runs import tiny  # which imports all of a run

    config = without_centering(tiny(devices=len(jax.devices()), optimizer=SMALL_STEPS))
    anakin = Anakin(config, make_envs(config.env_ids), jax.devices())
    state, outputs = anakin.init(0), []
    for _ in range(2):
        state, output = anakin.dispatch(state)
        outputs.append((output.metrics, output.finite.flags, output.rollouts))
    learner, actor = anakin.gather(state)
    actor = actor._replace(key=jax.random.key_data(actor.key), envs=jax.tree.map(_plain, actor.envs))
    return leaves_with_names((*jax.device_get((learner, actor)), outputs))


def _plain(x: Any) -> Any:
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


class FixedRollouts:
    """A source of fixed rollouts: each of two processes gets half of the environments that one process gets."""

    actors, idle_seconds = 1, 0.0

    def __init__(self, processes: ProcessGroup) -> None:
        self.processes, self.number = processes, 0

    def start(self, actor: Any, step: int, rounds: int) -> None:
        self.actor = jax.tree.map(np.array, actor)

    def publish(self, actor: Any, step: int) -> None: ...

    def next(self) -> Rollout:
        self.number += 1
        spec = make_spec("vector")
        parts = [make_trajectory(spec, self.actor, 10 * self.number + seed) for seed in range(4)]
        trajectory, envs = jax.device_get(concatenate_envs(parts)), np.arange(ENVS)
        if self.processes.count > 1:
            own = np.split(envs, 2)[self.processes.index]
            trajectory, envs = permute_environments(trajectory, own.tolist()), np.arange(ENVS // 2)
        ended = np.asarray(trajectory.is_first)[1:]
        episodes = EpisodeStats(ended, trajectory.reward, ended.astype(np.int32), ended.astype(np.int8))
        places = np.asarray(trajectory.action.discrete)
        return Rollout(envs, trajectory, episodes, places, 0, 0.5, 0.25, (f"warning {self.number}",))

    def pop_counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None: ...


def host_config(algorithm: str) -> Config:
    runtime = RuntimeConfig(num_envs=ENVS, batch_size=ENVS // 2, sequence_length=TIME, rounds_per_dispatch=2)
    config = dataclasses.replace(small_config(), algorithm=algorithm, runtime=runtime, optimizer=SMALL_STEPS)
    return without_centering(config)


def without_centering(config: Config) -> Config:
    """Skip centring, which would take most of the compilation time."""
    return dataclasses.replace(config, network=dataclasses.replace(config.network, center_encoders=False))


class World:
    """An environment that only gives shapes: rollouts come from `FixedRollouts`."""

    spec = make_spec("vector")

    def batch(self, num_envs: int, seed: int) -> Any: ...


def outside_jit(processes: ProcessGroup, algorithm: str = "v-mpo") -> dict[str, np.ndarray]:
    """Dispatch fixed rollouts. Returns the state, and the outputs for all environments in their order."""
    source = FixedRollouts(processes)
    runtime = Sebulba(host_config(algorithm), [World()], jax.devices()[:2], source=source, processes=processes)
    state, output = runtime.dispatch(runtime.init(0))
    steps = []
    for each in output.rollouts:
        order = np.argsort(each.env_ids)
        timed = (each.task_ids, each.episodes, each.positions, each.intrinsic_reward)
        steps.append((each.env_ids[order], jax.tree.map(lambda x, order=order: x[:, order], timed)))
    metrics = {name: value for name, value in output.metrics.items() if name not in LOADS}
    return leaves_with_names((jax.device_get(state), metrics, output.finite.flags, steps))


def ppo_outside_jit(processes: ProcessGroup) -> dict[str, np.ndarray]:
    """Draw minibatches from the environments of all processes."""
    return outside_jit(processes, "ppo")


def broadcast(processes: ProcessGroup) -> dict[str, np.ndarray]:
    """Broadcast arrays and keys that only process 0 has. Returns their bits in all processes, [processes, ...]."""
    odd = np.asarray([0x7FC12345, 0xFFC00001, 0x80000000, 0x7F800000], np.uint32).view(np.float32)  # NaNs, -0, infinity
    tree = {
        "odd": jnp.asarray(odd), "flag": jnp.asarray(True), "count": jnp.asarray([-7, 2**31 - 1], jnp.int32),
        "empty": jnp.zeros((0, 3)), "key": jax.random.split(jax.random.key(5), 3),
    }  # fmt: skip
    if processes.index > 0:
        blank = {name: jnp.zeros_like(x) for name, x in tree.items() if name != "key"}
        tree = blank | {"key": jax.random.split(jax.random.key(0), 3)}
    received = processes.broadcast(tree)
    received["key"] = jax.random.key_data(received["key"])
    received["odd"] = np.asarray(received["odd"]).view(np.uint32)
    return leaves_with_names(processes.all_gather_arrays(received))


CASES = {
    "broadcast": broadcast, "one-batch": one_batch, "inside-jit": inside_jit, "outside-jit": outside_jit,
    "ppo-outside-jit": ppo_outside_jit,
}  # fmt: skip


def main(process: int, count: int, port: int, path: Path, cases: list[str]) -> None:
    with join_process_group(
        DistributedConfig(f"127.0.0.1:{port}", count, process, initialization_timeout=240, heartbeat_timeout=60)
    ) as processes:
        assert jax.process_count() == count
        results = {f"{name}/{key}": x for name in cases for key, x in CASES[name](processes).items()}
        if process == 0:
            np.savez(path, **results)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    exit_when_stdin_closes()
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]), sys.argv[5].split(","))
