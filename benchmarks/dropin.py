"""What curiosity costs in anybody's agent: per 1,000 transitions, beside PPO's own learning and beside RLeXplore.

python benchmarks/dropin.py --json dropin.json --rllte-python .venv-rllte/bin/python

PPO is that of Stable-Baselines3 with its usual settings, learning from a rollout of the same size. RLeXplore
(rllte-core) pins old packages, so it runs in a Python of its own; its bonuses see the same kind of observations, and
ours once more with encoders as wide as its own. Whatever is not installed is null in the JSON, which says why. Take the
figures from a machine that does nothing else.
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
ENDS = 0.02  # of steps


@dataclass(frozen=True)
class Arguments:
    """Measure learning from a rollout."""

    steps: int = 128
    """Steps of each environment in a rollout."""
    num_envs: int = 16
    """Environments."""
    features: int = 64
    """Numbers in an observation."""
    actions: int = 5
    """Actions to choose from."""
    rounds: int = 20
    """How often each is measured, in turns; the median counts."""
    ppo_epochs: int = 10
    """Passes of PPO over a rollout."""
    ppo_batch: int = 64
    """Transitions in a minibatch of PPO."""
    threads: int = 1
    """Threads of JAX and of PyTorch: one, or as many as there are cores."""
    rllte_python: str = ""
    """A Python in which rllte-core is installed."""
    json: Path | None = None
    """Also write the figures here."""


class Noise(gymnasium.Env[np.ndarray, int]):
    """Random vectors; episodes end at random."""

    def __init__(self, features: int, actions: int) -> None:
        self.observation_space, self.action_space = spaces.Box(-5.0, 5.0, (features,)), spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._draw(), 0.0, bool(self.np_random.random() < ENDS), False, {}

    def _draw(self) -> np.ndarray:
        return np.clip(self.np_random.normal(size=self.observation_space.shape), -5, 5).astype(np.float32)


def hold_threads(threads: int) -> None:
    """Before JAX starts."""
    if threads == 1:
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {one}".strip()
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").set_num_threads(threads)


def rollout(arguments: Arguments, seed: int = 0) -> list[np.ndarray]:
    """What `Curiosity.learn` takes."""
    random, size = np.random.default_rng(seed), (arguments.steps, arguments.num_envs)
    seen = random.normal(size=(size[0] + 1, size[1], arguments.features)).astype(np.float32)
    over = random.random(size) < ENDS
    return [seen[:-1], random.integers(0, arguments.actions, size), seen[1:], over, np.zeros_like(over)]


def learning(arguments: Arguments, method: str, settings: dict[str, Any]) -> Callable[[], Any]:
    env = Noise(arguments.features, arguments.actions)
    curiosity = byol_explore.Curiosity(
        env.observation_space, env.action_space, arguments.num_envs, method, settings=settings
    )
    given = rollout(arguments)
    return lambda: curiosity.learn(*given)


def ppo_learning(arguments: Arguments) -> Callable[[], Any]:
    """PPO's update from a rollout, without collecting it."""
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
    """Seconds of each, taken in turns, after one that compiles and one that does not."""
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(rounds + 2):
        for name, run in measured.items():
            start = time.perf_counter()
            run()
            if turn > 1:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def rllte_seconds(arguments: Arguments) -> dict[str, float] | str:
    """Of RLeXplore's bonuses by name, or why there are none."""
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


def over(one: float, other: float | None) -> float | None:
    return None if other is None else one / other


def measure(arguments: Arguments) -> dict[str, float | str | None]:
    ours = {method: learning(arguments, method, {}) for method in METHODS}
    wide = {f"{method}_as_rllte": learning(arguments, method, AS_RLLTE) for method in METHODS}
    has_sb3 = importlib.util.find_spec("stable_baselines3") is not None
    found = medians({**ours, **wide, **({"ppo": ppo_learning(arguments)} if has_sb3 else {})}, arguments.rounds)
    theirs = rllte_seconds(arguments)
    known = theirs if isinstance(theirs, dict) else {}
    thousands = arguments.steps * arguments.num_envs / 1000
    costs = {**found, **{f"rllte_{name}": value for name, value in known.items()}}
    return {
        **{f"{name}_seconds_per_1000": value / thousands for name, value in costs.items()},
        "overhead_over_ppo": over(found["byol-explore"], found.get("ppo")),
        "ours_over_rllte_rnd": over(found["byol-explore_as_rllte"], known.get("rnd")),
        "ours_over_rllte_icm": over(found["byol-explore_as_rllte"], known.get("icm")),
        "our_rnd_over_rllte_rnd": over(found["rnd_as_rllte"], known.get("rnd")),
        **({} if has_sb3 else {"ppo": "stable-baselines3 is not installed: pip install 'byol-explore[sb3]'"}),
        **({"rllte": theirs} if isinstance(theirs, str) else {}),
    }


def main(arguments: Arguments) -> None:
    hold_threads(arguments.threads)
    title = f"rollouts of {arguments.steps} steps, {arguments.num_envs} environments, {arguments.features} numbers seen"
    show(measure(arguments), title, arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
