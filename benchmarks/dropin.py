"""Measure the cost of the drop-in Curiosity per 1,000 transitions, beside PPO's update and RLeXplore.

python benchmarks/dropin.py --json dropin.json --rllte-python .venv-rllte/bin/python

PPO is that of Stable-Baselines3 with default settings and rollouts of the same size. RLeXplore (rllte-core) pins old
packages, so it runs in a Python of its own; its bonuses get the same kind of observations, and ours are measured again
with encoders as wide as its own. Figures of packages that are not installed are null in the JSON, with the reason. Run
on an idle machine.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from figures import show
from gymnasium import spaces

import byol_explore

METHODS = ("byol-explore", "rnd", "icm")
AS_RLLTE = {  # a hidden layer of 256, embeddings of 128
    "network": {"encoder_hidden": (256,), "embedding_size": 128, "belief_size": 128, "predictor_hidden": (256,)}
}
END_PROBABILITY = 0.02  # per step


@dataclass(frozen=True)
class Arguments:
    """Measure the time to learn from a rollout."""

    steps: int = 128
    """Steps of each environment in a rollout."""
    num_envs: int = 16
    """Number of environments."""
    features: int = 64
    """Size of an observation."""
    actions: int = 5
    """Number of discrete actions."""
    rounds: int = 20
    """Measurements of each, in turn; the median is reported."""
    ppo_epochs: int = 10
    """Passes of PPO over a rollout."""
    ppo_batch: int = 64
    """Transitions in a minibatch of PPO."""
    threads: int = 1
    """Threads of PyTorch; 1 also limits JAX to one thread."""
    rllte_python: str = ""
    """Path of a Python interpreter with rllte-core."""
    json: Path | None = None
    """File to write the figures to."""


class Noise(gymnasium.Env[np.ndarray, int]):
    """Random vectors; episodes end at random."""

    def __init__(self, features: int, actions: int) -> None:
        self.observation_space, self.action_space = spaces.Box(-5.0, 5.0, (features,)), spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._draw(), 0.0, bool(self.np_random.random() < END_PROBABILITY), False, {}

    def _draw(self) -> np.ndarray:
        return np.clip(self.np_random.normal(size=self.observation_space.shape), -5, 5).astype(np.float32)


def limit_threads(threads: int) -> None:
    """Limit the threads of JAX and PyTorch. Call before JAX starts."""
    if threads == 1:
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {one}".strip()
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").set_num_threads(threads)


def rollout(arguments: Arguments, seed: int = 0) -> list[np.ndarray]:
    """Return random arguments for `Curiosity.learn`."""
    random, size = np.random.default_rng(seed), (arguments.steps, arguments.num_envs)
    seen = random.normal(size=(size[0] + 1, size[1], arguments.features)).astype(np.float32)
    over = random.random(size) < END_PROBABILITY
    return [seen[:-1], random.integers(0, arguments.actions, size), seen[1:], over, np.zeros_like(over)]


def make_learn(arguments: Arguments, method: str, settings: dict[str, Any]) -> Callable[[], Any]:
    env = Noise(arguments.features, arguments.actions)
    curiosity = byol_explore.Curiosity(
        env.observation_space, env.action_space, arguments.num_envs, method, settings=settings
    )
    given = rollout(arguments)
    return lambda: curiosity.learn(*given)


def make_ppo_train(arguments: Arguments) -> Callable[[], Any]:
    """Return PPO's update from a collected rollout."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    options = {"features": arguments.features, "actions": arguments.actions}
    venv = make_vec_env(Noise, arguments.num_envs, seed=0, env_kwargs=options)
    model = PPO(
        "MlpPolicy", venv, n_steps=arguments.steps, batch_size=arguments.ppo_batch, n_epochs=arguments.ppo_epochs,
        seed=0, device="cpu",
    )  # fmt: skip
    model.learn(arguments.steps * arguments.num_envs)
    return model.train


def medians(measured: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return median seconds of each, measured in turn after two warm-up calls."""
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(rounds + 2):
        for name, run in measured.items():
            start = time.perf_counter()
            run()
            if turn > 1:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def rllte_seconds(arguments: Arguments) -> dict[str, float] | str:
    """Return seconds of RLeXplore's bonuses by name, or the reason why they are not measured."""
    if not arguments.rllte_python:
        return "rllte-core pins old packages: install it in a Python of its own and give --rllte-python"
    sizes = [
        arguments.threads,
        arguments.steps,
        arguments.num_envs,
        arguments.features,
        arguments.actions,
        arguments.rounds,
    ]
    command = [arguments.rllte_python, "-c", "import dropin_rllte; dropin_rllte.main()", *map(str, sizes)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def ratio(one: float, other: float | None) -> float | None:
    return None if other is None else one / other


def measure(arguments: Arguments) -> dict[str, float | str | None]:
    ours = {method: make_learn(arguments, method, {}) for method in METHODS}
    wide = {f"{method}_as_rllte": make_learn(arguments, method, AS_RLLTE) for method in METHODS}
    has_sb3 = importlib.util.find_spec("stable_baselines3") is not None
    found = medians({**ours, **wide, **({"ppo": make_ppo_train(arguments)} if has_sb3 else {})}, arguments.rounds)
    theirs = rllte_seconds(arguments)
    known = theirs if isinstance(theirs, dict) else {}
    thousands = arguments.steps * arguments.num_envs / 1000
    costs = {**found, **{f"rllte_{name}": value for name, value in known.items()}}
    return {
        **{f"{name}_seconds_per_1000": value / thousands for name, value in costs.items()},
        "overhead_over_ppo": ratio(found["byol-explore"], found.get("ppo")),
        "ours_over_rllte_rnd": ratio(found["byol-explore_as_rllte"], known.get("rnd")),
        "ours_over_rllte_icm": ratio(found["byol-explore_as_rllte"], known.get("icm")),
        "our_rnd_over_rllte_rnd": ratio(found["rnd_as_rllte"], known.get("rnd")),
        **({} if has_sb3 else {"ppo": "stable-baselines3 is not installed: pip install 'byol-explore[sb3]'"}),
        **({"rllte": theirs} if isinstance(theirs, str) else {}),
    }


def main(arguments: Arguments) -> None:
    limit_threads(arguments.threads)
    title = (
        f"rollouts of {arguments.steps} steps, {arguments.num_envs} environments, observations of {arguments.features}"
    )
    show(measure(arguments), title, arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
