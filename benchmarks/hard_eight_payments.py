"""What curiosity pays an agent of Hard-Eight for: the mean intrinsic reward of steps by what happens in them.

python benchmarks/hard_eight_payments.py studies/hard-eight-laptop/hard-eight-wall-sensor/byol-explore-seed0
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from byol_explore.agent import Situation, turn
from byol_explore.envs.base import AutoReset
from byol_explore.envs.worlds.hard_eight import controls
from byol_explore.envs.worlds.hard_eight.spec import HardEight
from byol_explore.errors import UserError
from byol_explore.files import write_atomically
from byol_explore.networks.assembly import Actor
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config
from byol_explore.runtime.choosing import make_runtime, on_one_device, training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.types import Array, Trajectory

STEPS = 80  # of a sequence


@dataclass(frozen=True)
class Arguments:
    """Play a run's newest checkpoint on and ask its curiosity what every step was worth."""

    run: tyro.conf.Positional[Path]
    """A run directory with a checkpoint, of one task of Hard-Eight."""
    steps: int = 102_400
    """Steps to play, in all environments together."""
    envs: int = 64
    """Environments."""
    seed: int = 0
    """Of levels and actions."""
    json: Path | None = None
    """Also write the figures here."""


class Happening(NamedTuple):
    """What is noted of every step. All [T, E]."""

    held_before: Array
    held: Array
    pushed: Array  # whatever is held, away
    before: Array  # [T, E, stages] reached
    reached: Array  # [T, E, stages]


def player(env: HardEight, batch: AutoReset) -> Callable[..., Any]:
    """A sequence as the learner would see it, and what happened in it."""

    def play(actor: Actor, at: Situation, key: Array) -> tuple[Situation, Trajectory, Happening]:
        def step(at: Situation, key: Array) -> tuple[Situation, Any]:
            then, policy, action = turn(actor, batch, at, key)
            held, then_held = (each.envs.inner.world.hand.held >= 0 for each in (at, then))
            control = jax.vmap(lambda each: controls.read(each, env.settings.actions))(action)
            reached = at.envs.inner.reached, then.envs.inner.reached
            happening = Happening(held, then_held, control.push > 0.5, *reached)
            return then, (at.timestep, action, then.timestep.reward, then.timestep.discount, policy, happening)

        then, (seen, action, reward, discount, policy, happening) = jax.lax.scan(step, at, jax.random.split(key, STEPS))
        ends = jax.tree.map(lambda many, last: jnp.concatenate([many, last[None]]), seen, then.timestep)
        task = jnp.zeros(ends.is_first.shape, jnp.int32)
        trajectory = Trajectory(
            ends.observation, ends.is_first, action, reward, discount, policy, task=task, memory=at.memory
        )
        return then, trajectory, happening

    return jax.jit(play)


def kinds(happening: Happening, inside: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Which steps [T, E] are of which kind; those that only begin an episode are of none."""
    held_before, held = np.asarray(happening.held_before), np.asarray(happening.held)
    pushed, let_go = np.asarray(happening.pushed), held_before & ~held
    found = {
        "all": inside,
        "hand empty": ~held_before & ~held,
        "lifted": ~held_before & held,
        "held": held_before & held,
        "let go": let_go & ~pushed,
        "thrown": let_go & pushed,
    }
    new = np.asarray(happening.reached & ~happening.before)
    found |= {f"first {name}": new[..., stage] for stage, name in enumerate(names)}
    found |= {f"the step after {name}": _after(new[..., stage]) for stage, name in enumerate(names)}
    return {name: steps & inside for name, steps in found.items()}


def _after(steps: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(steps[:1]), steps[:-1]])


def measure(arguments: Arguments) -> dict[str, dict[str, float]]:
    config = on_one_device(load_config(arguments.run))
    checkpoints = Checkpoints(arguments.run / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{arguments.run} has no checkpoint: train it first")
    [env] = training_envs(config)
    if not isinstance(env, HardEight) or env.spec.tasks:
        raise UserError(f"{arguments.run} is of {env.spec.name}: choose a run of one task of hard-eight")
    runtime = make_runtime(config, [env])
    state = checkpoints.restore(runtime.init_learner(config.seed), part="learner").state
    batch, judge = AutoReset(env, arguments.envs), jax.jit(runtime.learner.intrinsic_reward)
    play, key = player(env, batch), jax.random.key(arguments.seed)
    envs, timestep = jax.jit(batch.reset)(jax.random.split(jax.random.fold_in(key, 0), arguments.envs))
    at = Situation(envs, timestep, state.acting.initial_memory(env.spec, arguments.envs))
    total, paid = dict[str, int](), dict[str, float]()
    rounds = max(arguments.steps // (STEPS * arguments.envs), 1)
    for index in track(range(rounds), "playing", console=Console(stderr=True)):
        at, trajectory, happening = play(state.acting, at, jax.random.fold_in(key, index + 1))
        rewards = np.asarray(judge(state, trajectory))
        inside = ~np.asarray(trajectory.is_first[1:])
        for name, steps in kinds(happening, inside, env.stages).items():
            total[name] = total.get(name, 0) + int(steps.sum())
            paid[name] = paid.get(name, 0.0) + float(rewards[steps].sum())
    runtime.close()
    return {name: _row(steps, total["all"], paid[name]) for name, steps in total.items() if steps}


def _row(steps: int, of: int, paid: float) -> dict[str, float]:
    return {"steps": steps, "percent": 100 * steps / of, "mean": paid / steps}


def main(arguments: Arguments) -> None:
    enable_compilation_cache()
    try:
        figures = measure(arguments)
    except UserError as error:
        sys.exit(f"error: {error}")
    table = Table("what happens", "percent of the steps", "intrinsic reward on average", title=str(arguments.run))
    for name, row in figures.items():
        table.add_row(name, f"{row['percent']:.2f}", f"{row['mean']:.3f}")
    Console().print(table)
    if arguments.json is not None:
        write_atomically(arguments.json, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
