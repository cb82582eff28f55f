"""A trained agent to play with: `agent = load_agent(run_dir)`, `agent.act(observation)`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from byol_explore.agent import act
from byol_explore.envs.base import EnvSpec
from byol_explore.envs.host import AnyEnvironment
from byol_explore.envs.registry import make_envs
from byol_explore.envs.tasks import count_tasks
from byol_explore.errors import UserError, unknown
from byol_explore.learner import Learner
from byol_explore.networks.assembly import Actor
from byol_explore.run.checkpoint import Checkpoints, Restored
from byol_explore.run.directory import load_config
from byol_explore.settings.config import Config
from byol_explore.types import Action, Memory, PyTree, TimeStep


class Agent:
    """A policy with a memory for each of a batch of environments.

    Observations and actions are those of the environment that it was trained in, with an axis of environments in front:
    of a Gymnasium environment what its vector environments give and take, of all others `Action`.
    """

    def __init__(self, actor: Actor, spec: EnvSpec, env: Any = None, *, seed: int = 0) -> None:
        self.actor, self.spec = actor, spec
        self._read = env.observations.read if hasattr(env, "observations") else lambda observation: observation
        self._native = env.actions.native if hasattr(env, "actions") else lambda action: action
        self._act = jax.jit(act, static_argnames="greedy")
        self._key = jax.random.key(seed)
        self._memory: Memory | None = None
        self._begins: np.ndarray = np.zeros(0, bool)

    def reset(self, where: np.ndarray | None = None) -> None:
        """New episodes: in all environments, or [E] in those that the mask names, which keep their number."""
        if where is None or self._memory is None:
            self._memory = None
        else:
            where = np.asarray(where, bool)
            if where.shape != self._begins.shape:
                raise UserError(f"a mask of shape {where.shape}, but the episodes of {len(self._begins)} run")
            self._begins = self._begins | where

    def act(self, observation: PyTree, reward: np.ndarray | None = None, *, greedy: bool = True) -> Any:
        """Actions for observations [E, ...]; `reward` [E] is what the last action brought, for agents that read it."""
        seen = self._read(observation)
        count = self._count(seen)
        if self._memory is None:
            self._memory = self.actor.initial_memory(self.spec, count)
            self._begins = np.ones(count, bool)
        if count != len(self._begins):
            raise UserError(f"{count} observations, but the episodes of {len(self._begins)} run: reset() first")
        self._key, key = jax.random.split(self._key)
        rewards = np.zeros(count, np.float32) if reward is None else np.asarray(reward, np.float32)
        if rewards.shape != (count,):
            raise UserError(f"rewards of shape {rewards.shape} for {count} observations: it must be {(count,)}")
        timestep = TimeStep(seen, rewards, np.ones(count, np.float32), self._begins, np.zeros(count, bool))
        self._memory, _, action = self._act(self.actor, self._memory, timestep, key, greedy=greedy)
        self._begins = np.zeros(count, bool)
        return self._native(Action(*map(np.asarray, action)))

    def _count(self, seen: PyTree) -> int:
        """How many observations these are; a UserError unless all are what the spec says."""
        kinds, entries = (x if isinstance(x, dict) else {"": x} for x in (self.spec.observation, seen))
        shapes: dict[str, tuple[int, ...]] = {name: getattr(array, "shape", ()) for name, array in entries.items()}
        wanted = {name: kind.shape for name, kind in kinds.items()}
        counts = {shape[:1] for shape in shapes.values()}
        if {name: shape[1:] for name, shape in shapes.items()} != wanted or len(counts) > 1 or () in counts:
            found, expected = (x.get("", x) for x in (shapes, wanted))
            raise UserError(
                f"observations of shape {found}: each must be {expected}, with an axis of them all in front"
            )
        return counts.pop()[0]


def load_agent(run_dir: Path | str, *, checkpoint: str | int = "last", seed: int = 0) -> Agent:
    """The agent of a run; `checkpoint` is last, best or the step of one, `seed` that of sampled actions."""
    directory = Path(run_dir)
    config = load_config(directory)
    envs = make_envs(config.env_ids, config.env_settings)
    restored = restore_actor(config, envs, Checkpoints(directory / "checkpoints"), str(checkpoint))
    return Agent(restored.state, envs[0].spec, envs[0], seed=seed)


def restore_actor(
    config: Config, envs: Sequence[AnyEnvironment], checkpoints: Checkpoints, which: str
) -> Restored:  # fmt: skip
    """The target policy of a checkpoint; on how many devices it was trained does not matter."""
    known = checkpoints.steps()
    if which == "last":
        step = None
    elif which == "best":
        step = checkpoints.best_step()
    elif which.isdigit() and int(which) in known:
        step = int(which)
    else:
        raise unknown("checkpoint", which, ["last", "best", *map(str, known)])
    learner = jax.eval_shape(Learner(config, envs[0].spec, count_tasks(envs)).init, jax.random.key(0))
    return checkpoints.restore(learner.acting, step=step, part="learner.acting")
