"""Acting with Ray against the ideal: environments that sleep, more and more actors, both kinds of inference.

python benchmarks/scale.py --json scale.json

Nothing is learned but for the comparison with threads, in which Atari is trained for as long with either engine.
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
from sleeping import SIZE

import byol_explore
from byol_explore.extras import needed_by
from byol_explore.runtime.choosing import make_runtime, resolve_devices, training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.settings.config import Config
from byol_explore.settings.parts import LogConfig, NetworkConfig, RuntimeConfig

NETWORK = NetworkConfig(
    encoder="glancing:Glancing", embedding_size=64, belief_size=64, policy_hidden=(64,), value_hidden=(64,),
    predictor_hidden=(64,), center=False,
)  # fmt: skip
FEW = (8, 8)  # actors and environments of each: those of 64 actors, in fewer processes
MANY = (50, 8)  # the paper's 400


@dataclass(frozen=True)
class Arguments:
    """Measure acting with Ray."""

    actors: tuple[int, ...] = (4, 16, 64)
    """How many actors with one environment each, one count after the other."""
    few: tuple[int, int] = FEW
    """Then so many actors, with so many environments each."""
    many: tuple[int, int] = MANY
    """The same with more of them."""
    milliseconds: float = 20.0
    """What a step of an environment takes."""
    length: int = 33
    """T, observations per sequence."""
    seconds: float = 30.0
    """How long to measure each, after the first sequences of all actors have come."""
    preset: str = "atari-small"
    """What both engines train at last; empty leaves it out."""
    json: Path | None = None
    """Also write the figures here."""


def config_for(arguments: Arguments, inference: str, actors: int, envs: int) -> Config:
    runtime = RuntimeConfig(
        actors=actors, envs_per_actor=envs, batch_size=envs, sequence_length=arguments.length, devices=1,
        rollouts_per_dispatch=1, engine="ray", inference=inference, max_lag=10**9,
    )  # fmt: skip
    return dataclasses.replace(
        byol_explore.config(env="sleeping:Sleeping"),
        env_settings=(f"milliseconds={arguments.milliseconds}",), network=NETWORK, runtime=runtime,
        log=LogConfig(evaluate_every=0),
    ).validate()  # fmt: skip


def acting(arguments: Arguments, inference: str, actors: int, envs: int) -> dict[str, float]:
    """Steps/s of all actors, as a share of what they could do if nothing but their environments took time."""
    config = config_for(arguments, inference, actors, envs)
    runtime: Any = make_runtime(config, training_envs(config))
    source = runtime.source
    try:
        source.start(runtime.init_learner(0).acting, 0, 0)
        heard: set[int] = set()
        while len(heard) < actors:
            heard.add(int(source.next().envs[0]))
        before = source.statistics() if inference == "central" else None
        began, steps, seconds = time.perf_counter(), 0, 0.0
        while time.perf_counter() - began < arguments.seconds:
            rollout = source.next()
            steps, seconds = steps + rollout.episodes.ended.size, seconds + rollout.act_seconds
        rate = steps / (time.perf_counter() - began)
        ideal = actors * envs * 1000 / arguments.milliseconds
        figures = {"steps_per_second": rate, "efficiency": rate / ideal, "act_seconds_per_step": seconds / steps}
        return figures | (_requests(before, source.statistics(), envs) if before is not None else {})
    finally:
        runtime.close()


def _requests(before: Any, after: Any, envs: int) -> dict[str, float]:
    """Of the inference server meanwhile: its batches, its answers, and what crossed the wire for a step."""
    steps = max(after.steps - before.steps, envs)
    moved = after.received - before.received + after.sent - before.sent
    waits = after.waits[-(steps // envs) :]  # and none from when programs were compiled
    acted = np.cumsum(after.batches[::-1])
    batches = after.batches[::-1][: int(np.searchsorted(acted, steps)) + 1]
    return {
        "batch": float(np.mean(batches)),
        "request_p50_seconds": float(np.quantile(waits, 0.5)),
        "request_p99_seconds": float(np.quantile(waits, 0.99)),
        "bytes_per_step": moved / steps,
    }


def against_threads(arguments: Arguments) -> dict[str, float]:
    """Steps/s of training Atari with either engine."""
    config = byol_explore.config(arguments.preset).validate()
    config = dataclasses.replace(config, log=dataclasses.replace(config.log, evaluate_every=0))
    rates = {}
    for engine in ("threads", "ray"):
        changed = resolve_devices(
            dataclasses.replace(config, runtime=dataclasses.replace(config.runtime, engine=engine))
        )
        runtime = make_runtime(changed, training_envs(changed))
        assert isinstance(runtime, Sebulba)
        print(f"{arguments.preset} with engine {engine}, {arguments.seconds:.0f} s", flush=True)
        rates[engine] = training(changed, runtime, arguments.seconds)["training_steps_per_second"]
    return {
        **{f"{engine}_atari_steps_per_second": rate for engine, rate in rates.items()},
        "ray_over_threads_atari": rates["ray"] / rates["threads"],
    }


def measure(arguments: Arguments) -> dict[str, Any]:
    with needed_by("benchmarks/scale.py"):
        import ray  # noqa: F401
    enable_compilation_cache()
    figures: dict[str, Any] = {}
    rows: dict[tuple[str, int, int], dict[str, float]] = {}
    for actors, envs in (*((count, 1) for count in arguments.actors), arguments.few, arguments.many):
        for inference in ("central", "local"):
            print(f"{actors} actors with {envs} environments each, inference {inference}", flush=True)
            row = rows[inference, actors, envs] = acting(arguments, inference, actors, envs)
            figures |= {f"{inference}_{actors}x{envs}_{name}": value for name, value in row.items()}
    for actors in arguments.actors:
        figures[f"efficiency_at_{actors}"] = max(rows[way, actors, 1]["efficiency"] for way in ("central", "local"))
    figures["efficiency_of_few"] = max(rows[way, *arguments.few]["efficiency"] for way in ("central", "local"))
    largest = max(arguments.actors)
    central, local = rows["central", largest, 1], rows["local", largest, 1]
    figures["central_over_local"] = central["steps_per_second"] / local["steps_per_second"]
    figures["bytes_per_step_over_observation"] = central["bytes_per_step"] / SIZE**2
    of_server = rows["central", *arguments.many]["act_seconds_per_step"]
    figures["predicted_steps_per_second_of_400_actors"] = min(400 * 1000 / arguments.milliseconds, 1 / of_server)
    return figures | (against_threads(arguments) if arguments.preset else {})


def main(arguments: Arguments) -> None:
    sys.path.append(str(Path(__file__).parent))  # where actors find the environment that sleeps
    show(measure(arguments), "acting with Ray", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
