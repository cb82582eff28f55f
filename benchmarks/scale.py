"""Throughput of acting with Ray relative to the ideal: sleeping environments, growing numbers of actors, both kinds of
inference.

python benchmarks/scale.py --json scale.json

Only the comparison with threads learns: it trains Atari for the same time with both backends.
"""

import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from figures import show
from sebulba import training
from sleep_env import SIZE

import byol_explore
from byol_explore.config.config import Config
from byol_explore.config.sections import LogConfig, NetworkConfig, RuntimeConfig
from byol_explore.runtime.make import make_runtime, make_training_envs, resolve_devices
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.utils.packages import enable_compilation_cache, require_extra

NETWORK = NetworkConfig(
    encoder="block_mean_encoder:BlockMeanEncoder", embedding_size=64, belief_size=64, policy_hidden=(64,),
    value_hidden=(64,), predictor_hidden=(64,), center_encoders=False,
)  # fmt: skip
FEW = (8, 8)  # actors, environments per actor: as many environments as 64 actors have, in fewer processes
MANY = (50, 8)  # 400 environments as in the paper


@dataclass(frozen=True)
class Arguments:
    """Measure acting with Ray."""

    actors: tuple[int, ...] = (4, 16, 64)
    """Numbers of actors with one environment each, measured in turn."""
    few: tuple[int, int] = FEW
    """Numbers of actors, and of environments per actor."""
    many: tuple[int, int] = MANY
    """The same, larger."""
    milliseconds: float = 20.0
    """Time of an environment step."""
    length: int = 33
    """T, observations per sequence."""
    seconds: float = 30.0
    """Seconds per measurement, counted from the first sequence of the last actor."""
    preset: str = "atari-small"
    """Preset that both backends train at the end; empty to skip."""
    json: Path | None = None
    """File to write the figures to."""


def config_for(arguments: Arguments, inference: str, actors: int, envs: int) -> Config:
    runtime = RuntimeConfig(
        num_actors=actors, envs_per_actor=envs, batch_size=envs, sequence_length=arguments.length, num_devices=1,
        rounds_per_dispatch=1, actor_backend="ray", inference=inference, max_policy_lag=10**9,
    )  # fmt: skip
    return dataclasses.replace(
        byol_explore.make_config(env="sleep_env:SleepEnv"),
        env_kwargs=(f"milliseconds={arguments.milliseconds}",), network=NETWORK, runtime=runtime,
        log=LogConfig(evaluate_every=0),
    ).validate()  # fmt: skip


def measure_acting(arguments: Arguments, inference: str, actors: int, envs: int) -> dict[str, float]:
    """Measure steps/s of all actors, and their share of the rate of the sleeping environments alone."""
    config = config_for(arguments, inference, actors, envs)
    runtime: Any = make_runtime(config, make_training_envs(config))
    source = runtime.source
    try:
        source.start(runtime.init_learner(0).target_actor, 0, 0)
        started: set[int] = set()
        while len(started) < actors:
            started.add(int(source.next().env_ids[0]))
        before = source.server_stats() if inference == "central" else None
        began, steps, seconds = time.perf_counter(), 0, 0.0
        while time.perf_counter() - began < arguments.seconds:
            rollout = source.next()
            steps, seconds = steps + rollout.episodes.ended.size, seconds + rollout.act_seconds
        rate = steps / (time.perf_counter() - began)
        ideal = actors * envs * 1000 / arguments.milliseconds
        figures = {"steps_per_second": rate, "efficiency": rate / ideal, "act_seconds_per_step": seconds / steps}
        return figures | (_requests(before, source.server_stats(), envs) if before is not None else {})
    finally:
        runtime.close()


def _requests(before: Any, after: Any, envs: int) -> dict[str, float]:
    """Return batch size, latency and bytes per step of the inference server between two readings."""
    steps = max(after.steps - before.steps, envs)
    moved = after.received - before.received + after.sent - before.sent
    waits = after.waits[-(steps // envs) :]  # without those of compilation
    acted = np.cumsum(after.batches[::-1])
    batches = after.batches[::-1][: int(np.searchsorted(acted, steps)) + 1]
    return {
        "batch": float(np.mean(batches)),
        "request_p50_seconds": float(np.quantile(waits, 0.5)),
        "request_p99_seconds": float(np.quantile(waits, 0.99)),
        "bytes_per_step": moved / steps,
    }


def compare_with_threads(arguments: Arguments) -> dict[str, float]:
    """Measure steps/s of training Atari with both backends."""
    config = byol_explore.make_config(arguments.preset).validate()
    config = dataclasses.replace(config, log=dataclasses.replace(config.log, evaluate_every=0))
    rates = {}
    for backend in ("threads", "ray"):
        changed = resolve_devices(
            dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, actor_backend=backend))
        )
        runtime = make_runtime(changed, make_training_envs(changed))
        assert isinstance(runtime, Sebulba)
        print(f"{arguments.preset} with backend {backend}, {arguments.seconds:.0f} s", flush=True)
        rates[backend] = training(changed, runtime, arguments.seconds)["training_steps_per_second"]
    return {
        **{f"{backend}_atari_steps_per_second": rate for backend, rate in rates.items()},
        "ray_over_threads_atari": rates["ray"] / rates["threads"],
    }


def measure(arguments: Arguments) -> dict[str, Any]:
    with require_extra("benchmarks/scale.py"):
        import ray  # noqa: F401
    enable_compilation_cache()
    figures: dict[str, Any] = {}
    rows: dict[tuple[str, int, int], dict[str, float]] = {}
    for actors, envs in (*((count, 1) for count in arguments.actors), arguments.few, arguments.many):
        for inference in ("central", "local"):
            print(f"{actors} actors with {envs} environments each, inference {inference}", flush=True)
            row = rows[inference, actors, envs] = measure_acting(arguments, inference, actors, envs)
            figures |= {f"{inference}_{actors}x{envs}_{name}": value for name, value in row.items()}
    for actors in arguments.actors:
        figures[f"efficiency_at_{actors}"] = max(rows[kind, actors, 1]["efficiency"] for kind in ("central", "local"))
    figures["efficiency_of_few"] = max(rows[kind, *arguments.few]["efficiency"] for kind in ("central", "local"))
    largest = max(arguments.actors)
    central, local = rows["central", largest, 1], rows["local", largest, 1]
    figures["central_over_local"] = central["steps_per_second"] / local["steps_per_second"]
    figures["bytes_per_step_over_observation"] = central["bytes_per_step"] / SIZE**2
    server_seconds = rows["central", *arguments.many]["act_seconds_per_step"]
    figures["predicted_steps_per_second_of_400_actors"] = min(400 * 1000 / arguments.milliseconds, 1 / server_seconds)
    return figures | (compare_with_threads(arguments) if arguments.preset else {})


def main(arguments: Arguments) -> None:
    sys.path.append(str(Path(__file__).parent))  # so that actors can import sleep_env
    show(measure(arguments), "acting with Ray", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
