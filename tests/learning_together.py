"""What is learned by several devices: of one process, or of as many that have one each. The tests compare the two.

python learning_together.py <process> <processes> <port> <file> <lessons>      the first writes what came out
"""

import dataclasses
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from builders import (
    BATCH,
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
from byol_explore.cli.attached import end_with_the_other_end
from byol_explore.envs.registry import make_envs
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.base import AXIS, WHOLE, Episodes, put, share
from byol_explore.runtime.host_actor import Rollout
from byol_explore.runtime.learning import over_environments
from byol_explore.runtime.processes import Processes, joined
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.settings.config import Config
from byol_explore.settings.parts import DistributedConfig, RuntimeConfig
from byol_explore.types import Trajectory

HALVES = 2
ENVS = 2 * HALVES * BATCH  # of the runtime outside jit: two batches of a half from each process


def side_by_side(parts: list[Trajectory]) -> Trajectory:
    timed = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *[part._replace(memory=None) for part in parts])
    return timed._replace(memory=jax.tree.map(lambda *x: np.concatenate(x), *[part.memory for part in parts]))


def one_batch(processes: Processes) -> dict[str, np.ndarray]:
    """An update from a batch with a part on each device.

    The best advantages all lie in the first half: a top half for each part would be another.
    """
    count = len(jax.devices())
    spec = make_spec("vector", "hybrid")
    learner = Learner(small_config(), spec, 1)
    state = make(learner.init)
    state = state._replace(acting=shaken(state.acting, seed=5))
    parts = [make_trajectory(spec, state.acting, 3 + number) for number in range(count)]
    best = [part._replace(reward=part.reward + 10.0) for part in parts[: count // 2]]
    batch = side_by_side([*best, *parts[count // 2 :]])
    mesh = Mesh(np.asarray(jax.devices()), (AXIS,))
    spread = over_environments(lambda x, axis: put(x, NamedSharding(mesh, share(axis))), Batch(batch)).trajectory
    whole = NamedSharding(mesh, share(WHOLE))
    update = jax.jit(update_of(learner).__wrapped__, out_shardings=whole)
    return leaves_with_names(jax.device_get(update(put(state, whole), spread)))


def inside_jit(processes: Processes) -> dict[str, np.ndarray]:
    """Two dispatches: the whole state, and what was told of all environments."""
    from runs import tiny  # which imports all of a run

    config = without_centering(tiny(devices=len(jax.devices())))
    anakin = Anakin(config, make_envs(config.env_ids), jax.devices())
    state, outputs = anakin.init(0), []
    for _ in range(2):
        state, output = anakin.dispatch(state)
        outputs.append((output.metrics, output.finite, output.steps))
    learner, actor = anakin.gathered(state)
    actor = actor._replace(key=jax.random.key_data(actor.key), envs=jax.tree.map(_plain, actor.envs))
    return leaves_with_names((*jax.device_get((learner, actor)), outputs))


def _plain(x: Any) -> Any:
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


class Given:
    """Rollouts that were made before; those of two processes are halves of those of one.

    Where batches are cut one after the other, those of two processes have a part of each half: the environments of one
    process stand in that order then.
    """

    actors, waited = 1, 0.0

    def __init__(self, processes: Processes, *, in_turn: bool = True) -> None:
        self.processes, self.in_turn, self.number = processes, in_turn, 0

    def start(self, actor: Any, step: int, rounds: int) -> None:
        self.actor = jax.tree.map(np.array, actor)

    def publish(self, actor: Any, step: int) -> None: ...

    def next(self) -> Rollout:
        self.number += 1
        spec = make_spec("vector")
        parts = [make_trajectory(spec, self.actor, 10 * self.number + seed) for seed in range(4)]
        trajectory, envs = jax.device_get(side_by_side(parts)), np.arange(ENVS)
        if self.processes.count == 1:
            order = envs.reshape(2, 2, BATCH).swapaxes(0, 1).reshape(-1) if self.in_turn else envs
            trajectory, envs = permute_environments(trajectory, order.tolist()), order
        else:
            own = np.split(envs, 2)[self.processes.index]
            trajectory, envs = permute_environments(trajectory, own.tolist()), np.arange(ENVS // 2)
        ended = np.asarray(trajectory.is_first)[1:]
        episodes = Episodes(ended, trajectory.reward, ended.astype(np.int32), ended.astype(np.int8))
        places = np.asarray(trajectory.action.discrete)
        return Rollout(envs, trajectory, episodes, places, 0, 0.5, 0.25, (f"remark {self.number}",))

    def close(self) -> None: ...


def host_config(algorithm: str) -> Config:
    runtime = RuntimeConfig(num_envs=ENVS, batch_size=ENVS // 2, sequence_length=TIME, rollouts_per_dispatch=2)
    return without_centering(dataclasses.replace(small_config(), algorithm=algorithm, runtime=runtime))


def without_centering(config: Config) -> Config:
    """Which would be most of what there is to compile."""
    return dataclasses.replace(config, network=dataclasses.replace(config.network, center=False))


class World:
    """Of which only the shapes matter: its rollouts are given."""

    spec = make_spec("vector")

    def batch(self, num_envs: int, seed: int) -> Any: ...


def outside_jit(processes: Processes, algorithm: str = "v-mpo") -> dict[str, np.ndarray]:
    """A dispatch from given rollouts: what was learned, and what was told of all environments in their order."""
    source = Given(processes, in_turn=algorithm == "v-mpo")
    runtime = Sebulba(host_config(algorithm), [World()], jax.devices()[:2], source=source, processes=processes)
    state, output = runtime.dispatch(runtime.init(0))
    steps = []
    for each in output.steps:
        order = np.argsort(each.envs)
        timed = (each.task, each.episodes, each.places, each.intrinsic_reward)
        steps.append((each.envs[order], jax.tree.map(lambda x, order=order: x[:, order], timed)))
    metrics = {name: value for name, value in output.metrics.items() if "wait" not in name and "actor_" not in name}
    return leaves_with_names((jax.device_get(state), metrics, output.finite, steps))


def ppo_outside_jit(processes: Processes) -> dict[str, np.ndarray]:
    """With batches that are drawn from the environments of all."""
    return outside_jit(processes, "ppo")


LESSONS = {
    "one-batch": one_batch, "inside-jit": inside_jit, "outside-jit": outside_jit, "ppo-outside-jit": ppo_outside_jit
}  # fmt: skip


def main(process: int, count: int, port: int, path: Path, lessons: list[str]) -> None:
    with joined(DistributedConfig(f"127.0.0.1:{port}", count, process, start_timeout=240, timeout=60)) as processes:
        assert jax.process_count() == count
        learned = {f"{name}/{key}": x for name in lessons for key, x in LESSONS[name](processes).items()}
        if process == 0:
            np.savez(path, **learned)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    threading.Thread(target=end_with_the_other_end, daemon=True).start()
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]), sys.argv[5].split(","))
