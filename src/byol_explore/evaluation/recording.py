"""An agent's way through one environment: pictures of it, and the trajectory that the learner would see."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.agent import Player
from byol_explore.envs.base import AutoReset, Environment, KeptTasks
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.networks.assembly import Actor
from byol_explore.types import Action, Array, Memory, Policy, TimeStep, Trajectory

MOST_FRAMES = 3000  # of a film


class Moment(NamedTuple):
    """One observation, and what the agent does about it. All arrays have a batch of one, and are on the host."""

    frame: np.ndarray  # [H, W, 3] uint8
    timestep: TimeStep
    memory: Memory
    action: Action
    policy: Policy


def walk(actor: Actor, env: AnyEnvironment, key: Array, task: int | None = None) -> Iterator[Moment]:
    """Sampled actions, episode after episode, for as long as somebody looks; close it afterwards.

    In a world with several tasks all episodes are of the one with that number, if there is one.
    """
    seed_key, key = jax.random.split(key)
    inside = not isinstance(env, HostEnvironment)
    batch = Inside(env, seed_key, task) if inside else env.batch(1, int(jax.random.bits(seed_key) >> 2))
    try:
        player = Player(batch, env.spec, key)
        player.begin(actor)
        while True:
            frame, timestep = batch.render(), jax.tree.map(np.array, player.timestep)
            memory = jax.device_get(player.memory)
            policy, action = player.turn(actor)
            yield Moment(frame, timestep, memory, action, jax.device_get(policy))
    finally:
        batch.close()


class Inside:
    """An environment inside jit, stepped from outside."""

    num_envs = 1

    def __init__(self, env: Environment, key: Array, task: int | None = None) -> None:
        self._env, self._key = env, key
        batch = AutoReset(env, 1) if task is None else KeptTasks(env, [task])
        self._reset, self._step = jax.jit(batch.reset), jax.jit(batch.step)

    def reset(self) -> TimeStep:
        self._state, timestep = self._reset(jax.random.split(self._key, 1))
        return jax.device_get(timestep)

    def step(self, action: Action) -> TimeStep:
        self._state, timestep = self._step(self._state, action)
        return jax.device_get(timestep)

    @property
    def state(self) -> Any:
        """The environment's own, on the host."""
        return jax.tree.map(lambda x: x[0], jax.device_get(self._state.inner))

    def render(self) -> np.ndarray:
        return self._env.render(self.state)

    def places(self) -> np.ndarray:
        return np.zeros((1, 0), np.float32)

    def close(self) -> None: ...


def film(
    actor: Actor, env: AnyEnvironment, key: Array, episodes: int, task: int | None = None
) -> list[np.ndarray]:  # fmt: skip
    """Pictures of whole episodes, one after the other; not endlessly many of them."""
    frames, ended = [], 0
    with closing(walk(actor, env, key, task)) as moments:  # pyright: ignore[reportArgumentType]
        for moment in moments:
            frames.append(moment.frame)
            ended += bool(moment.timestep.is_last[0])
            if ended == episodes or len(frames) == MOST_FRAMES:
                break
    return frames


def record(
    actor: Actor, env: AnyEnvironment, key: Array, steps: int, task: int = 0, number: int | None = None
) -> tuple[list[np.ndarray], Any]:
    """So many steps of a task of the agent's: their pictures [T] and their trajectory [T, 1, ...].

    `number` is that of the task in a world with several.
    """
    with closing(walk(actor, env, key, number)) as walking:  # pyright: ignore[reportArgumentType]
        moments = [moment for moment, _ in zip(walking, range(steps + 1), strict=False)]
    frames, timesteps, memories, actions, policies = zip(*moments, strict=True)
    seen: TimeStep = _stacked(timesteps)
    trajectory = Trajectory(
        observation=seen.observation,
        is_first=seen.is_first,
        action=_stacked(actions[:-1]),
        reward=seen.reward[1:],
        discount=seen.discount[1:],
        policy=_stacked(policies[:-1]),
        task=np.full(seen.is_first.shape, task, np.int32),
        memory=memories[0],
    )
    return list(frames), trajectory


def _stacked(trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
