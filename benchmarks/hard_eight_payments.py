"""Measure the mean intrinsic reward of a Hard-Eight agent by kind of step, such as grasping, holding and throwing.

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

from byol_explore.agent.acting import RolloutCarry, act_and_step
from byol_explore.envs.hard_eight import world
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.envs.vector import AutoReset
from byol_explore.errors import UserError
from byol_explore.networks.representation import Actor
from byol_explore.runtime.make import make_runtime, make_training_envs, with_one_device
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.storage.run_directory import load_config
from byol_explore.types import Array, Trajectory
from byol_explore.utils.files import atomic_write
from byol_explore.utils.packages import enable_compilation_cache

STEPS = 80  # per sequence


@dataclass(frozen=True)
class Arguments:
    """Act with a run's newest checkpoint and compute the intrinsic reward of every step."""

    run: tyro.conf.Positional[Path]
    """A run directory with a checkpoint, of one task of Hard-Eight."""
    steps: int = 102_400
    """Steps of all environments together."""
    envs: int = 64
    """Number of environments."""
    seed: int = 0
    """Seed of levels and actions."""
    json: Path | None = None
    """File to write the figures to."""


class StepEvents(NamedTuple):
    """Events of every step, all [T, E]."""

    held_before: Array
    held: Array
    pushed: Array  # a push, with or without a held body
    stages_before: Array  # [T, E, stages]
    stages_reached: Array  # [T, E, stages]


def make_rollout(env: HardEight, batch: AutoReset) -> Callable[..., Any]:
    """Return a function that acts for one sequence. It returns the new state, the trajectory and its events."""

    def play(actor: Actor, at: RolloutCarry, key: Array) -> tuple[RolloutCarry, Trajectory, StepEvents]:
        def step(at: RolloutCarry, key: Array) -> tuple[RolloutCarry, Any]:
            then, policy, action = act_and_step(actor, batch, at, key)
            held, then_held = (each.env_state.env_state.world.hand.held >= 0 for each in (at, then))
            control = jax.vmap(lambda each: world.decode_action(each, env.settings.action_set))(action)
            reached = at.env_state.env_state.stages_reached, then.env_state.env_state.stages_reached
            events = StepEvents(held, then_held, control.push_held > 0.5, *reached)
            return then, (at.timestep, action, then.timestep.reward, then.timestep.discount, policy, events)

        then, (seen, action, reward, discount, policy, events) = jax.lax.scan(step, at, jax.random.split(key, STEPS))
        ends = jax.tree.map(lambda many, last: jnp.concatenate([many, last[None]]), seen, then.timestep)
        task = jnp.zeros(ends.is_first.shape, jnp.int32)
        trajectory = Trajectory(
            ends.observation,
            ends.is_first,
            action,
            reward,
            discount,
            policy,
            task_id=task,
            initial_state=at.recurrent_state,
        )
        return then, trajectory, events

    return jax.jit(play)


def kinds(events: StepEvents, inside: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return masks [T, E] of steps by kind, without steps that only reset."""
    held_before, held = np.asarray(events.held_before), np.asarray(events.held)
    pushed, let_go = np.asarray(events.pushed), held_before & ~held
    found = {
        "all": inside,
        "hand empty": ~held_before & ~held,
        "lifted": ~held_before & held,
        "held": held_before & held,
        "let go": let_go & ~pushed,
        "thrown": let_go & pushed,
    }
    new = np.asarray(events.stages_reached & ~events.stages_before)
    found |= {f"first {name}": new[..., stage] for stage, name in enumerate(names)}
    found |= {f"the step after {name}": _after(new[..., stage]) for stage, name in enumerate(names)}
    return {name: steps & inside for name, steps in found.items()}


def _after(steps: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(steps[:1]), steps[:-1]])


def measure(arguments: Arguments) -> dict[str, dict[str, float]]:
    config = with_one_device(load_config(arguments.run))
    checkpoints = Checkpoints(arguments.run / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"{arguments.run} has no checkpoint: train it first")
    [env] = make_training_envs(config)
    if not isinstance(env, HardEight) or env.spec.tasks:
        raise UserError(f"{arguments.run} is of {env.spec.name}: choose a run of one task of hard-eight")
    runtime = make_runtime(config, [env])
    state = checkpoints.restore(runtime.init_learner(config.seed), part="learner").state
    batch, judge = AutoReset(env, arguments.envs), jax.jit(runtime.learner.intrinsic_reward)
    play, key = make_rollout(env, batch), jax.random.key(arguments.seed)
    envs, timestep = jax.jit(batch.reset)(jax.random.split(jax.random.fold_in(key, 0), arguments.envs))
    at = RolloutCarry(envs, timestep, state.target_actor.initial_state(env.spec, arguments.envs))
    total, paid = dict[str, int](), dict[str, float]()
    rounds = max(arguments.steps // (STEPS * arguments.envs), 1)
    for index in track(range(rounds), "playing", console=Console(stderr=True)):
        at, trajectory, events = play(state.target_actor, at, jax.random.fold_in(key, index + 1))
        rewards = np.asarray(judge(state, trajectory))
        inside = ~np.asarray(trajectory.is_first[1:])
        for name, steps in kinds(events, inside, env.stages).items():
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
    table = Table("kind of step", "percent of the steps", "mean intrinsic reward", title=str(arguments.run))
    for name, row in figures.items():
        table.add_row(name, f"{row['percent']:.2f}", f"{row['mean']:.3f}")
    Console().print(table)
    if arguments.json is not None:
        atomic_write(arguments.json, json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
