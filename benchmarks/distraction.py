"""What a curiosity pays for a television, for doors and for all the rest, while actions are random.

python benchmarks/distraction.py --json distraction.json

In `tv-rooms-6` one action in six does nothing but switch on noise that nobody can predict. The bonus learns from
rollouts of random actions, as in anybody's agent, so that all methods see the same. Reported are its mean rewards
relative to that of steps that are neither: near 1 for the television is not distracted, and high for doors is what
leads to other rooms. Rewards are normalised and not clipped, so that small ones count as well.
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
from byol_explore.envs.base import AutoReset
from byol_explore.envs.worlds.noise import NO_OP
from byol_explore.envs.worlds.rooms import ROOM_WIDTH
from byol_explore.types import Action, Array

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "byol-explore": ("byol-explore", {}),
    "byol-explore with fixed targets": ("byol-explore", {"target_decay": 1.0}),
    "byol-hindsight": ("byol-hindsight", {}),
    "byol-hindsight with fixed targets": ("byol-hindsight", {"target_decay": 1.0}),
    "byol-hindsight as in its paper": ("byol-hindsight", {"forecasts": False}),
    "rnd": ("rnd", {}),
    "icm": ("icm", {}),
}


@dataclass(frozen=True)
class Arguments:
    """Let bonuses learn from random actions."""

    env: str = "tv-rooms-6"
    """A world of rooms with noise."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Which bonuses."""
    rollouts: int = 60
    """How many of them are learned from."""
    steps: int = 320
    """Steps of each environment in a rollout."""
    num_envs: int = 16
    """Environments."""
    last: int = 10
    """Rollouts at the end whose rewards are reported."""
    json: Path | None = None
    """Also write the figures here."""


class Walk(NamedTuple):
    """A rollout of random actions."""

    observation: Array  # [T, B, ...]
    action: Array  # [T, B]
    then: Array  # [T, B, ...] what they led to
    terminated: Array  # [T, B]
    skipped: Array  # [T, B] nothing but a new episode
    room: Array  # [T + 1, B]


def walk(envs: AutoReset, steps: int, at: Any, key: Array) -> tuple[Any, Walk]:
    """Random actions from where the environments are."""
    place: Any = envs.env

    def room(states: Any) -> Array:
        return jax.vmap(place.place)(states.inner)[:, 1] // (ROOM_WIDTH + 1)

    def step(at: Any, key: Array) -> tuple[Any, Any]:
        states, timestep = at
        action = jax.random.randint(key, (envs.num_envs, 1), 0, envs.spec.action.discrete[0])
        after, answer = envs.step(states, Action(action, jnp.zeros((envs.num_envs, 0))))
        seen = timestep.observation, action[:, 0], answer.observation, answer.is_last, answer.is_first, room(states)
        return (after, answer), seen

    at, seen = jax.lax.scan(step, at, jax.random.split(key, steps))
    return at, Walk(*seen[:-1], jnp.concatenate([seen[-1], room(at[0])[None]]))


def measure_one(arguments: Arguments, method: str, curiosity: dict[str, Any]) -> dict[str, float | None]:
    """Mean rewards at a television and at doors, relative to all others."""
    (env,) = byol_explore.make_envs((arguments.env,), ())
    envs = AutoReset(env, arguments.num_envs)
    kind = envs.spec.observation
    bonus = byol_explore.Curiosity(
        gymnasium.spaces.Box(0, 255, kind.shape, np.uint8), gymnasium.spaces.Discrete(envs.spec.action.discrete[0]),
        arguments.num_envs, method, symbols={"": kind.symbols},
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
    """The mean of some rewards over that of others; None where there are none."""
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
