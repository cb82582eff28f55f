"""Count FLOPs of a preset's learner step, and measure time and memory of a few steps.

python benchmarks/learner_step.py --preset atari --steps 3 --json learner_step.json
python benchmarks/learner_step.py --preset hard-eight --steps 2
python benchmarks/learner_step.py --preset atari-big --steps 0     # only counts, within seconds
"""

import dataclasses
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from figures import show
from flops import count_flops

import byol_explore
from byol_explore.agent.acting import select_action
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch
from byol_explore.config.config import Config
from byol_explore.envs.interface import HostEnvironment, count_tasks
from byol_explore.networks import cpu_kernels
from byol_explore.networks.representation import Actor
from byol_explore.runtime.make import make_runtime, resolve_devices
from byol_explore.runtime.rollouts import HostActor
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.types import PyTree, TimeStep, Trajectory
from byol_explore.utils.packages import enable_compilation_cache


@dataclass(frozen=True)
class Arguments:
    """Count and run learner steps with one batch of environments."""

    preset: str = "atari"
    """Settings to measure."""
    steps: int = 3
    """Learner steps after the first, which compiles; 0 to count only."""
    json: Path | None = None
    """File to write the figures to."""


def with_axis(size: int, tree: PyTree) -> PyTree:
    """Return ShapeDtypeStructs with a new leading axis."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape), x.dtype), tree)


def count(config: Config, envs: list[Any]) -> dict[str, float]:
    """Count parameters and FLOPs from shapes, without compiling or stepping."""
    spec, size, length = envs[0].spec, config.runtime.batch_size, config.runtime.sequence_length
    learner, key = Learner(config, spec, count_tasks(envs)), jax.random.key(0)
    with cpu_kernels.disable_cpu_kernels():  # they recompute convolutions, which must not count
        state = jax.eval_shape(learner.init, key)
        number, flag = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool_)
        timestep = with_axis(size, TimeStep(spec.observation, number, number, flag, flag, flag))  # pyright: ignore
        recurrent_state = jax.eval_shape(lambda: learner.init(key).target_actor.initial_state(spec, size))
        _, policy, action = jax.eval_shape(select_action, state.target_actor, recurrent_state, timestep, key)
        observation, is_first = with_axis(length, (timestep.observation, timestep.is_first))
        transitions = with_axis(length - 1, (action, timestep.reward, timestep.discount, policy))
        task = jax.ShapeDtypeStruct((length, size), jnp.int32)
        batch: Any = Trajectory(observation, is_first, *transitions, task_id=task, initial_state=recurrent_state)  # pyright: ignore
        step_flops = count_flops(learner.update, state, Batch(batch))
        act_flops = count_flops(select_action, state.target_actor, recurrent_state, timestep, key)
    frames = config.steps_per_round
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.online)),
        "agent_steps_per_learner_step": frames,
        **_game_frames(config, frames),
        "learner_tflops_per_learner_step": step_flops / 1e12,
        "learner_mflops_per_agent_step": step_flops / frames / 1e6,
        "acting_mflops_per_agent_step": act_flops / size / 1e6,
        "exaflops_of_the_whole_run": config.steps * (step_flops / frames + act_flops / size) / 1e18,
    }


def _game_frames(config: Config, steps: int) -> dict[str, float]:
    """Return the game frames per learner step, for Atari only."""
    if not all(name.startswith("atari:") for name in config.env_ids):
        return {}
    return {"game_frames_per_learner_step": steps * config.atari.action_repeat}


def host_batch(runtime: Sebulba, config: Config, envs: list[HostEnvironment], actor: Actor) -> Trajectory:
    acting = HostActor(envs, config.runtime.num_envs, config.runtime.sequence_length, jax.random.key(0), seed=0)
    try:
        return runtime.shard_trajectory(acting.rollout(actor).trajectory)
    finally:
        acting.close()


def run(config: Config, envs: list[Any], steps: int) -> dict[str, float]:
    """Measure seconds of acting and of learning per learner step, and peak memory."""
    runtime = make_runtime(config, envs)
    state: Any = runtime.init(0)
    learner, update = state.learner, jax.jit(runtime.learner.update, donate_argnums=0)
    print("acting for one batch", flush=True)
    if isinstance(runtime, Sebulba):
        began = time.perf_counter()
        batch = host_batch(runtime, config, envs, learner.target_actor)
    else:
        roll = jax.jit(runtime.rollout).lower(learner.target_actor, state.actor).compile()
        began = time.perf_counter()
        batch = jax.block_until_ready(roll(learner.target_actor, state.actor))[1]
    acted, times = time.perf_counter() - began, []
    for step in range(steps + 1):
        began = time.perf_counter()
        learner, output = jax.block_until_ready(update(learner, Batch(batch)))
        times.append(time.perf_counter() - began)
        print(f"learner step {step}: {times[-1]:.1f} s, loss {float(output.metrics['loss']):.3f}", flush=True)
        assert np.all(output.finite)
    return {
        "seconds_of_acting_per_learner_step": acted,
        "seconds_per_learner_step": float(np.median(times[1:])),
        "agent_steps_per_second": config.steps_per_round / (acted + float(np.median(times[1:]))),
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def measure(arguments: Arguments) -> dict[str, float]:
    enable_compilation_cache()
    config = byol_explore.make_config(arguments.preset)
    runtime_config = dataclasses.replace(config.runtime, num_envs=config.runtime.batch_size, num_actors=1)
    config = resolve_devices(dataclasses.replace(config, runtime=runtime_config).validate())
    envs = byol_explore.make_envs(config.env_ids, config.env_settings)
    figures = count(config, envs)
    return figures if arguments.steps == 0 else {**figures, **run(config, envs, arguments.steps)}


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"learner steps, preset {arguments.preset}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
