"""A few learner steps of a preset for environments outside jit: time, memory, and FLOPs from which to predict more.

python benchmarks/learner_step.py --preset atari --steps 3 --json learner_step.json
"""

import dataclasses
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro
from figures import show
from flops import count_flops

import byol_explore
from byol_explore.agent import act
from byol_explore.compilation import enable_compilation_cache
from byol_explore.networks import cpu
from byol_explore.runtime.host_actor import HostActor
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.training import make_runtime, resolve_devices


@dataclass(frozen=True)
class Arguments:
    """Run and count learner steps, with one batch of environments."""

    preset: str = "atari"
    """Settings to measure."""
    steps: int = 3
    """Learner steps after the first, which compiles."""
    json: Path | None = None
    """Also write the figures here."""


def measure(arguments: Arguments) -> dict[str, float]:
    enable_compilation_cache()
    config = byol_explore.make_config(arguments.preset)
    runtime_config = dataclasses.replace(config.runtime, num_envs=config.runtime.batch_size, actors=1)
    config = resolve_devices(dataclasses.replace(config, runtime=runtime_config).validate())
    envs = byol_explore.make_envs(config.env_ids, config.atari)
    runtime = make_runtime(config, envs)
    assert isinstance(runtime, Sebulba)
    learner = runtime.init(0).learner
    actor = HostActor(envs, config.runtime.num_envs, config.runtime.sequence_length, jax.random.key(0), seed=0)
    print("acting for one batch", flush=True)
    batch = actor.rollout(learner.acting).trajectory
    memory = actor._memory
    with cpu.plain_layers():  # counts nothing that the CPU's form computes twice
        step_flops = count_flops(runtime.learner.update, learner, batch)
        act_flops = count_flops(act, learner.acting, memory, actor._timestep, jax.random.key(0))
    actor.close()
    batch = jax.device_put(batch, runtime.batch_sharding)
    times = []
    for step in range(arguments.steps + 1):
        began = time.perf_counter()
        learner, metrics, finite = jax.block_until_ready(runtime._update(learner, batch))
        times.append(time.perf_counter() - began)
        print(f"learner step {step}: {times[-1]:.1f} s, loss {float(metrics['loss']):.3f}", flush=True)
        assert np.all(finite)
    frames = config.steps_per_rollout
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(learner.online)),
        "agent_steps_per_learner_step": frames,
        "game_frames_per_learner_step": frames * config.atari.action_repeat,
        "learner_tflops_per_learner_step": step_flops / 1e12,
        "learner_mflops_per_agent_step": step_flops / frames / 1e6,
        "acting_mflops_per_agent_step": act_flops / config.runtime.num_envs / 1e6,
        "seconds_per_learner_step": float(np.median(times[1:])),
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"learner steps, preset {arguments.preset}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
