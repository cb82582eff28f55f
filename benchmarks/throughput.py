"""Compare the speed of the default training with the bare environment and with a matrix product.

python benchmarks/throughput.py --json throughput.json
"""

import resource
import time
from collections.abc import Callable
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
from byol_explore.runtime.anakin import ActorState, Anakin
from byol_explore.runtime.base import shard_map_envs
from byol_explore.runtime.make import make_runtime, resolve_devices
from byol_explore.types import Action, Array
from byol_explore.utils.packages import enable_compilation_cache

SIZE = 2048  # side of the matrices


@dataclass(frozen=True)
class Arguments:
    """Measure the default training."""

    preset: str = "grid"
    """Preset to measure."""
    seconds: float = 30.0
    """Seconds of training; the comparisons take at most as long."""
    json: Path | None = None
    """File to write the figures to."""


def mean_seconds(function: Callable[[], Any], seconds: float) -> tuple[float, int]:
    """Return mean seconds per call, after a first call that compiles, and the number of calls."""
    jax.block_until_ready(function())
    calls, began = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - began < seconds:
        jax.block_until_ready(function())
        calls += 1
    return (time.perf_counter() - began) / calls, calls


def gemm_rate(runtime: Anakin, seconds: float) -> float:
    """Return FLOP/s of a product of matrices of side `SIZE` on all devices at once."""
    matrices = jnp.ones((runtime.mesh.size, SIZE, SIZE))
    product = jax.jit(shard_map_envs(lambda x: x @ x, runtime.mesh, (0,), 0))
    each, _ = mean_seconds(lambda: product(matrices), seconds)
    return 2.0 * SIZE**3 * runtime.mesh.size / each


def bare_env_rate(runtime: Anakin, actor: ActorState, seconds: float) -> float:
    """Return steps/s of the same environments on the same devices with random actions, without an agent."""
    length, spec = 128, runtime.envs.spec

    def run(state: ActorState) -> tuple[Any, Array]:
        def step(carry: tuple[Any, Array], _: None) -> tuple[tuple[Any, Array], Array]:
            envs, key = carry
            key, act_key = jax.random.split(key)
            count = runtime.envs.num_envs
            choices = [jax.random.randint(act_key, (count,), 0, n) for n in spec.action.discrete]
            action = Action(jnp.stack(choices, axis=-1), jnp.zeros((count, spec.action.continuous)))
            envs, timestep = runtime.envs.step(envs, action)
            return (envs, key), timestep.reward

        (envs, _), rewards = jax.lax.scan(step, (state.envs, state.key[0]), length=length)
        return envs, jnp.sum(rewards)[None]

    bare = jax.jit(shard_map_envs(run, runtime.mesh, (0,), (0, 0)))
    each, _ = mean_seconds(lambda: bare(actor), seconds)
    return runtime.config.runtime.num_envs * length / each


def training(runtime: Anakin, seconds: float) -> tuple[list[float], float]:
    """Return the seconds of each dispatch, and the FLOPs of one."""
    state = runtime.init(0)
    flops = count_flops(runtime._act_and_learn, state)
    state, _ = runtime.dispatch(state)
    times: list[float] = []
    while sum(times) < seconds:
        began = time.perf_counter()
        state, output = runtime.dispatch(state)
        jax.block_until_ready((state, output))
        times.append(time.perf_counter() - began)
    return times, flops


def measure(arguments: Arguments) -> dict[str, float]:
    enable_compilation_cache()
    config = resolve_devices(byol_explore.make_config(arguments.preset).validate())
    runtime = make_runtime(config, byol_explore.make_envs(config.env_ids))
    times, flops = training(runtime, arguments.seconds)
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bare = bare_env_rate(runtime, runtime.init(0).actor, min(5.0, arguments.seconds))
    gemm = gemm_rate(runtime, min(3.0, arguments.seconds))
    steps, mean = config.steps_per_dispatch, float(np.mean(times))
    half = len(times) // 2
    return {
        "devices": runtime.mesh.size,
        "steps_per_second": steps / mean,
        "flops_per_step": flops / steps,
        "gflops": flops / mean / 1e9,
        "gemm_gflops": gemm / 1e9,
        "flop_share_of_gemm": flops / mean / gemm,
        "bare_env_steps_per_second": bare,
        "share_of_bare_env": steps / mean / bare,
        "late_over_early_cost": float(np.mean(times[half:]) / np.mean(times[:half])) if half else 1.0,
        "peak_rss_bytes": peak_rss,
    }


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"default training, preset {arguments.preset}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
