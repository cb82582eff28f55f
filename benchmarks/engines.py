"""Compare the stepping speed of Atari engines; envpool only if it is installed.

python benchmarks/engines.py --json engines.json
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from ale_py.vector_env import AtariVectorEnv
from figures import show
from sebulba import take_turns

from byol_explore.envs.atari import Atari
from byol_explore.envs.families import AtariSettings
from byol_explore.types import Action

ACTIONS = 18


@dataclass(frozen=True)
class Arguments:
    """Measure stepping with random actions."""

    game: str = "montezuma_revenge"
    """Game to step."""
    num_envs: int = 32
    """Number of environments."""
    threads: int = 2
    """Threads or worker processes."""
    seconds: float = 15.0
    """Seconds per engine."""
    json: Path | None = None
    """File to write the figures to."""


def make_contestant(step: Callable[[np.ndarray], Any], num_envs: int, length: int = 32) -> Callable[[], int]:
    random = np.random.default_rng(0)

    def run() -> int:
        for _ in range(length):
            step(random.integers(0, ACTIONS, num_envs).astype(np.int32))
        return num_envs * length

    return run


def envpool_step(arguments: Arguments) -> Callable[[np.ndarray], Any]:
    import envpool

    name = "".join(word.capitalize() for word in arguments.game.split("_")) + "-v5"
    envs = envpool.make(
        name, env_type="gymnasium", num_envs=arguments.num_envs, num_threads=arguments.threads, stack_num=1,
        full_action_space=True, reward_clip=False, use_fire_reset=False, repeat_action_probability=0.0, seed=0,
    )  # fmt: skip
    envs.reset()
    return envs.step


def measure(arguments: Arguments) -> dict[str, float]:
    count = arguments.num_envs
    vector = AtariVectorEnv(
        arguments.game, count, num_threads=arguments.threads, stack_num=1, full_action_space=True,
        reward_clipping=False, use_fire_reset=False,
    )  # fmt: skip
    vector.reset(seed=0)
    batch = Atari(arguments.game, AtariSettings(num_workers=arguments.threads)).make_vector_env(count, seed=0)
    batch.reset()
    continuous = np.zeros((count, 0), np.float32)
    engines = {
        "ours": make_contestant(lambda action: batch.step(Action(action[:, None], continuous)), count),
        "ale_vector": make_contestant(vector.step, count),
    }
    if importlib.util.find_spec("envpool") is not None:
        engines["envpool"] = make_contestant(envpool_step(arguments), count)
    rates = take_turns(engines, arguments.seconds, rounds=5)
    batch.close()
    ratios = {f"ours_over_{name}": rates["ours"] / rate for name, rate in rates.items() if name != "ours"}
    return {**{f"{name}_steps_per_second": rate for name, rate in rates.items()}, **ratios}


def main(arguments: Arguments) -> None:
    show(
        measure(arguments),
        f"{arguments.game}, {arguments.num_envs} environments, {arguments.threads} threads or processes",
        arguments.json,
    )


if __name__ == "__main__":
    main(tyro.cli(Arguments))
