"""Compare intrinsic rewards of steps at a television, through doors and of all other steps, under random actions.

python benchmarks/distraction.py --json distraction.json

In `tv-rooms-6` one action in six only switches on unpredictable noise. `Curiosity` learns from rollouts of random
actions, so that all methods get the same data. The figures are mean rewards relative to those of other steps: about 1
for the television means no distraction, a high value for doors rewards reaching other rooms. Rewards are normalised but
not clipped, so that small ones count too.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from figures import show

import byol_explore
from byol_explore.envs.grid.minigrid import ROOM_WIDTH
from byol_explore.envs.grid.noisy_rooms import NO_OP
from byol_explore.envs.vector import AutoReset
from byol_explore.types import Action, Array

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "byol-explore": ("byol-explore", {}),
    "byol-explore with fixed targets": ("byol-explore", {"target_decay": 1.0}),
    "byol-hindsight": ("byol-hindsight", {}),
    "byol-hindsight with fixed targets": ("byol-hindsight", {"target_decay": 1.0}),
    "byol-hindsight as in its paper": ("byol-hindsight", {"use_forecaster": False}),
    "rnd": ("rnd", {}),
    "icm": ("icm", {}),
}


@dataclass(frozen=True)
class Arguments:
    """Compare methods under random actions."""

    env: str = "tv-rooms-6"
    """Environment: rooms with noise."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Variants to measure."""
    rollouts: int = 60
    """Rollouts to learn from."""
    steps: int = 320
    """Steps of each environment in a rollout."""
    num_envs: int = 16
    """Number of environments."""
    last: int = 10
    """Last rollouts, whose rewards are reported."""
    json: Path | None = None
    """File to write the figures to."""


class Walk(NamedTuple):
    """A rollout of random actions."""

    observation: Array  # [T, B, ...]
    action: Array  # [T, B]
    next_observation: Array  # [T, B, ...]
    terminated: Array  # [T, B]
    skipped: Array  # [T, B] steps that only reset
    room: Array  # [T + 1, B]


def walk(envs: AutoReset, steps: int, at: Any, key: Array) -> tuple[Any, Walk]:
    """Take `steps` random actions. Returns the last states and the rollout."""
    place: Any = envs.env

    def room(states: Any) -> Array:
        return jax.vmap(place.position)(states.env_state)[:, 1] // (ROOM_WIDTH + 1)

    def step(at: Any, key: Array) -> tuple[Any, Any]:
        states, timestep = at
        action = jax.random.randint(key, (envs.num_envs, 1), 0, envs.spec.action.discrete[0])
        after, answer = envs.step(states, Action(action, jnp.zeros((envs.num_envs, 0))))
        seen = timestep.observation, action[:, 0], answer.observation, answer.is_last, answer.is_first, room(states)
        return (after, answer), seen

    at, seen = jax.lax.scan(step, at, jax.random.split(key, steps))
    return at, Walk(*seen[:-1], jnp.concatenate([seen[-1], room(at[0])[None]]))


def measure_one(arguments: Arguments, method: str, curiosity: dict[str, Any]) -> dict[str, float | None]:
    """Return mean rewards at the television and at doors, relative to those of other steps."""
    (env,) = byol_explore.make_envs((arguments.env,))
    envs = AutoReset(env, arguments.num_envs)
    kind = envs.spec.observation
    bonus = byol_explore.Curiosity(
        gymnasium.spaces.Box(0, 255, kind.shape, np.uint8), gymnasium.spaces.Discrete(envs.spec.action.discrete[0]),
        arguments.num_envs, method, symbol_counts={"": kind.symbols_per_channel},
        settings={"curiosity": {"prioritize": False, **curiosity}, "optimizer": {"learning_rate": 2e-3}},
    )  # fmt: skip
    at = jax.jit(envs.reset)(jax.random.split(jax.random.key(0), arguments.num_envs))
    go = jax.jit(partial(walk, envs, arguments.steps))
    paid: dict[str, list[np.ndarray]] = {"television": [], "doors": [], "others": []}
    for number in range(arguments.rollouts):
        at, (seen, action, then, over, skipped, room) = jax.device_get(go(at, jax.random.key(1 + number)))
        reward, _ = bonus.learn(seen, action, then, over, np.zeros_like(over), skipped=skipped)
        if number >= arguments.rollouts - arguments.last:
            doors, television = (room[1:] != room[:-1]) & ~skipped, (action == NO_OP) & ~skipped
            masks = television, doors, ~(television | doors | skipped)
            for name, mask in zip(paid, masks, strict=True):
                paid[name].append(reward[mask])
    television, doors, others = (np.concatenate(rewards) for rewards in paid.values())
    return {"television": relative(television, others), "doors": relative(doors, others)}


def relative(some: np.ndarray, others: np.ndarray) -> float | None:
    """Return the ratio of mean rewards; None without rewards in `some`."""
    return float(np.mean(some) / np.mean(others)) if some.size else None


def measure(arguments: Arguments) -> dict[str, float | None]:
    figures = {}
    for variant in arguments.variants:
        print(f"{variant}: {arguments.rollouts} rollouts", flush=True)
        found = measure_one(arguments, *VARIANTS[variant])
        figures |= {f"{variant}: {name}": value for name, value in found.items()}
    return figures


def main(arguments: Arguments) -> None:
    show(measure(arguments), f"rewards in {arguments.env}, relative to those of steps that are neither", arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
