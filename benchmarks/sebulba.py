"""Compare the speed of training in host environments with stepping and acting alone.

python benchmarks/sebulba.py --json sebulba.json
"""

import dataclasses
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro
from figures import show

import byol_explore
from byol_explore.config.config import Config
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import HostEnvironment, HostVectorEnv
from byol_explore.runtime.base import EpisodeStats, RolloutStats
from byol_explore.runtime.make import make_runtime, resolve_devices
from byol_explore.runtime.rollouts import HostActor
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.training.coverage import RoomCoverage
from byol_explore.types import Action
from byol_explore.utils.packages import enable_compilation_cache

LOAD = ("learner_idle_fraction", "actor_idle_fraction", "actor_env_fraction", "actor_inference_fraction", "policy_lag")


@dataclass(frozen=True)
class Arguments:
    """Measure a preset with host environments."""

    preset: str = "atari-small"
    """Settings to measure."""
    seconds: float = 20.0
    """Seconds per measurement: stepping, counting rooms, acting, training."""
    rounds: int = 4
    """Rounds in which stepping and acting take turns, so that other load affects both equally."""
    json: Path | None = None
    """File to write the figures to."""


class Bare:
    """Step environments with random actions; with `coverage`, also count rooms as training does."""

    def __init__(self, batch: HostVectorEnv, actions: int, length: int, coverage: RoomCoverage | None = None) -> None:
        self._batch, self._actions, self._length, self._coverage = batch, actions, length, coverage
        self._random = np.random.default_rng(0)
        self._steps = 0
        batch.reset()

    def step(self) -> int:
        count, places = self._batch.num_envs, []
        for _ in range(self._length):
            choice = self._random.integers(0, self._actions, (count, 1)).astype(np.int32)
            self._batch.step(Action(choice, np.zeros((count, 0), np.float32)))
            if self._coverage is not None:
                places.append(self._batch.positions())
        if self._coverage is not None:
            self._coverage.on_rollout(self._make_stats(np.stack(places)), self._steps)
        self._steps += count * self._length
        return count * self._length

    def _make_stats(self, places: np.ndarray) -> RolloutStats:
        """Return statistics of a rollout in which only the positions are set."""
        zeros = np.zeros(places.shape[:2], np.float32)
        task = zeros.astype(np.int32)
        return RolloutStats(
            np.arange(places.shape[1]), task, EpisodeStats(*[zeros] * len(EpisodeStats._fields)), places, zeros
        )


class Acting:
    """Act in the same environments with the agent's policy, without learning."""

    def __init__(self, config: Config, envs: list[HostEnvironment], runtime: Sebulba) -> None:
        self._parameters = runtime.init(0).learner.target_actor
        key = jax.random.key(0)
        self.actor = HostActor(envs, config.runtime.num_envs, config.runtime.sequence_length, key, seed=1)
        self._steps = config.steps_per_round

    def step(self) -> int:
        self.actor.rollout(self._parameters)
        return self._steps


def rate(step: Callable[[], int], seconds: float) -> float:
    """Return steps/s of a function that returns its number of steps."""
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps += step()
    return steps / (time.perf_counter() - began)


def take_turns(contestants: dict[str, Callable[[], int]], seconds: float, rounds: int) -> dict[str, float]:
    """Return median steps/s of each; they run in turn in every round."""
    for step in contestants.values():
        step()  # compiles
    rates = [{name: rate(step, seconds / rounds) for name, step in contestants.items()} for _ in range(rounds)]
    return {name: float(np.median([each[name] for each in rates])) for name in contestants}


def training(config: Config, runtime: Sebulba, seconds: float) -> dict[str, float]:
    """Measure steps/s of training, and the shares of time of its parts."""
    state, outputs = runtime.init(0), []
    state, _ = runtime.dispatch(state)
    state, _ = runtime.dispatch(state)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        state, output = runtime.dispatch(state)
        outputs.append(output.metrics)
    elapsed = time.perf_counter() - began
    runtime.close()
    shares = {name: float(np.mean([np.mean(metrics[name]) for metrics in outputs])) for name in LOAD}
    return {"training_steps_per_second": len(outputs) * config.steps_per_dispatch / elapsed, **shares}


def peak_memory(workers: int) -> int:
    """Return the sum of the peak bytes of this process and its workers."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * (own + workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def measure(arguments: Arguments) -> dict[str, float]:
    enable_compilation_cache()
    config = byol_explore.make_config(arguments.preset).validate()
    config = resolve_devices(dataclasses.replace(config, log=dataclasses.replace(config.log, evaluate_every=0)))
    envs = byol_explore.make_envs(config.env_ids, config.env_settings)
    runtime = make_runtime(config, envs)
    assert isinstance(runtime, Sebulba)
    print(f"training for {arguments.seconds:.0f} s", flush=True)
    figures = training(config, runtime, arguments.seconds)
    figures["peak_rss_bytes"] = peak_memory(envs[0].num_workers)
    print(f"bare stepping, counting rooms and acting in turns, {3 * arguments.seconds:.0f} s", flush=True)
    actions, length = envs[0].spec.action.discrete[0], config.runtime.sequence_length - 1
    batch = make_host_vector_env(envs, config.runtime.num_envs, 0)
    acting = Acting(config, envs, runtime)
    contestants = {
        "bare": Bare(batch, actions, length).step,
        "rooms": Bare(batch, actions, length, RoomCoverage(envs[0].spec)).step,
        "acting": acting.step,
    }
    rates = take_turns(contestants, arguments.seconds, arguments.rounds)
    batch.close()
    acting.actor.close()
    return {
        "bare_steps_per_second": rates["bare"],
        "acting_steps_per_second": rates["acting"],
        "acting_over_bare": rates["acting"] / rates["bare"],
        "counting_rooms_over_bare": rates["rooms"] / rates["bare"],
        **figures,
        "training_over_bare": figures["training_steps_per_second"] / rates["bare"],
    }


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"environments outside jit, preset {arguments.preset}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
