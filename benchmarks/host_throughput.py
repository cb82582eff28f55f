"""Compare training in a host environment with its steps alone, with and without our adapter, and with acting.

python benchmarks/host_throughput.py --json host.json
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from figures import show
from sebulba import Acting, Bare, take_turns, training

import byol_explore
from byol_explore.config.config import Config
from byol_explore.config.overrides import override
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.runtime.make import make_runtime, resolve_devices
from byol_explore.runtime.sebulba import Sebulba
from byol_explore.types import AnyArray
from byol_explore.utils.packages import enable_compilation_cache

POOL = "envpool:"


@dataclass(frozen=True)
class Arguments:
    """Measure a preset in a host environment."""

    env: str = "envpool:MiniGrid-KeyCorridorS3R3-v0"
    """The environment, outside jit."""
    preset: str = "grid"
    """Settings to measure."""
    num_envs: int | None = None
    """Environments; None takes the preset's."""
    num_actors: int | None = None
    """Actors; None takes the preset's."""
    batch_size: int | None = None
    """Sequences of a learner step; None takes the preset's."""
    core_inputs: tuple[str, ...] | None = None
    """Entries of the observations that only the core reads, for example mission; None takes the preset's."""
    env_kwargs: tuple[str, ...] = ()
    """Keyword arguments of the environment, for example num_threads=1."""
    seconds: float = 20.0
    """Seconds per measurement."""
    rounds: int = 4
    """Rounds in which the measurements without learning take turns, so that other load affects all equally."""
    json: Path | None = None
    """File to write the figures to."""


class NativePool:
    """Step a pool of EnvPool with random actions, without our adapter."""

    def __init__(self, env: str, config: Config, options: dict[str, AnyArray]) -> None:
        import envpool  # pyright: ignore[reportMissingImports]

        self._count, self._length = config.runtime.num_envs, config.runtime.sequence_length - 1
        name = env.removeprefix(POOL)
        self._pool = envpool.make(name, env_type="gymnasium", num_envs=self._count, seed=0, **options)
        self._pool.reset()
        self._actions = self._pool.action_space.n
        self._random = np.random.default_rng(0)

    def step(self) -> int:
        for _ in range(self._length):
            self._pool.step(self._random.integers(0, self._actions, self._count).astype(np.int32))
        return self._count * self._length


def configure(arguments: Arguments) -> Config:
    runtime = {name: value for name in ("num_envs", "num_actors", "batch_size") if (value := getattr(arguments, name))}
    changes = {"env_kwargs": arguments.env_kwargs, "runtime": runtime, "log": {"evaluate_every": 0}}
    if arguments.core_inputs is not None:
        changes["network"] = {"core_inputs": arguments.core_inputs}
    config = byol_explore.make_config(arguments.preset, env=arguments.env)
    return resolve_devices(override(config, changes).validate())


def measure(arguments: Arguments) -> dict[str, float]:
    enable_compilation_cache()
    config = configure(arguments)
    envs = byol_explore.make_envs(config.env_ids, config.env_settings, actors=config.runtime.num_actors)
    runtime = make_runtime(config, envs)
    assert isinstance(runtime, Sebulba), f"{arguments.env} runs inside jit"
    print(f"training for {arguments.seconds:.0f} s", flush=True)
    figures = training(config, runtime, arguments.seconds)
    batch, acting = make_host_vector_env(envs, config.runtime.num_envs, 0), Acting(config, envs, runtime)
    length, actions = config.runtime.sequence_length - 1, envs[0].spec.action.discrete[0]
    contestants: dict[str, Callable[[], int]] = {
        "adapter": Bare(batch, actions, length).step,
        "acting": acting.step,
    }
    if arguments.env.startswith(POOL):
        contestants["native"] = NativePool(arguments.env, config, envs[0]._kwargs).step
    print(f"stepping and acting in turns, {len(contestants) * arguments.seconds:.0f} s", flush=True)
    rates = take_turns(contestants, arguments.seconds, arguments.rounds)
    batch.close()
    acting.actor.close()
    rates = {f"{name}_steps_per_second": value for name, value in rates.items()}
    settings = {name: getattr(config.runtime, name) for name in ("num_envs", "num_actors", "batch_size")}
    return {**settings, **rates, **figures}


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"{arguments.env}, preset {arguments.preset}", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
